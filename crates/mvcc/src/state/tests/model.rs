//! Naive reference model: a list of all versions with linear search.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{AlarmChange, LeaseId, SortBy};

/// One version of a key in the model: key, value, create, mod, version, lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    key: Vec<u8>,
    value: Vec<u8>,
    create: Revision,
    modified: Revision,
    version: i64,
    lease: LeaseId,
}

/// The reply to a command, without types of the code under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ModelResponse {
    Put(Option<Version>),
    Delete(usize, Vec<Version>),
    Txn(bool, Vec<(Revision, ModelResponse)>),
    Range(RangeResult),
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeResult {
    revision: Revision,
    versions: Vec<Version>,
    more: bool,
    count: i64,
}

pub(super) type EventResult = (Version, Option<Version>);

#[derive(Clone, Debug)]
pub(super) struct Model {
    versions: Vec<Version>,
    revision: Revision,
    compact: Revision,
    leases: BTreeMap<LeaseId, i64>,
    alarms: BTreeSet<(u64, Alarm)>,
    /// The real implementation: this test only checks that it does not affect keys.
    directory: Directory,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            versions: vec![],
            revision: 1,
            compact: -1,
            leases: BTreeMap::new(),
            alarms: BTreeSet::new(),
            directory: Directory::default(),
        }
    }
}

impl Model {
    /// Returns the live keys of a span at a revision, in order.
    fn at(&self, span: &Span, revision: Revision) -> Vec<Version> {
        let mut newest: BTreeMap<&[u8], &Version> = BTreeMap::new();
        for version in &self.versions {
            if version.modified <= revision && span.contains(&version.key) {
                newest.insert(&version.key, version);
            }
        }
        newest.into_values().filter(|version| version.version > 0).cloned().collect()
    }

    fn now(&self, span: &Span) -> Vec<Version> {
        self.at(span, Revision::MAX)
    }

    fn key(&self, key: &[u8]) -> Option<Version> {
        self.now(&Span::key(key.to_vec())).pop()
    }

    fn raised(&self, alarm: Alarm) -> bool {
        self.alarms.iter().any(|(_, raised)| *raised == alarm)
    }

    fn check_revision(&self, revision: Revision) -> Result<(), Error> {
        if revision > self.revision {
            Err(Error::FutureRevision)
        } else if revision > 0 && revision < self.compact {
            Err(Error::Compacted { compact_revision: self.compact })
        } else {
            Ok(())
        }
    }

    pub(super) fn range(&self, range: &Range) -> Result<RangeResult, Error> {
        if self.raised(Alarm::Corrupt) {
            return Err(Error::Corrupt);
        }
        self.check_revision(range.revision)?;
        Ok(self.range_at(range, self.revision))
    }

    fn range_at(&self, range: &Range, now: Revision) -> RangeResult {
        let all = self.at(&range.span, if range.revision <= 0 { Revision::MAX } else { range.revision });
        let count = i64::try_from(all.len()).expect("few keys");
        if range.count_only {
            return RangeResult { revision: now, versions: vec![], more: false, count };
        }
        let within = |at: Revision, min: Revision, max: Revision| (min == 0 || at >= min) && (max == 0 || at <= max);
        let mut versions: Vec<_> = all
            .into_iter()
            .filter(|version| within(version.modified, range.mod_revision.min, range.mod_revision.max))
            .filter(|version| within(version.create, range.create_revision.min, range.create_revision.max))
            .collect();
        if let Some(sort) = range.sort {
            versions.sort_by(|a, b| {
                let order = match sort.by {
                    SortBy::Key => a.key.cmp(&b.key),
                    SortBy::Version => a.version.cmp(&b.version),
                    SortBy::CreateRevision => a.create.cmp(&b.create),
                    SortBy::ModRevision => a.modified.cmp(&b.modified),
                    SortBy::Value => a.value.cmp(&b.value),
                };
                if sort.descending { order.reverse() } else { order }
            });
        }
        let limit = usize::try_from(range.limit).unwrap_or(0);
        let more = limit > 0 && versions.len() > limit;
        if more {
            versions.truncate(limit);
        }
        RangeResult { revision: now, versions, more, count }
    }

    pub(super) fn events(&self, span: &Span, from: Revision) -> Vec<EventResult> {
        let mut events = Vec::new();
        let mut before: BTreeMap<&[u8], &Version> = BTreeMap::new();
        for version in &self.versions {
            let previous = before.insert(&version.key, version).filter(|previous| previous.version > 0);
            if version.modified >= from && span.contains(&version.key) {
                events.push((version.clone(), previous.cloned()));
            }
        }
        events
    }

    pub(super) fn lease_keys(&self, id: LeaseId) -> Vec<Vec<u8>> {
        self.now(&Span::all()).into_iter().filter(|version| version.lease == id).map(|version| version.key).collect()
    }

    pub(super) fn apply(&mut self, command: &Command) -> (Revision, Result<ModelResponse, Error>) {
        let result = self.dispatch(command);
        (self.revision, result)
    }

    fn dispatch(&mut self, command: &Command) -> Result<ModelResponse, Error> {
        if let Command::Alarm { change, alarm, member } = command {
            match change {
                AlarmChange::Raise => drop(self.alarms.insert((*member, *alarm))),
                AlarmChange::Lower => {
                    let spares =
                        |raised: &Alarm| raised != alarm && (*alarm != Alarm::NoSpace || *raised == Alarm::Corrupt);
                    self.alarms.retain(|(of, raised)| spares(raised) || (*member != 0 && of != member));
                }
            }
            return Ok(ModelResponse::Other);
        }
        if self.raised(Alarm::Corrupt) {
            return Err(Error::Corrupt);
        }
        let full = self.raised(Alarm::NoSpace) || self.raised(Alarm::Full);
        let txn = match command {
            Command::Put(put) => Txn { success: vec![Operation::Put(put.clone())], ..Txn::default() },
            Command::Delete(delete) => Txn { success: vec![Operation::Delete(delete.clone())], ..Txn::default() },
            Command::Txn(txn) => txn.clone(),
            Command::LeaseGrant { .. } if full => return Err(Error::NoSpace),
            Command::Directory(change) if self.raised(Alarm::Full) && change.grows() => return Err(Error::NoSpace),
            Command::Directory(change) => {
                self.directory.apply(change)?;
                return Ok(ModelResponse::Other);
            }
            _ => return self.lease_or_compact(command),
        };
        if full && puts(&txn) {
            return Err(Error::NoSpace);
        }
        let chosen = self.choose(&txn);
        self.check(&chosen.1)?;
        let next = self.revision + 1;
        let before = self.versions.len();
        let mut responses = self.run(&chosen.1, next, before);
        if self.versions.len() > before {
            self.revision = next;
        }
        Ok(match command {
            Command::Txn(_) => ModelResponse::Txn(chosen.0, responses),
            _ => responses.remove(0).1,
        })
    }

    fn lease_or_compact(&mut self, command: &Command) -> Result<ModelResponse, Error> {
        match command {
            Command::LeaseGrant { id, .. } if self.leases.contains_key(id) => return Err(Error::LeaseExists(*id)),
            Command::LeaseGrant { id, ttl_seconds } => drop(self.leases.insert(*id, *ttl_seconds)),
            Command::LeaseRevoke { id } => {
                self.leases.remove(id).ok_or(Error::LeaseNotFound(*id))?;
                let keys = self.lease_keys(*id);
                self.revision += i64::from(!keys.is_empty());
                for key in keys {
                    self.delete(key, self.revision);
                }
            }
            Command::Compact { revision } if *revision <= self.compact => {
                return Err(Error::Compacted { compact_revision: self.compact });
            }
            Command::Compact { revision } if *revision > self.revision => return Err(Error::FutureRevision),
            Command::Compact { revision } => self.compact = *revision,
            _ => {}
        }
        Ok(ModelResponse::Other)
    }

    fn delete(&mut self, key: Vec<u8>, revision: Revision) {
        self.versions.push(Version { key, value: vec![], create: 0, modified: revision, version: 0, lease: 0 });
    }

    fn choose(&self, txn: &Txn) -> (bool, Vec<ChosenOperation>) {
        let succeeded = txn.compare.iter().all(|compare| {
            let found = self.now(&compare.span);
            if found.is_empty() {
                holds(compare, None)
            } else {
                found.iter().all(|version| holds(compare, Some(version)))
            }
        });
        let operations = if succeeded { &txn.success } else { &txn.failure };
        let chosen = operations.iter().map(|operation| match operation {
            Operation::Txn(txn) => {
                let (succeeded, inner) = self.choose(txn);
                ChosenOperation::Txn(succeeded, inner)
            }
            other => ChosenOperation::One(other.clone()),
        });
        (succeeded, chosen.collect())
    }

    fn check(&self, chosen: &[ChosenOperation]) -> Result<(), Error> {
        let flat = flatten(chosen);
        for operation in &flat {
            if let Operation::Put(put) = operation {
                if (put.value.is_none() || put.lease.is_none()) && self.key(&put.key).is_none() {
                    return Err(Error::KeyNotFound);
                }
                if let Some(lease) = put.lease.filter(|lease| *lease != 0 && !self.leases.contains_key(lease)) {
                    return Err(Error::LeaseNotFound(lease));
                }
            }
        }
        flat.iter().try_for_each(|operation| match operation {
            Operation::Range(range) => self.check_revision(range.revision),
            _ => Ok(()),
        })
    }

    fn run(&mut self, chosen: &[ChosenOperation], next: Revision, before: usize) -> Vec<(Revision, ModelResponse)> {
        let mut responses = Vec::new();
        for one in chosen {
            let response = match one {
                ChosenOperation::Txn(succeeded, inner) => ModelResponse::Txn(*succeeded, self.run(inner, next, before)),
                ChosenOperation::One(operation) => self.operate(operation, next, before),
            };
            let changed = self.versions.len() > before;
            responses.push((if changed { next } else { next - 1 }, response));
        }
        responses
    }

    fn operate(&mut self, operation: &Operation, next: Revision, before: usize) -> ModelResponse {
        match operation {
            Operation::Range(range) => {
                let changed = self.versions.len() > before;
                ModelResponse::Range(self.range_at(range, if changed { next } else { next - 1 }))
            }
            Operation::Put(put) => {
                let old = self.key(&put.key);
                let base = old.clone().unwrap_or(Version {
                    key: vec![],
                    value: vec![],
                    create: next,
                    modified: 0,
                    version: 0,
                    lease: 0,
                });
                self.versions.push(Version {
                    key: put.key.to_vec(),
                    value: put.value.as_ref().map_or(base.value, |value| value.to_vec()),
                    create: base.create,
                    modified: next,
                    version: base.version + 1,
                    lease: put.lease.unwrap_or(base.lease),
                });
                ModelResponse::Put(old.filter(|_| put.want_previous))
            }
            Operation::Delete(delete) => {
                let old = self.now(&delete.span);
                for version in &old {
                    self.delete(version.key.clone(), next);
                }
                ModelResponse::Delete(old.len(), if delete.want_previous { old } else { vec![] })
            }
            Operation::Txn(_) => unreachable!("nested transactions are chosen branches"),
        }
    }
}

enum ChosenOperation {
    One(Operation),
    Txn(bool, Vec<ChosenOperation>),
}

fn flatten(chosen: &[ChosenOperation]) -> Vec<&Operation> {
    chosen
        .iter()
        .flat_map(|one| match one {
            ChosenOperation::One(operation) => vec![operation],
            ChosenOperation::Txn(_, inner) => flatten(inner),
        })
        .collect()
}

fn puts(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).any(|operation| match operation {
        Operation::Put(_) => true,
        Operation::Txn(txn) => puts(txn),
        _ => false,
    })
}

fn holds(compare: &Compare, version: Option<&Version>) -> bool {
    let number = |of: fn(&Version) -> i64| version.map_or(0, of);
    let order = match &compare.target {
        Target::Version(with) => number(|version| version.version).cmp(with),
        Target::CreateRevision(with) => number(|version| version.create).cmp(with),
        Target::ModRevision(with) => number(|version| version.modified).cmp(with),
        Target::Lease(with) => number(|version| version.lease).cmp(with),
        Target::Value(with) => match version {
            None => return false,
            Some(version) => version.value[..].cmp(with),
        },
    };
    match compare.relation {
        Relation::Equal => order == Ordering::Equal,
        Relation::NotEqual => order != Ordering::Equal,
        Relation::Greater => order == Ordering::Greater,
        Relation::Less => order == Ordering::Less,
    }
}

fn version(record: &Record) -> Version {
    Version {
        key: record.key().to_vec(),
        value: record.value().to_vec(),
        create: record.create_revision,
        modified: record.mod_revision,
        version: record.version,
        lease: record.lease,
    }
}

pub(super) fn event(event: &Event) -> EventResult {
    (version(&event.record), event.previous.as_deref().map(version))
}

/// Removes changes at the compact revision, which the state may or may not keep.
pub(super) fn comparable(
    found: Vec<EventResult>,
    expected: Vec<EventResult>,
    compact: Revision,
) -> (Vec<EventResult>, Vec<EventResult>) {
    let after =
        |events: Vec<EventResult>| events.into_iter().filter(|(version, _)| version.modified > compact).collect();
    (after(found), after(expected))
}

pub(super) fn range_reply(reply: &RangeReply) -> RangeResult {
    RangeResult {
        revision: reply.revision,
        versions: reply.records.iter().map(|record| version(record)).collect(),
        more: reply.more,
        count: reply.count,
    }
}

pub(super) fn reply(reply: &Reply) -> ModelResponse {
    match reply {
        Reply::Put { previous } => ModelResponse::Put(previous.as_deref().map(version)),
        Reply::Delete { deleted, previous } => {
            ModelResponse::Delete(*deleted, previous.iter().map(|record| version(record)).collect())
        }
        Reply::Txn { succeeded, replies } => ModelResponse::Txn(*succeeded, replies.iter().map(operation).collect()),
        _ => ModelResponse::Other,
    }
}

fn operation(reply: &OperationReply) -> (Revision, ModelResponse) {
    let response = match &reply.body {
        OperationBody::Range(range) => ModelResponse::Range(range_reply(range)),
        OperationBody::Put { previous } => ModelResponse::Put(previous.as_deref().map(version)),
        OperationBody::Delete { deleted, previous } => {
            ModelResponse::Delete(*deleted, previous.iter().map(|record| version(record)).collect())
        }
        OperationBody::Txn { succeeded, replies } => {
            ModelResponse::Txn(*succeeded, replies.iter().map(operation).collect())
        }
    };
    (reply.revision, response)
}
