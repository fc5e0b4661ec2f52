//! Commands of the replicated log: every change of the key space.

mod codec;

use bytes::Bytes;

pub use codec::CorruptCommand;

use crate::directory::{Caller, DirectoryChange};
use crate::range::Range;
use crate::{LeaseId, Revision, Span};

/// A command in the replicated log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Writes one key.
    Put(Put),
    /// Deletes the keys of a span.
    Delete(Delete),
    /// Compares, then executes one of two lists of operations.
    Txn(Txn),
    /// Creates a lease.
    LeaseGrant {
        /// Chosen by the proposer.
        id: LeaseId,
        ttl_seconds: i64,
    },
    /// Revokes a lease and deletes its keys.
    LeaseRevoke {
        /// The lease to revoke.
        id: LeaseId,
    },
    /// Records the remaining time of leases, so that a new leader does not restart them with their full TTL.
    LeaseCheckpoint {
        /// Pairs of lease and remaining seconds.
        remaining: Vec<(LeaseId, i64)>,
    },
    /// Removes the history before a revision.
    Compact {
        /// The oldest revision that stays readable.
        revision: Revision,
    },
    /// Raises or clears an alarm.
    Alarm {
        change: AlarmChange,
        alarm: Alarm,
        /// The member concerned; 0 clears the alarm of all members.
        member: u64,
    },
    /// Changes users or roles.
    Directory(DirectoryChange),
    /// Opens a session for a user whose password the proposer has verified.
    Authenticate {
        user: String,
        /// The first part of the session's token; the entry's index is the second. Empty if the proposer signs the
        /// token.
        token: String,
    },
    /// A command on behalf of a caller. A command without caller is anonymous.
    Authorized {
        /// The caller whose permissions are checked when the command is applied.
        caller: Caller,
        /// The command, which is not itself authorized.
        command: Box<Command>,
    },
}

/// Writes one key.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Put {
    pub key: Bytes,
    /// The value, or none to keep the current one.
    pub value: Option<Bytes>,
    /// The lease to attach (0 detaches), or none to keep the current one.
    pub lease: Option<LeaseId>,
    /// Whether the reply contains the previous record.
    pub want_previous: bool,
}

/// Deletes the keys of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub span: Span,
    /// Whether the reply contains the previous records.
    pub want_previous: bool,
}

/// Compares, then executes one of two lists of operations in one revision.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Txn {
    /// The transaction succeeds if all compares hold.
    pub compare: Vec<Compare>,
    pub success: Vec<Operation>,
    pub failure: Vec<Operation>,
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads; sees the earlier writes of the transaction.
    Range(Range),
    Put(Put),
    Delete(Delete),
    /// A nested transaction.
    Txn(Txn),
}

/// A condition on every key of a span, or on an absent key if the span is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub span: Span,
    /// The relation of the key's attribute to the given value.
    pub relation: Relation,
    /// The attribute and the value that it is compared with.
    pub target: Target,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    Greater,
    Less,
    NotEqual,
}

/// The compared attribute of a key, with the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Version(i64),
    CreateRevision(Revision),
    ModRevision(Revision),
    Value(Bytes),
    Lease(LeaseId),
}

/// A condition of a member that requires an operator's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// The quota is exhausted: the store must not grow.
    NoSpace,
    /// Members have different data: nothing may be written.
    Corrupt,
    /// The disk of this member is full: it rejects growing commands, and the others continue.
    Low,
    /// No majority of the members has disk space: the store must not grow.
    Full,
}

impl Alarm {
    /// Returns the etcd alarm type: all space alarms are NOSPACE for operators.
    #[must_use]
    pub fn kind(self) -> Self {
        match self {
            Alarm::NoSpace | Alarm::Low | Alarm::Full => Alarm::NoSpace,
            Alarm::Corrupt => Alarm::Corrupt,
        }
    }
}

/// A change of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmChange {
    Raise,
    Lower,
}

impl Command {
    /// Returns the command on behalf of a caller.
    #[must_use]
    pub fn authorized(self, caller: Caller) -> Self {
        debug_assert!(!matches!(self, Command::Authorized { .. }), "a command has one caller");
        Command::Authorized { caller, command: Box::new(self) }
    }

    /// Returns the caller and the command without it.
    pub fn split(&self) -> (Option<&Caller>, &Command) {
        match self {
            Command::Authorized { caller, command } => (Some(caller), command),
            command => (None, command),
        }
    }

    /// Whether the command may need more disk space. A member with a full disk rejects such commands.
    pub fn grows(&self) -> bool {
        match self.split().1 {
            Command::Directory(change) => change.grows(),
            command => command.counts_against_quota(),
        }
    }

    /// Whether the command may grow the key space. A store with an exhausted quota rejects such commands. The quota
    /// does not limit users and roles.
    pub fn counts_against_quota(&self) -> bool {
        match self {
            Command::Put(_) | Command::LeaseGrant { .. } => true,
            Command::Txn(txn) => txn.has_put(),
            Command::Authorized { command, .. } => command.counts_against_quota(),
            Command::Directory(_)
            | Command::Authenticate { .. }
            | Command::Delete(_)
            | Command::LeaseRevoke { .. }
            | Command::LeaseCheckpoint { .. }
            | Command::Compact { .. }
            | Command::Alarm { .. } => false,
        }
    }
}

impl Operation {
    /// Whether the operation may change the key space.
    pub fn is_write(&self) -> bool {
        match self {
            Operation::Range(_) => false,
            Operation::Put(_) | Operation::Delete(_) => true,
            Operation::Txn(txn) => txn.is_write(),
        }
    }
}

impl Txn {
    /// Whether any branch of the transaction may change the key space.
    pub fn is_write(&self) -> bool {
        self.success.iter().chain(&self.failure).any(Operation::is_write)
    }

    /// Whether any branch of the transaction may grow the key space.
    pub fn has_put(&self) -> bool {
        self.success.iter().chain(&self.failure).any(|operation| match operation {
            Operation::Put(_) => true,
            Operation::Txn(txn) => txn.has_put(),
            Operation::Range(_) | Operation::Delete(_) => false,
        })
    }
}
