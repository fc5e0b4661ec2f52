//! How a request fails, and what a caller can make of it.

use std::time::Duration;

use machinery::status::{Reason, Status};
use machinery::{bridge, json};

use crate::target::TargetError;
use crate::transport::TransportError;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused it.
    #[error(transparent)]
    Status(Box<Status>),
    /// There is no such path.
    #[error("the request has no path")]
    Target(#[from] TargetError),
    /// The request is none that HTTP can carry.
    #[error("the request cannot be written")]
    Request(#[from] http::Error),
    /// The request or the answer did not get through.
    #[error("the API server cannot be reached")]
    Transport(#[from] TransportError),
    /// No answer came in time. The request may have had an effect.
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
    /// The server answered something that cannot be read.
    #[error("the answer of the API server cannot be read")]
    Answer(#[from] AnswerError),
}

/// Why an answer cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// It is no JSON.
    #[error("not JSON")]
    Syntax(#[from] json::Error),
    /// It does not have the shape of the type that the caller asked for.
    #[error("not of the expected type")]
    Type(#[from] bridge::Error),
    /// It is larger than this client takes.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// It is JSON, but not what was asked for.
    #[error("{0}")]
    Unexpected(String),
    /// It ended in the middle of an event.
    #[error("the stream ends in the middle of an event")]
    Truncated,
}

impl Error {
    /// The server's own words, if it was the server that refused.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is(&Reason::NotFound)
    }

    /// The object is not as the caller believed: observe it again.
    pub fn is_conflict(&self) -> bool {
        self.is(&Reason::Conflict)
    }

    /// The object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.is(&Reason::AlreadyExists)
    }

    /// The object is not valid; the same request will fail again.
    pub fn is_invalid(&self) -> bool {
        self.is(&Reason::Invalid)
    }

    /// The caller may not do this.
    pub fn is_forbidden(&self) -> bool {
        self.is(&Reason::Forbidden)
    }

    /// The version asked for is no longer kept: list again.
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.is(&Reason::Expired) || status.is(&Reason::Gone))
    }

    /// When the server asks to try again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.status()?.retry_after_seconds().map(|seconds| Duration::from_secs(seconds.into()))
    }

    fn is(&self, reason: &Reason) -> bool {
        self.status().is_some_and(|status| status.is(reason))
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}
