//! `Status`: how the API answers when there is no object to answer with.

mod make;

use crate::field::Cause;
use crate::{Object, Value};

/// The outcome of a request. As an error its message is all it says.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// Whether the request succeeded.
    pub success: bool,
    /// What people are told.
    pub message: String,
    /// What machines are told.
    pub reason: Reason,
    /// What it is about, if there is more to tell.
    pub details: Option<Box<Details>>,
    /// The HTTP status code.
    pub code: u16,
    /// Where an expired list may go on all the same; mostly empty.
    pub continue_token: String,
}

/// What a failure is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The name of the object.
    pub name: String,
    /// The group of the resource or kind.
    pub group: String,
    /// The resource (`pods`), or the kind (`Pod`) where the object is at fault.
    pub kind: String,
    /// The unique identifier of the object.
    pub uid: String,
    /// All that is wrong.
    pub causes: Vec<Cause>,
    /// When it makes sense to try again; zero if that is not told.
    pub retry_after_seconds: u32,
}

/// A group and a resource or kind in it: `deployments` in `apps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupName<'a> {
    /// The group, empty for the oldest one.
    pub group: &'a str,
    /// The resource or kind.
    pub name: &'a str,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal),* $(,)?) => {
        /// Why a request failed, for machines. Each has one HTTP status code.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub enum Reason {
            /// None given.
            #[default]
            Unknown,
            $($(#[doc = $doc])* $name,)*
            /// One that only an extension or another version knows.
            Other(String),
        }

        impl Reason {
            /// All that Kubernetes has.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name on the wire, empty if unknown.
            pub fn name(&self) -> &str {
                match self {
                    Self::Unknown => "",
                    $(Self::$name => stringify!($name),)*
                    Self::Other(name) => name,
                }
            }

            /// The HTTP status code that goes with it.
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
    /// Who the client is cannot be told.
    Unauthorized = 401,
    /// The client may not do this, now or ever.
    Forbidden = 403,
    /// What it is about does not exist.
    NotFound = 404,
    /// What was to be created exists.
    AlreadyExists = 409,
    /// The object is not as the client believed.
    Conflict = 409,
    /// What it is about existed and does no more.
    Gone = 410,
    /// The object is not valid.
    Invalid = 422,
    /// The server could not finish and asks to try again.
    ServerTimeout = 500,
    /// What is stored cannot be read.
    StoreReadError = 500,
    /// The server gave up waiting; the request may have had an effect.
    Timeout = 504,
    /// The client asks too much at once.
    TooManyRequests = 429,
    /// The request makes no sense.
    BadRequest = 400,
    /// The resource knows no such verb.
    MethodNotAllowed = 405,
    /// None of the encodings that the client accepts can be had.
    NotAcceptable = 406,
    /// The request is too large.
    RequestEntityTooLarge = 413,
    /// The encoding of the request is not known.
    UnsupportedMediaType = 415,
    /// Something broke that must not.
    InternalError = 500,
    /// The version that the client asked for is no longer kept.
    Expired = 410,
    /// The service is not there now.
    ServiceUnavailable = 503,
}

impl Status {
    /// The object as it goes to clients.
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

    /// Reads the object. `None` if it is not a `Status`.
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

    /// When the client should try again, if the server says so.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0 || self.reason == Reason::ServerTimeout).then_some(seconds)
    }

    /// Whether it has this reason, or none that is known and the reason's code.
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
