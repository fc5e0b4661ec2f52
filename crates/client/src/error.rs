//! Request errors and their classification.

use std::time::Duration;

use apimachinery::status::{Reason, Status};
use apimachinery::{json, serde_bridge};

use crate::object_ref::TargetError;
use crate::transport::TransportError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server rejected the request.
    #[error(transparent)]
    Status(Box<Status>),
    /// The target has no valid path.
    #[error("the request target is invalid")]
    Target(#[from] TargetError),
    /// The request is not valid HTTP.
    #[error("the request is not valid HTTP")]
    Request(#[from] http::Error),
    #[error("the API server cannot be reached")]
    Transport(#[from] TransportError),
    /// No response arrived in time. The request may have had an effect.
    #[error("the API server did not respond within {0:?}")]
    Timeout(Duration),
    #[error("failed to parse the response of the API server")]
    Response(#[from] ResponseError),
}

/// A response cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    #[error("not JSON")]
    Syntax(#[from] json::Error),
    /// The response does not match the requested type.
    #[error("not of the expected type")]
    Type(#[from] serde_bridge::Error),
    /// The response exceeds the maximum size.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// The response is JSON of an unexpected form.
    #[error("{0}")]
    Unexpected(String),
    #[error("the stream ends in the middle of an event")]
    Truncated,
}

impl Error {
    /// Returns the server's Status, if the server rejected the request.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.is(&Reason::NotFound)
    }

    /// Whether the object changed since it was read. The caller must read it again.
    pub fn is_conflict(&self) -> bool {
        self.is(&Reason::Conflict)
    }

    pub fn is_already_exists(&self) -> bool {
        self.is(&Reason::AlreadyExists)
    }

    /// Whether the object is invalid. The same request fails again.
    pub fn is_invalid(&self) -> bool {
        self.is(&Reason::Invalid)
    }

    pub fn is_forbidden(&self) -> bool {
        self.is(&Reason::Forbidden)
    }

    /// Whether the requested version was compacted. The caller must list again.
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.is(&Reason::Expired) || status.is(&Reason::Gone))
    }

    /// Returns the delay until the server allows a retry.
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
