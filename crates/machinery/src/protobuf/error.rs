//! Why bytes are not the message that they should be, or a tree does not fit its schema, and where.

use crate::{GroupVersionKind, Path, json, quantity, time};

/// What is wrong, and with which field.
#[derive(Debug, thiserror::Error)]
#[error("{}{problem}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct Error {
    /// The path of the field in JSON; empty for the object itself.
    pub path: String,
    /// What is wrong with it.
    #[source]
    pub problem: Box<Problem>,
}

/// What can be wrong.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The bytes end in the middle of something.
    #[error("the message ends too early")]
    Truncated,
    /// A number has more bytes than any number needs.
    #[error("a number has too many bytes")]
    Overlong,
    /// The number of a field is zero or too large.
    #[error("a field has an illegal number")]
    Tag,
    /// A group ends that never began.
    #[error("a group ends that did not begin")]
    Group,
    /// A known field is encoded in an unexpected way.
    #[error("wrong wire type {found}, expected {expected}")]
    WireType {
        /// The way that belongs to the field's type.
        expected: u8,
        /// The way that is there.
        found: u8,
    },
    /// More lists and objects inside each other than [`super::DEPTH_MAX`].
    #[error("nested too deeply")]
    Depth,
    /// A number is none, or infinite, which JSON has no way to write.
    #[error("a number is not finite")]
    NotFinite,
    /// An embedded document is not JSON.
    #[error("embedded JSON is invalid")]
    Json(#[from] json::Error),
    /// A text is not a quantity.
    #[error("invalid quantity")]
    Quantity(#[from] quantity::Error),
    /// A text is not a time.
    #[error("invalid time")]
    Time(#[from] time::Error),
    /// A text is not base64.
    #[error("invalid base64")]
    Base64(#[from] base64::DecodeError),
    /// An int-or-string is neither.
    #[error("an int-or-string says it is of type {0}")]
    IntOrString(i64),
    /// The bytes of an object do not start as all objects do.
    #[error("an object does not start with the bytes k8s\\0")]
    Magic,
    /// An object's envelope says a version that is none.
    #[error("invalid apiVersion")]
    Version(#[from] crate::gvk::InvalidGroupVersion),
    /// An object inside of another one is of a kind that nobody knows.
    #[error("no kind {0} is known")]
    Kind(GroupVersionKind),
    /// A value does not have the type of its field.
    #[error("{found} where {expected} is expected")]
    Type {
        /// What Go calls the type of the field.
        expected: String,
        /// What JSON calls the value.
        found: &'static str,
    },
    /// A number does not fit its type.
    #[error("{0} does not fit 32 bits")]
    Range(i64),
}

impl Error {
    pub(super) fn new(path: &Path<'_>, problem: impl Into<Problem>) -> Self {
        Self { path: path.to_string(), problem: Box::new(problem.into()) }
    }
}
