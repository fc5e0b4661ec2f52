//! Mapping of errors to etcd's gRPC status.

use mvcc::DirectoryError;
use tonic::{Code, Status};

use crate::backend::BackendError;

/// Returns the status of an error of the key-value store.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` needs")]
pub(super) fn of_mvcc(error: mvcc::Error) -> Status {
    let code = match &error {
        mvcc::Error::Compacted { .. } | mvcc::Error::FutureRevision => Code::OutOfRange,
        mvcc::Error::NoSpace => Code::ResourceExhausted,
        mvcc::Error::Corrupt => Code::DataLoss,
        mvcc::Error::KeyNotFound => Code::InvalidArgument,
        mvcc::Error::LeaseNotFound(_) => Code::NotFound,
        mvcc::Error::LeaseExists(_) => Code::FailedPrecondition,
        mvcc::Error::Directory(error) => return of_directory(*error),
        mvcc::Error::AlreadyApplied { .. } => Code::Internal,
    };
    Status::new(code, error.to_string())
}

/// Returns the status of an error about users or roles.
pub(super) fn of_directory(error: DirectoryError) -> Status {
    use DirectoryError as E;
    let code = match error {
        E::UserEmpty | E::RoleEmpty | E::InvalidManagement | E::AuthFailed | E::OldRevision => Code::InvalidArgument,
        E::PermissionDenied => Code::PermissionDenied,
        E::UserExists
        | E::UserNotFound
        | E::RoleExists
        | E::RoleNotFound
        | E::RoleNotGranted
        | E::PermissionNotGranted
        | E::RootUserNotFound
        | E::RootRoleNotGranted
        | E::NotEnabled => Code::FailedPrecondition,
    };
    Status::new(code, error.to_string())
}

/// Returns the status of a cluster error.
pub(super) fn of_backend(error: BackendError) -> Status {
    use BackendError as E;
    let code = match error {
        E::NoLeader | E::LeaderChanged | E::Timeout | E::Stopped | E::Unhealthy => Code::Unavailable,
        E::TooManyRequests | E::NoSpace => Code::ResourceExhausted,
        E::TooLarge | E::BadUrls => Code::InvalidArgument,
        E::MemberNotFound => Code::NotFound,
        // Clients switch to another member only on exactly this status.
        E::Learner
        | E::NotLeader
        | E::BadTransferee
        | E::MemberExists
        | E::PeerUrlExists
        | E::NotEnoughStarted
        | E::NotLearner
        | E::LearnerNotReady
        | E::TooManyLearners => Code::FailedPrecondition,
    };
    Status::new(code, error.to_string())
}

/// Returns the status of an invalid request.
pub(super) fn invalid(text: &'static str) -> Status {
    Status::invalid_argument(text)
}
