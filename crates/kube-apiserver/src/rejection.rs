//! Reasons why the handler chain rejects a request.

use api_registry::negotiate::ResponseFormat;
use apimachinery::status::Status;

use crate::request_info::RequestInfo;
use crate::response::{self, HttpResponse, PLAIN};

/// Reasons to reject a request.
pub enum Rejection {
    Status(Box<Status>),
    /// 429 with Retry-After in seconds.
    TooManyRequests(u32),
    /// The audit event could not be written, and the audit backend's mode is `blocking-strict`.
    AuditFailed,
    /// 404 for a path that does not exist.
    NotFound,
}

impl Rejection {
    /// Returns the response to the client.
    pub fn into_response(self, request: &RequestInfo) -> HttpResponse {
        match self {
            Self::Status(status) => response::status(&status, ResponseFormat { pretty: request.is_pretty(), ..PLAIN }),
            Self::TooManyRequests(seconds) => response::too_many(seconds),
            Self::AuditFailed => {
                let path = apimachinery::go::quote(&request.uri.to_string());
                response::text(500, format!("Internal Server Error: {path}: failed to store audit event\n"))
            }
            Self::NotFound => response::text(404, "404 page not found\n"),
        }
    }
}

impl From<Status> for Rejection {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}
