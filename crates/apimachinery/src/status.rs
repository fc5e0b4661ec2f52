//! `Status`: the API response without an object, such as an error.

mod make;

use crate::field::Cause;
use crate::{Object, Value};

/// The result of a request. As an error it displays its message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    pub success: bool,
    /// The human-readable message.
    pub message: String,
    /// The machine-readable reason.
    pub reason: Reason,
    pub details: Option<Box<Details>>,
    pub code: u16,
    /// `metadata.continue` of an expired list: the token to continue at the latest revision. Usually empty.
    pub continue_token: String,
}

/// The object that a failure refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    /// The group of the resource or kind.
    pub group: String,
    /// The resource (`pods`), or the kind (`Pod`) if the object is invalid.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    /// Zero if the client is not asked to retry.
    pub retry_after_seconds: u32,
}

/// A group and a resource or kind in it: `deployments` in `apps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupName<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// The resource or kind.
    pub name: &'a str,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal),* $(,)?) => {
        /// The machine-readable reason of a failure. Each reason has one HTTP status code.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub enum Reason {
            /// No reason given.
            #[default]
            Unknown,
            $($(#[doc = $doc])* $name,)*
            /// A reason of an extension or of another version.
            Other(String),
        }

        impl Reason {
            /// All reasons of Kubernetes.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the name on the wire, empty if unknown.
            pub fn name(&self) -> &str {
                match self {
                    Self::Unknown => "",
                    $(Self::$name => stringify!($name),)*
                    Self::Other(name) => name,
                }
            }

            pub const fn code(&self) -> u16 {
                match self {
                    Self::Unknown | Self::Other(_) => 500,
                    $(Self::$name => $code,)*
                }
            }

            fn of(name: &str) -> Self {
                match name {
                    "" => Self::Unknown,
                    $(stringify!($name) => Self::$name,)*
                    _ => Self::Other(name.to_owned()),
                }
            }
        }
    };
}

reasons! {
    /// The client is not authenticated.
    Unauthorized = 401,
    /// The client is not allowed to do this.
    Forbidden = 403,
    /// The object or resource does not exist.
    NotFound = 404,
    /// The object to create already exists.
    AlreadyExists = 409,
    /// The object was changed, or a condition of the request does not hold.
    Conflict = 409,
    /// The resource existed and is no longer available.
    Gone = 410,
    /// The object is invalid.
    Invalid = 422,
    /// The server could not complete the request in time; the client should retry.
    ServerTimeout = 500,
    /// The stored object cannot be decoded.
    StoreReadError = 500,
    /// The request timed out; it may have had an effect.
    Timeout = 504,
    /// The client sends too many requests.
    TooManyRequests = 429,
    /// The request is malformed.
    BadRequest = 400,
    /// The resource does not support the verb.
    MethodNotAllowed = 405,
    /// The server supports none of the encodings that the client accepts.
    NotAcceptable = 406,
    /// The request is too large.
    RequestEntityTooLarge = 413,
    /// The encoding of the request is not supported.
    UnsupportedMediaType = 415,
    /// An internal error.
    InternalError = 500,
    /// The requested resource version is no longer available.
    Expired = 410,
    /// The service is temporarily unavailable.
    ServiceUnavailable = 503,
}

impl Status {
    /// Returns the object in the form sent to clients.
    pub fn to_value(&self) -> Value {
        let mut out = Object::with_capacity(8);
        out.insert("apiVersion", "v1");
        out.insert("kind", "Status");
        let mut metadata = Object::new();
        insert_text(&mut metadata, "continue", &self.continue_token);
        out.insert("metadata", metadata);
        out.insert("status", if self.success { "Success" } else { "Failure" });
        insert_text(&mut out, "message", &self.message);
        insert_text(&mut out, "reason", self.reason.name());
        if let Some(details) = &self.details {
            out.insert("details", details.to_object());
        }
        if self.code != 0 {
            out.insert("code", i32::from(self.code));
        }
        Value::Object(out)
    }

    /// Parses a `Status` object. `None` if the value is not a `Status`.
    pub fn from_value(value: &Value) -> Option<Self> {
        if value.str_at(&["kind"]) != Some("Status") {
            return None;
        }
        Some(Self {
            success: value.str_at(&["status"]) == Some("Success"),
            message: text(value, "message"),
            reason: Reason::of(value.str_at(&["reason"]).unwrap_or_default()),
            details: value.get("details").filter(|details| !details.is_null()).map(Details::of).map(Box::new),
            code: value.get("code").and_then(Value::as_int).and_then(|code| code.try_into().ok()).unwrap_or(0),
            continue_token: value.str_at(&["metadata", "continue"]).unwrap_or_default().to_owned(),
        })
    }

    /// Returns the retry delay, if the server set one.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0 || self.reason == Reason::ServerTimeout).then_some(seconds)
    }

    /// Whether the status has this reason, or an unknown reason and this reason's code.
    pub fn is(&self, reason: &Reason) -> bool {
        let unknown = matches!(self.reason, Reason::Unknown | Reason::Other(_));
        self.reason == *reason || unknown && !self.success && self.code == reason.code()
    }
}

impl Details {
    fn to_object(&self) -> Object {
        let mut out = Object::with_capacity(4);
        insert_text(&mut out, "name", &self.name);
        insert_text(&mut out, "group", &self.group);
        insert_text(&mut out, "kind", &self.kind);
        insert_text(&mut out, "uid", &self.uid);
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self.causes.iter().map(|cause| Value::Object(cause_object(cause))).collect();
            out.insert("causes", causes);
        }
        if self.retry_after_seconds != 0 {
            out.insert("retryAfterSeconds", self.retry_after_seconds);
        }
        out
    }

    fn of(value: &Value) -> Self {
        let causes = value.get("causes").and_then(Value::as_array).unwrap_or_default();
        let cause = |value| Cause {
            reason: text(value, "reason"),
            message: text(value, "message"),
            field: text(value, "field"),
        };
        let retry = value.get("retryAfterSeconds").and_then(Value::as_int);
        Self {
            name: text(value, "name"),
            group: text(value, "group"),
            kind: text(value, "kind"),
            uid: text(value, "uid"),
            causes: causes.iter().map(cause).collect(),
            retry_after_seconds: retry.and_then(|seconds| seconds.try_into().ok()).unwrap_or(0),
        }
    }
}

fn cause_object(cause: &Cause) -> Object {
    let mut out = Object::with_capacity(3);
    insert_text(&mut out, "reason", &cause.reason);
    insert_text(&mut out, "message", &cause.message);
    insert_text(&mut out, "field", &cause.field);
    out
}

fn insert_text(object: &mut Object, key: &str, text: &str) {
    if !text.is_empty() {
        object.insert(key, text);
    }
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
