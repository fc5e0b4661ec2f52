//! Errors of CRI requests and their gRPC status codes.

use std::error::Error as _;

use pod_network::NetworkError;
use tonic::{Code, Status};

use crate::cdi::CdiError;
use crate::spec::SpecError;
use crate::user::UserError;

/// A CRI request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{kind} {id:?} not found")]
    NotFound { kind: &'static str, id: String },
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The request is not possible in the current state.
    #[error("{0}")]
    State(String),
    #[error("{0}")]
    Deadline(String),
    #[error("{0}")]
    Unsupported(&'static str),
    #[error("cannot {what}")]
    Io {
        /// Description of the failed operation.
        what: String,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Shim(#[from] container_shim::ClientError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Cdi(#[from] CdiError),
    #[error(transparent)]
    User(#[from] UserError),
    #[error(transparent)]
    Image(#[from] image_store::StoreError),
    #[error(transparent)]
    Build(#[from] image_store::BuildError),
    #[error(transparent)]
    Pull(#[from] image_store::PullError),
    #[error(transparent)]
    Name(#[from] image_store::NameError),
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl Error {
    /// Converts an I/O error with a description of the operation.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    fn code(&self) -> Code {
        match self {
            Error::NotFound { .. } => Code::NotFound,
            Error::Invalid(_) | Error::Name(_) | Error::Spec(_) | Error::Cdi(_) | Error::User(_) => {
                Code::InvalidArgument
            }
            Error::State(_) => Code::FailedPrecondition,
            Error::Deadline(_) => Code::DeadlineExceeded,
            Error::Unsupported(_) => Code::Unimplemented,
            Error::Pull(error) if error.is_not_found() => Code::NotFound,
            Error::Pull(error) if error.is_unauthorized() => Code::PermissionDenied,
            Error::Pull(_) => Code::Unavailable,
            Error::Io { .. } | Error::Shim(_) | Error::Image(_) | Error::Build(_) | Error::Network(_) => Code::Unknown,
        }
    }

    /// Formats the error with its sources in one line.
    pub fn describe(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(next) = cause {
            let message = next.to_string();
            if !text.contains(&message) {
                text = format!("{text}: {message}");
            }
            cause = next.source();
        }
        text
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        Status::new(error.code(), error.describe())
    }
}
