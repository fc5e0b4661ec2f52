//! Errors of commands and queries. The messages are etcd's, because clients match on them.

use crate::directory::DirectoryError;
use crate::{LeaseId, Revision};

/// A request that the state rejected; it changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted {
        /// The oldest readable revision.
        compact_revision: Revision,
    },
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// The NOSPACE alarm is raised.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// The CORRUPT alarm is raised.
    #[error("etcdserver: corrupt cluster")]
    Corrupt,
    /// A put that keeps the value or lease found no key.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound(LeaseId),
    #[error("etcdserver: lease already exists")]
    LeaseExists(LeaseId),
    /// An error about users or roles.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The log entry is not newer than the last applied one.
    #[error("entry {index} is already applied")]
    AlreadyApplied {
        /// The log index of the entry.
        index: u64,
    },
}
