//! What can go wrong, and which gRPC status says so: the one place that maps the two.

use std::error::Error as _;

use tonic::{Code, Status};

use crate::cdi::CdiError;
use crate::spec::SpecError;
use crate::user::UserError;
use net::NetworkError;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such thing.
    #[error("{kind} {id:?} not found")]
    NotFound {
        /// What was looked for.
        kind: &'static str,
        /// By which name.
        id: String,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// It makes sense, but not now.
    #[error("{0}")]
    State(String),
    /// It took too long.
    #[error("{0}")]
    Deadline(String),
    /// This runtime does not do it.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The machine.
    #[error("cannot {what}")]
    Io {
        /// What failed.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The shim.
    #[error(transparent)]
    Shim(#[from] container::ClientError),
    /// The description.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Devices by name.
    #[error(transparent)]
    Cdi(#[from] CdiError),
    /// The user.
    #[error(transparent)]
    User(#[from] UserError),
    /// The images.
    #[error(transparent)]
    Image(#[from] image::StoreError),
    /// A built-in image.
    #[error(transparent)]
    Build(#[from] image::BuildError),
    /// The registry.
    #[error(transparent)]
    Pull(#[from] image::PullError),
    /// An image's name.
    #[error(transparent)]
    Name(#[from] image::NameError),
    /// The network.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl Error {
    /// An error of the machine, with what was tried.
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

    /// What failed and why, in one line.
    pub fn describe(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(next) = cause {
            let words = next.to_string();
            if !text.contains(&words) {
                text = format!("{text}: {words}");
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
