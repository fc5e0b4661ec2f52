//! Client operations and their known outcomes.

use bytes::Bytes;
use mvcc::{
    Command, Compare, Delete, Operation as TxnOperation, Outcome, Put, Relation, Reply, Span, State, Target, Txn,
};

use crate::random::Random;

/// One operation of a client on one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub key: usize,
    pub kind: Kind,
    pub began_ms: u64,
    /// None while the operation is in progress, and if its outcome is unknown.
    pub end: Option<End>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Get,
    Put(u64),
    /// Compare and swap from a value, or from absence.
    Swap(Option<u64>, u64),
    Delete,
}

/// The known outcome of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub at_ms: u64,
    pub revision: i64,
    /// The result of a read.
    pub read: Option<u64>,
    /// Whether a swap's condition held, or a delete found the key.
    pub succeeded: bool,
}

pub(crate) const KEYS: usize = 4;

impl Operation {
    pub(crate) fn random(random: &mut Random, value: u64, known: Option<u64>, now_ms: u64) -> Self {
        let kind = match random.between(0, 10) {
            0..4 => Kind::Put(value),
            4..7 => Kind::Get,
            7..9 => Kind::Swap(known, value),
            _ => Kind::Delete,
        };
        Self { key: random.index(KEYS), kind, began_ms: now_ms, end: None }
    }

    /// Whether the operation is known to have changed the key.
    pub(crate) fn wrote(&self) -> bool {
        self.kind != Kind::Get && self.end.is_some_and(|end| end.succeeded)
    }

    /// Returns the written value; none for a deletion.
    pub(crate) fn written(&self) -> Option<u64> {
        match self.kind {
            Kind::Put(value) | Kind::Swap(_, value) => Some(value),
            Kind::Get | Kind::Delete => None,
        }
    }

    /// Returns the value after the operation, if its outcome is consistent with the value before. An unknown outcome is
    /// consistent with any.
    #[expect(clippy::option_option, reason = "whether the writes are possible, and the resulting value or absence")]
    pub(crate) fn follows(&self, before: Option<u64>) -> Option<Option<u64>> {
        match (self.kind, self.end) {
            (Kind::Get, end) => end.is_none_or(|end| end.read == before).then_some(before),
            (Kind::Put(value), _) => Some(Some(value)),
            (Kind::Delete, end) => end.is_none_or(|end| end.succeeded == before.is_some()).then_some(None),
            (Kind::Swap(from, to), end) => {
                let holds = from == before;
                let after = if holds { Some(to) } else { before };
                end.is_none_or(|end| end.succeeded == holds).then_some(after)
            }
        }
    }

    /// Returns the command; none for a read.
    pub(crate) fn command(&self) -> Option<Command> {
        let key = key(self.key);
        let put = |value: u64| Put {
            key: key.clone(),
            value: Some(Bytes::from(value.to_string())),
            lease: Some(0),
            want_previous: false,
        };
        match self.kind {
            Kind::Get => None,
            Kind::Put(value) => Some(Command::Put(put(value))),
            Kind::Delete => Some(Command::Delete(Delete { span: Span::key(key.clone()), want_previous: false })),
            Kind::Swap(from, to) => {
                let target = from.map_or(Target::Version(0), |from| Target::Value(Bytes::from(from.to_string())));
                let compare = Compare { span: Span::key(key.clone()), relation: Relation::Equal, target };
                Some(Command::Txn(Txn {
                    compare: vec![compare],
                    success: vec![TxnOperation::Put(put(to))],
                    failure: vec![],
                }))
            }
        }
    }

    pub(crate) fn record_outcome(&mut self, outcome: &Outcome, now_ms: u64) {
        let succeeded = match &outcome.result {
            Ok(Reply::Txn { succeeded, .. }) => *succeeded,
            Ok(Reply::Delete { deleted, .. }) => *deleted > 0,
            Ok(_) => true,
            Err(error) => unreachable!("the workload asks for nothing else that is refused: {error}"),
        };
        self.end = Some(End { at_ms: now_ms, revision: outcome.revision, read: None, succeeded });
    }

    pub(crate) fn read(&mut self, state: &State, now_ms: u64) {
        let read = value(state, self.key);
        self.end = Some(End { at_ms: now_ms, revision: state.revision(), read, succeeded: true });
    }
}

/// Returns the value of a key in a state.
pub(crate) fn value(state: &State, index: usize) -> Option<u64> {
    let record = state.key(&key(index))?;
    Some(std::str::from_utf8(record.value()).ok()?.parse().expect("values are numbers"))
}

pub(crate) fn key(index: usize) -> Bytes {
    Bytes::from(format!("key/{index}"))
}
