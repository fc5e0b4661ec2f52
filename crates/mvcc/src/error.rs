//! Why a command or a query could not be done; the texts are etcd's, because clients match on them.

use crate::directory::DirectoryError;
use crate::{LeaseId, Revision};

/// A request the state refused; it changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The revision was compacted away.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted {
        /// The oldest revision still readable.
        compact_revision: Revision,
    },
    /// The revision does not exist yet.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// The space alarm is raised.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// The corruption alarm is raised.
    #[error("etcdserver: corrupt cluster")]
    Corrupt,
    /// A put that keeps the value or lease found no key.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    /// There is no such lease.
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound(LeaseId),
    /// The lease exists already.
    #[error("etcdserver: lease already exists")]
    LeaseExists(LeaseId),
    /// Users or roles are not as they would have to be.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The log entry is not newer than what was applied.
    #[error("entry {index} was applied already")]
    AlreadyApplied {
        /// The entry's index.
        index: u64,
    },
}
