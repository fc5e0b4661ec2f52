//! What the replicated log carries: every change of the key space as data.

mod codec;

use bytes::Bytes;

pub use codec::CorruptCommand;

use crate::directory::{Caller, DirectoryChange};
use crate::range::Range;
use crate::{LeaseId, Revision, Span};

/// One entry of the replicated log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Writes one key.
    Put(Put),
    /// Deletes the keys of a span.
    Delete(Delete),
    /// Compares, then does one of two lists of operations.
    Txn(Txn),
    /// Makes a lease.
    LeaseGrant {
        /// Its id, chosen by the proposer.
        id: LeaseId,
        /// Its time to live.
        ttl_seconds: i64,
    },
    /// Ends a lease and deletes its keys.
    LeaseRevoke {
        /// The lease.
        id: LeaseId,
    },
    /// Records how long leases still have, so that a new leader does not start them over.
    LeaseCheckpoint {
        /// Pairs of lease and remaining seconds.
        remaining: Vec<(LeaseId, i64)>,
    },
    /// Forgets history before a revision.
    Compact {
        /// The oldest revision that stays readable.
        revision: Revision,
    },
    /// Raises or lowers an alarm.
    Alarm {
        /// Whether it is raised.
        change: AlarmChange,
        /// Which.
        alarm: Alarm,
        /// The member concerned; when an alarm is lowered, 0 is every member.
        member: u64,
    },
    /// Changes users or roles.
    Directory(DirectoryChange),
    /// Opens a session for a user whose password the proposer has verified.
    Authenticate {
        /// The user.
        user: String,
        /// The first part of the session's token; the entry's index is the second. Empty if the token is signed by the proposer.
        token: String,
    },
    /// A command on behalf of a caller. A bare command is anonymous.
    Authorized {
        /// Whose permissions are checked when the command is applied.
        caller: Caller,
        /// The command, which is not itself authorized.
        command: Box<Command>,
    },
}

/// Writes one key.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// The value, or none to keep the present one.
    pub value: Option<Bytes>,
    /// The lease to attach (0 detaches), or none to keep the present one.
    pub lease: Option<LeaseId>,
    /// Whether the reply carries what was there before.
    pub want_previous: bool,
}

/// Deletes the keys of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Which keys.
    pub span: Span,
    /// Whether the reply carries what was there before.
    pub want_previous: bool,
}

/// Compares, then does one of two lists of operations, in one revision.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Txn {
    /// All must hold for success.
    pub compare: Vec<Compare>,
    /// Done when all compares hold.
    pub success: Vec<Operation>,
    /// Done otherwise.
    pub failure: Vec<Operation>,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads; sees the transaction's own writes before it.
    Range(Range),
    /// Writes a key.
    Put(Put),
    /// Deletes keys.
    Delete(Delete),
    /// A transaction within.
    Txn(Txn),
}

/// A condition on every key of a span; with no key there, on an absent one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Which keys.
    pub span: Span,
    /// How the key's attribute stands to the given one.
    pub relation: Relation,
    /// The attribute and what it is compared with.
    pub target: Target,
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Relation {
    Equal,
    Greater,
    Less,
    NotEqual,
}

/// What of a key is compared, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of a key's attributes")]
pub enum Target {
    Version(i64),
    CreateRevision(Revision),
    ModRevision(Revision),
    Value(Bytes),
    Lease(LeaseId),
}

/// A condition of a member that operators must act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// The store has used up its quota: nothing may grow.
    NoSpace,
    /// Members hold different data: nothing may be written.
    Corrupt,
    /// The disk of this member is full: it refuses what grows, and the others go on.
    Low,
    /// No majority of the members has room on its disk: nothing may grow.
    Full,
}

impl Alarm {
    /// What operators call it: to them every want of room is one alarm.
    #[must_use]
    pub fn kind(self) -> Self {
        match self {
            Alarm::NoSpace | Alarm::Low | Alarm::Full => Alarm::NoSpace,
            Alarm::Corrupt => Alarm::Corrupt,
        }
    }
}

/// What becomes of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmChange {
    /// It is raised.
    Raise,
    /// It is lowered.
    Lower,
}

impl Command {
    /// The command on behalf of a caller.
    #[must_use]
    pub fn authorized(self, caller: Caller) -> Self {
        debug_assert!(!matches!(self, Command::Authorized { .. }), "a command has one caller");
        Command::Authorized { caller, command: Box::new(self) }
    }

    /// The caller and the bare command.
    pub fn split(&self) -> (Option<&Caller>, &Command) {
        match self {
            Command::Authorized { caller, command } => (Some(caller), command),
            command => (None, command),
        }
    }

    /// Whether the command may need more room on disk: what a member with a full disk refuses.
    pub fn grows(&self) -> bool {
        match self.split().1 {
            Command::Directory(change) => change.grows(),
            command => command.counts_against_quota(),
        }
    }

    /// Whether the command may make the key space grow: what a store that has used up its quota refuses. Users and roles
    /// are not limited by the quota.
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

    /// Whether any branch of the transaction may make the key space grow.
    pub fn has_put(&self) -> bool {
        self.success.iter().chain(&self.failure).any(|operation| match operation {
            Operation::Put(_) => true,
            Operation::Txn(txn) => txn.has_put(),
            Operation::Range(_) | Operation::Delete(_) => false,
        })
    }
}
