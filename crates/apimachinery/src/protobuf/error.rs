//! Errors of the protobuf decoder and encoder, with field paths.

use crate::{GroupVersionKind, Path, json, quantity, time};

/// A problem with a field.
#[derive(Debug, thiserror::Error)]
#[error("{}{problem}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct Error {
    /// The JSON path of the field; empty for the root object.
    pub path: String,
    #[source]
    pub problem: Box<Problem>,
}

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("the message is truncated")]
    Truncated,
    #[error("a number has too many bytes")]
    Overlong,
    /// A field number is zero or too large.
    #[error("a field has an illegal number")]
    Tag,
    #[error("unexpected end of a group")]
    Group,
    /// A known field has the wrong wire type.
    #[error("wrong wire type {found}, expected {expected}")]
    WireType {
        /// The wire type of the field's type.
        expected: u8,
        found: u8,
    },
    /// Lists and objects exceed [`super::DEPTH_MAX`].
    #[error("nested too deeply")]
    Depth,
    /// A number is NaN or infinite, which JSON cannot represent.
    #[error("a number is not finite")]
    NotFinite,
    #[error("embedded JSON is invalid")]
    Json(#[from] json::Error),
    #[error("invalid quantity")]
    Quantity(#[from] quantity::Error),
    #[error("invalid time")]
    Time(#[from] time::Error),
    #[error("invalid base64")]
    Base64(#[from] base64::DecodeError),
    #[error("an int-or-string has the invalid type {0}")]
    IntOrString(i64),
    #[error("an object does not start with the bytes k8s\\0")]
    Magic,
    #[error("invalid apiVersion")]
    Version(#[from] crate::gvk::InvalidGroupVersion),
    /// An embedded object has an unknown kind.
    #[error("no kind {0} is known")]
    Kind(GroupVersionKind),
    #[error("{found} where {expected} is expected")]
    Type {
        /// The Go type of the field.
        expected: String,
        /// The JSON type of the value.
        found: &'static str,
    },
    #[error("{0} does not fit 32 bits")]
    Range(i64),
}

impl Error {
    pub(super) fn new(path: &Path<'_>, problem: impl Into<Problem>) -> Self {
        Self { path: path.to_string(), problem: Box::new(problem.into()) }
    }
}
