//! Application of commands, the only changes of the state.

use std::sync::Arc;

use bytes::Bytes;

use super::{Head, Lease, LeasedRecord, LoggedEvent, Past, State};
use crate::command::{Alarm, AlarmChange, Command, Compare, Delete, Operation, Put, Relation, Target, Txn};
use crate::error::Error;
use crate::range::{Range, RangeReply};
use crate::record::{Event, Record, Value, ValueInterner};
use crate::{LeaseId, Revision, Span};

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The state's revision after the command.
    pub revision: Revision,
    /// The reply, or the reason of a rejection.
    pub result: Result<Reply, Error>,
}

/// The reply to a successful command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Put {
        /// The previous record, if requested.
        previous: Option<Arc<Record>>,
    },
    Delete {
        /// Number of deleted keys.
        deleted: usize,
        /// The previous records, if requested.
        previous: Vec<Arc<Record>>,
    },
    Txn {
        /// Whether all compares were true.
        succeeded: bool,
        /// One reply per executed operation.
        replies: Vec<OperationReply>,
    },
    LeaseGranted {
        /// The lease ID chosen by the proposer.
        id: LeaseId,
        ttl_seconds: i64,
    },
    LeaseRevoked,
    LeaseCheckpointed,
    Compacted,
    /// The alarms that changed.
    Alarms(Vec<(u64, Alarm)>),
    Directory,
    /// A session was opened.
    Authenticated {
        /// The index of the entry that opened the session: the second part of its token.
        index: u64,
        /// The directory revision at that entry.
        revision: u64,
    },
}

/// The reply to one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationReply {
    /// The revision that the operation saw.
    pub revision: Revision,
    pub body: OperationBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationBody {
    Range(RangeReply),
    Put { previous: Option<Arc<Record>> },
    Delete { deleted: usize, previous: Vec<Arc<Record>> },
    Txn { succeeded: bool, replies: Vec<OperationReply> },
}

impl State {
    /// Applies a command. The outcome depends only on the previously applied commands.
    pub fn apply(&mut self, index: u64, command: &Command) -> Outcome {
        self.apply_to(index, command, &mut Bytes::clone)
    }

    /// Like [`State::apply`], but stores written values with `store_value`.
    pub fn apply_to(&mut self, index: u64, command: &Command, store_value: &mut ValueInterner<'_>) -> Outcome {
        let result = if index <= self.applied_index {
            Err(Error::AlreadyApplied { index })
        } else {
            self.applied_index = index;
            self.dispatch(command, store_value)
        };
        Outcome { revision: self.revision, result }
    }

    fn dispatch(&mut self, command: &Command, store_value: &mut ValueInterner<'_>) -> Result<Reply, Error> {
        let (caller, command) = command.split();
        self.check_alarms(command)?;
        self.authorize(caller, command)?;
        match command {
            Command::Put(put) => {
                self.check_put(put)?;
                let previous = self.change(store_value, |changes| changes.put(put));
                Ok(Reply::Put { previous: previous.filter(|_| put.want_previous) })
            }
            Command::Delete(delete) => {
                let previous = self.change(store_value, |changes| changes.delete(&delete.span));
                Ok(Reply::Delete { deleted: previous.len(), previous: previous_if_requested(delete, previous) })
            }
            Command::Txn(txn) => self.txn(txn, store_value),
            Command::LeaseGrant { id, ttl_seconds } => self.lease_grant(*id, *ttl_seconds),
            Command::LeaseRevoke { id } => self.lease_revoke(*id, store_value),
            Command::LeaseCheckpoint { remaining } => {
                for (id, seconds) in remaining {
                    if let Some(lease) = self.lease(*id) {
                        self.leases.insert(Lease { remaining_seconds: *seconds, ..lease });
                    }
                }
                Ok(Reply::LeaseCheckpointed)
            }
            Command::Compact { revision } => self.compact(*revision).map(|()| Reply::Compacted),
            Command::Alarm { change, alarm, member } => Ok(Reply::Alarms(self.change_alarm(*change, *alarm, *member))),
            Command::Directory(change) => {
                Arc::make_mut(&mut self.directory).apply(change)?;
                Ok(Reply::Directory)
            }
            Command::Authenticate { .. } => {
                Ok(Reply::Authenticated { index: self.applied_index, revision: self.directory.revision() })
            }
            Command::Authorized { .. } => unreachable!("a command has one caller"),
        }
    }

    /// Rejects key writes if the quota is exhausted, growing commands if the disks are full, and all changes if
    /// corrupt.
    fn check_alarms(&self, command: &Command) -> Result<(), Error> {
        if self.alarms.is_empty() || matches!(command, Command::Alarm { .. }) {
            return Ok(());
        }
        if self.has_alarm(Alarm::Corrupt) {
            return Err(Error::Corrupt);
        }
        let rejected = (command.counts_against_quota() && self.has_alarm(Alarm::NoSpace))
            || (command.grows() && self.has_alarm(Alarm::Full));
        if rejected { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn check_put(&self, put: &Put) -> Result<(), Error> {
        if (put.value.is_none() || put.lease.is_none()) && self.key(&put.key).is_none() {
            return Err(Error::KeyNotFound);
        }
        match put.lease {
            Some(lease) if lease != 0 && self.lease(lease).is_none() => Err(Error::LeaseNotFound(lease)),
            _ => Ok(()),
        }
    }

    /// Validates the selected branches, then executes them: a transaction is atomic.
    fn txn(&mut self, txn: &Txn, store_value: &mut ValueInterner<'_>) -> Result<Reply, Error> {
        let branch = self.choose(txn);
        branch.check(&|operation| match operation {
            Operation::Put(put) => self.check_put(put),
            _ => Ok(()),
        })?;
        branch.check(&|operation| match operation {
            Operation::Range(range) => self.check_revision(range.revision),
            _ => Ok(()),
        })?;
        let replies = self.change(store_value, |changes| changes.branch(&branch));
        Ok(Reply::Txn { succeeded: branch.succeeded, replies })
    }

    /// Selects branches. All compares, including those of nested transactions, read the state before the first write.
    fn choose<'a>(&self, txn: &'a Txn) -> Branch<'a> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let operations = if succeeded { &txn.success } else { &txn.failure };
        let steps = operations.iter().map(|operation| match operation {
            Operation::Txn(txn) => (operation, Some(self.choose(txn))),
            _ => (operation, None),
        });
        Branch { succeeded, steps: steps.collect() }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let mut found = false;
        let all = self.span_heads(&compare.span).filter(|record| !record.is_tombstone()).all(|record| {
            found = true;
            compare.holds(Some(record))
        });
        all && (found || compare.holds(None))
    }

    fn lease_grant(&mut self, id: LeaseId, ttl_seconds: i64) -> Result<Reply, Error> {
        if self.lease(id).is_some() {
            return Err(Error::LeaseExists(id));
        }
        self.leases.insert(Lease { id, ttl_seconds, remaining_seconds: 0 });
        Ok(Reply::LeaseGranted { id, ttl_seconds })
    }

    fn lease_revoke(&mut self, id: LeaseId, store_value: &mut ValueInterner<'_>) -> Result<Reply, Error> {
        self.leases.remove(|lease| lease.id.cmp(&id)).ok_or(Error::LeaseNotFound(id))?;
        let records: Vec<_> = self.lease_keys(id).cloned().collect();
        self.change(store_value, |changes| records.iter().for_each(|record| changes.delete_record(record)));
        Ok(Reply::LeaseRevoked)
    }

    fn change_alarm(&mut self, change: AlarmChange, alarm: Alarm, member: u64) -> Vec<(u64, Alarm)> {
        let alarms = Arc::make_mut(&mut self.alarms);
        match change {
            AlarmChange::Raise => {
                alarms.insert((member, alarm));
                vec![(member, alarm)]
            }
            AlarmChange::Lower => {
                // Clearing etcd's NOSPACE alarm clears all alarms of that type.
                let is_meant = |raised: Alarm| raised == alarm || raised.kind() == alarm;
                let lowered = |(of, raised): &(u64, Alarm)| is_meant(*raised) && (member == 0 || *of == member);
                let changed = alarms.iter().filter(|entry| lowered(entry)).copied().collect();
                alarms.retain(|entry| !lowered(entry));
                changed
            }
        }
    }

    /// Makes changes in one new revision, which is created only if there are any.
    fn change<R>(&mut self, store_value: &mut ValueInterner<'_>, change: impl FnOnce(&mut Changes<'_, '_>) -> R) -> R {
        let mut changes = Changes { revision: self.revision + 1, sub: 0, state: self, store_value };
        let result = change(&mut changes);
        let revision = changes.now();
        self.revision = revision;
        result
    }
}

fn previous_if_requested(delete: &Delete, previous: Vec<Arc<Record>>) -> Vec<Arc<Record>> {
    if delete.want_previous { previous } else { Vec::new() }
}

/// The operations of a transaction selected by its compares.
struct Branch<'a> {
    succeeded: bool,
    steps: Vec<(&'a Operation, Option<Branch<'a>>)>,
}

impl Branch<'_> {
    fn check(&self, check: &impl Fn(&Operation) -> Result<(), Error>) -> Result<(), Error> {
        self.steps.iter().try_for_each(|(operation, nested)| match nested {
            Some(branch) => branch.check(check),
            None => check(operation),
        })
    }
}

impl Compare {
    fn holds(&self, record: Option<&Record>) -> bool {
        let order = match &self.target {
            Target::Version(version) => record.map_or(0, |record| record.version).cmp(version),
            Target::CreateRevision(revision) => record.map_or(0, |record| record.create_revision).cmp(revision),
            Target::ModRevision(revision) => record.map_or(0, |record| record.mod_revision).cmp(revision),
            Target::Lease(lease) => record.map_or(0, |record| record.lease).cmp(lease),
            Target::Value(value) => match record {
                Some(record) => record.value().cmp(value),
                // An absent key has no value to compare.
                None => return false,
            },
        };
        match self.relation {
            Relation::Equal => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::Greater => order.is_gt(),
            Relation::Less => order.is_lt(),
        }
    }
}

/// The changes of a revision in progress.
struct Changes<'a, 'p> {
    state: &'a mut State,
    store_value: &'a mut ValueInterner<'p>,
    revision: Revision,
    sub: u32,
}

impl Changes<'_, '_> {
    fn now(&self) -> Revision {
        if self.sub == 0 { self.revision - 1 } else { self.revision }
    }

    fn branch(&mut self, branch: &Branch<'_>) -> Vec<OperationReply> {
        branch.steps.iter().map(|(operation, nested)| self.operation(operation, nested.as_ref())).collect()
    }

    fn operation(&mut self, operation: &Operation, nested: Option<&Branch<'_>>) -> OperationReply {
        let body = match (operation, nested) {
            (Operation::Range(range), _) => OperationBody::Range(self.range(range)),
            (Operation::Put(put), _) => OperationBody::Put { previous: self.put(put).filter(|_| put.want_previous) },
            (Operation::Delete(delete), _) => {
                let previous = self.delete(&delete.span);
                OperationBody::Delete { deleted: previous.len(), previous: previous_if_requested(delete, previous) }
            }
            (Operation::Txn(_), nested) => {
                let branch = nested.expect("a nested transaction has a chosen branch");
                OperationBody::Txn { succeeded: branch.succeeded, replies: self.branch(branch) }
            }
        };
        OperationReply { revision: self.now(), body }
    }

    fn range(&self, range: &Range) -> RangeReply {
        self.state.range_as_of(range, self.now())
    }

    /// Writes a validated key and returns the previous record.
    fn put(&mut self, put: &Put) -> Option<Arc<Record>> {
        let previous = self.state.key(&put.key).cloned();
        let old = previous.as_deref();
        let value = match &put.value {
            Some(value) => Value::placed(value, self.store_value),
            None => old.map(|old| old.value.clone()).unwrap_or_default(),
        };
        let lease = put.lease.or(old.map(|old| old.lease)).unwrap_or_default();
        let record = Arc::new(Record::put(&put.key, value, (self.revision, self.sub), old, lease));
        self.record(record, previous.clone());
        previous
    }

    fn delete(&mut self, span: &Span) -> Vec<Arc<Record>> {
        let records: Vec<_> = self.state.span_heads(span).filter(|record| !record.is_tombstone()).cloned().collect();
        for record in &records {
            self.delete_record(record);
        }
        records
    }

    fn delete_record(&mut self, record: &Arc<Record>) {
        let tombstone = Record::tombstone(record, (self.revision, self.sub));
        self.record(Arc::new(tombstone), Some(record.clone()));
    }

    fn record(&mut self, record: Arc<Record>, previous: Option<Arc<Record>>) {
        self.sub += 1;
        self.state.size_bytes += record.size_bytes();
        if let Some(old) = previous.as_deref().filter(|old| old.lease != 0) {
            self.state.attached.remove(|attached| attached.order_to(old));
        }
        if record.lease != 0 {
            self.state.attached.insert(LeasedRecord(record.clone()));
        }
        if let Some(replaced) = self.state.heads.insert(Head(record.clone())) {
            self.state.history.insert(Past(replaced.0));
        }
        self.state.log.insert(LoggedEvent(Event { record, previous }));
    }
}
