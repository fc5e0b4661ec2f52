//! Constructors of every `Status` that upstream returns, with upstream's messages.

use std::fmt;

use super::{Details, GroupName, Reason, Status};
use crate::field::{self, Cause};
use crate::go;

impl<'a> GroupName<'a> {
    pub const fn new(group: &'a str, name: &'a str) -> Self {
        Self { group, name }
    }

    const fn is_empty(self) -> bool {
        self.group.is_empty() && self.name.is_empty()
    }
}

impl fmt::Display for GroupName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            "" => out.write_str(self.name),
            group => write!(out, "{}.{group}", self.name),
        }
    }
}

impl Status {
    /// Returns a success without details.
    pub const fn success() -> Self {
        Self {
            success: true,
            message: String::new(),
            reason: Reason::Unknown,
            details: None,
            code: 0,
            continue_token: String::new(),
        }
    }

    /// Returns a failure with the reason's HTTP status code.
    pub fn failure(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            success: false,
            message: message.into(),
            code: reason.code(),
            reason,
            details: None,
            continue_token: String::new(),
        }
    }

    #[must_use]
    pub fn with_details(self, details: Details) -> Self {
        Self { details: Some(Box::new(details)), ..self }
    }

    /// Returns 404, like upstream's `NewNotFound`.
    pub fn not_found(resource: GroupName<'_>, name: &str) -> Self {
        let message = format!("{resource} {} not found", go::quote(name));
        Self::failure(Reason::NotFound, message).about(resource, name)
    }

    /// Returns 409, like upstream's `NewAlreadyExists`.
    pub fn already_exists(resource: GroupName<'_>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", go::quote(name));
        Self::failure(Reason::AlreadyExists, message).about(resource, name)
    }

    /// Returns 409 for a `generateName` without a free name, like upstream's `NewGenerateNameConflict`.
    pub fn generate_name_conflict(resource: GroupName<'_>, name: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            go::quote(name)
        );
        Self::failure(Reason::AlreadyExists, message).about(resource, name).retry(retry_after_seconds)
    }

    /// Returns 401, like upstream's `NewUnauthorized`.
    pub fn unauthorized(message: &str) -> Self {
        Self::failure(Reason::Unauthorized, if message.is_empty() { "not authorized" } else { message })
    }

    /// Returns 403, like upstream's `NewForbidden`. Resource and name are empty for non-resource requests.
    pub fn forbidden(resource: GroupName<'_>, name: &str, cause: impl fmt::Display) -> Self {
        let message = match name {
            _ if resource.is_empty() => format!("forbidden: {cause}"),
            "" => format!("{resource} is forbidden: {cause}"),
            _ => format!("{resource} {} is forbidden: {cause}", go::quote(name)),
        };
        Self::failure(Reason::Forbidden, message).about(resource, name)
    }

    /// Returns 409 for an outdated object or a failed precondition, like upstream's `NewConflict`.
    pub fn conflict(resource: GroupName<'_>, name: &str, cause: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {cause}", go::quote(name));
        Self::failure(Reason::Conflict, message).about(resource, name)
    }

    /// Returns 409 for fields that other managers own, like upstream's `NewApplyConflict`.
    pub fn apply_conflict(causes: Vec<Cause>, message: impl Into<String>) -> Self {
        Self::failure(Reason::Conflict, message).with_details(Details { causes, ..Details::default() })
    }

    /// Returns 410, like upstream's `NewGone`.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::failure(Reason::Gone, message)
    }

    /// Returns 410 for a compacted resource version, like upstream's `NewResourceExpired`.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(Reason::Expired, message)
    }

    /// Returns 422 with one cause per error, like upstream's `NewInvalid`.
    pub fn invalid(kind: GroupName<'_>, name: &str, errors: &[field::Error]) -> Self {
        let message = match field::aggregate(errors) {
            Some(all) => format!("{kind} {} is invalid: {all}", go::quote(name)),
            None => format!("{kind} {} is invalid", go::quote(name)),
        };
        let causes = errors.iter().map(field::Error::cause).collect();
        let status = Self::failure(Reason::Invalid, message).about(kind, name);
        status.detailed(|details| details.causes = causes)
    }

    /// Returns 400, like upstream's `NewBadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(Reason::BadRequest, message)
    }

    /// Returns 429 with a retry delay, like upstream's `NewTooManyRequests`.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(Reason::TooManyRequests, message).retry(retry_after_seconds)
    }

    /// Returns 429 for an overloaded server, like upstream's `NewTooManyRequestsError`.
    pub fn overloaded(message: &str) -> Self {
        Self::failure(Reason::TooManyRequests, format!("Too many requests: {message}"))
    }

    /// Returns 503, like upstream's `NewServiceUnavailable`.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(Reason::ServiceUnavailable, message)
    }

    /// Returns 405, like upstream's `NewMethodNotSupported`.
    pub fn method_not_supported(resource: GroupName<'_>, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind {}", go::quote(&resource.to_string()));
        Self::failure(Reason::MethodNotAllowed, message).about(resource, "")
    }

    /// Returns 500 for a request that the client should retry, like upstream's `NewServerTimeout`.
    pub fn server_timeout(resource: GroupName<'_>, operation: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::failure(Reason::ServerTimeout, message).about(resource, operation).retry(retry_after_seconds)
    }

    /// Returns 504 for a request that may have had an effect, like upstream's `NewTimeoutError`.
    pub fn timeout(message: &str, retry_after_seconds: u32) -> Self {
        Self::failure(Reason::Timeout, format!("Timeout: {message}")).retry(retry_after_seconds)
    }

    /// Returns 500, like upstream's `NewInternalError`.
    pub fn internal_error(cause: impl fmt::Display) -> Self {
        let cause = cause.to_string();
        let status = Self::failure(Reason::InternalError, format!("Internal error occurred: {cause}"));
        status.detailed(|details| details.causes = vec![Cause { message: cause, ..Cause::default() }])
    }

    /// Returns 413, like upstream's `NewRequestEntityTooLargeError`.
    pub fn request_entity_too_large(message: &str) -> Self {
        Self::failure(Reason::RequestEntityTooLarge, format!("Request entity too large: {message}"))
    }

    /// Returns 406: the server supports none of the encodings that the client accepts.
    pub fn not_acceptable(accepted: &[impl AsRef<str>]) -> Self {
        let accepted: Vec<_> = accepted.iter().map(AsRef::as_ref).collect();
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::failure(Reason::NotAcceptable, message)
    }

    /// Returns 415: the server does not support the encoding of the request.
    pub fn unsupported_media_type(accepted: &[impl AsRef<str>]) -> Self {
        let accepted: Vec<_> = accepted.iter().map(AsRef::as_ref).collect();
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::failure(Reason::UnsupportedMediaType, message)
    }

    /// Returns the generic status of an HTTP status code, for a response without a `Status` object. `method` is the
    /// method of the request, `server_message` the body of the response.
    pub fn generic(code: u16, method: &str, resource: GroupName<'_>, name: &str, server_message: &str) -> Self {
        let (reason, mut message) = generic_error(code, method, server_message);
        let verb = method.to_lowercase();
        if !resource.is_empty() && !name.is_empty() {
            message = format!("{message} ({verb} {resource} {name})");
        } else if !resource.is_empty() {
            message = format!("{message} ({verb} {resource})");
        }
        Self { code, ..Self::failure(reason, message).about(resource, name) }
    }

    fn about(self, resource: GroupName<'_>, name: &str) -> Self {
        self.detailed(|details| {
            details.group = resource.group.to_owned();
            details.kind = resource.name.to_owned();
            details.name = name.to_owned();
        })
    }

    fn retry(self, after_seconds: u32) -> Self {
        self.detailed(|details| details.retry_after_seconds = after_seconds)
    }

    fn detailed(mut self, change: impl FnOnce(&mut Details)) -> Self {
        change(self.details.get_or_insert_default());
        self
    }
}

fn generic_error(code: u16, method: &str, server_message: &str) -> (Reason, String) {
    let server_text = || server_message.to_owned();
    let (reason, message) = match code {
        400 => (Reason::BadRequest, "the server rejected our request for an unknown reason"),
        401 => (Reason::Unauthorized, "the server has asked for the client to provide credentials"),
        403 => return (Reason::Forbidden, server_text()),
        404 => (Reason::NotFound, "the server could not find the requested resource"),
        405 => (Reason::MethodNotAllowed, "the server does not allow this method on the requested resource"),
        406 if !matches!(server_message, "" | "unknown") => return (Reason::NotAcceptable, server_text()),
        406 => (Reason::NotAcceptable, "the server was unable to respond with a content type that the client supports"),
        409 if method == "POST" => (Reason::AlreadyExists, "the server reported a conflict"),
        409 => (Reason::Conflict, "the server reported a conflict"),
        415 => return (Reason::UnsupportedMediaType, server_text()),
        422 => (Reason::Invalid, "the server rejected our request due to an error in our request"),
        429 => {
            (Reason::TooManyRequests, "the server has received too many requests and has asked us to try again later")
        }
        503 => (Reason::ServiceUnavailable, "the server is currently unable to handle the request"),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        500.. => {
            let message = format!(
                "an error on the server ({}) has prevented the request from succeeding",
                go::quote(server_message)
            );
            return (Reason::InternalError, message);
        }
        _ => {
            let message =
                format!("the server responded with the status code {code} but did not return more information");
            return (Reason::Unknown, message);
        }
    };
    (reason, message.to_owned())
}
