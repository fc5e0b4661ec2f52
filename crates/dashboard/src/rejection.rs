//! Reasons to reject a request, as Status objects.

use apimachinery::{Value, json, value};
use http::StatusCode;

use crate::credentials::SignInError;
use crate::forward::ForwardError;
use crate::origin::OriginError;

/// A rejected request. The message is shown to the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Rejection {
    #[error("the page does not exist")]
    NotFound,
    #[error("the method {0} is not supported here")]
    Method(http::Method),
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error("sign in first: there is no session, or it has expired")]
    NoSession,
    #[error(transparent)]
    SignIn(#[from] SignInError),
    #[error("the server rejected the credentials: {0}")]
    Rejected(String),
    #[error("the credentials are not accepted: the server would treat the user as {0:?}")]
    Anonymous(String),
    #[error("there are too many sessions; sign out of another one or try again later")]
    TooManySessions,
    #[error("too many users are signing in; try again in a moment")]
    TooManySignIns,
    #[error("this session has too many open streams; close another page of the dashboard")]
    TooManyStreams,
    #[error("too many event chains are open; close another page of the dashboard")]
    TooManyChains,
    #[error(transparent)]
    Forward(#[from] ForwardError),
    #[error("the request body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the request body was not received in time")]
    SlowBody,
    #[error("the request body could not be read")]
    Body,
    /// An error of the API client, which names the unreachable server.
    #[error("{0}")]
    Unreachable(String),
    #[error("the API server did not respond in time")]
    Timeout,
    #[error("{0}")]
    Query(String),
    /// A Status of the API server.
    #[error("{message}")]
    Server { code: StatusCode, reason: String, message: String },
}

impl Rejection {
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Origin(_) => StatusCode::FORBIDDEN,
            Self::NoSession | Self::Rejected(_) | Self::Anonymous(_) => StatusCode::UNAUTHORIZED,
            Self::SignIn(_) | Self::Body | Self::Query(_) => StatusCode::BAD_REQUEST,
            Self::Forward(error) => error.code(),
            Self::TooManySessions | Self::TooManySignIns | Self::TooManyStreams | Self::TooManyChains => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::Unreachable(_) => StatusCode::BAD_GATEWAY,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Server { code, .. } => *code,
        }
    }

    /// The reason of the Status, by which the user interface distinguishes a missing session from a missing right.
    fn reason(&self) -> &str {
        match self {
            Self::NoSession => "NoSession",
            Self::Unreachable(_) | Self::Timeout => "ServiceUnavailable",
            Self::Server { reason, .. } => reason,
            _ => self.code().canonical_reason().unwrap_or_default(),
        }
    }

    /// Returns the Status as JSON.
    pub(crate) fn body(&self) -> Vec<u8> {
        let (message, code) = (self.to_string(), i64::from(self.code().as_u16()));
        let reason: Value = self.reason().into();
        json::to_vec(&value!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        }))
    }
}
