//! Patches: JSON Patch, JSON Merge Patch and Strategic Merge Patch.
//!
//! Each is a pure function from a tree and a patch to a tree or an error. A patch is never applied partially, since it
//! consumes the tree. Server-side apply is also a patch content type, but not a function of the tree alone:
//! [`Patch::decode`] leaves it to the caller.

pub mod json;
pub mod merge;
pub mod strategic;

mod gofmt;
#[cfg(test)]
mod notation;

use crate::{Object, Schema, Str, Value};

/// Maximum nesting depth of a patched tree: the limit of [`crate::json::parse`].
pub const DEPTH_MAX: usize = 127;

/// The patch types, by content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// A merge patch that knows from the schema which lists are sets and maps.
    Strategic,
    Apply,
}

/// A patch that is parsed but not yet applied.
#[derive(Clone, Debug)]
pub enum Patch {
    /// RFC 6902.
    Json(json::Patch),
    /// RFC 7386.
    Merge(Object),
    /// A merge patch that knows from the schema which lists are sets and maps.
    Strategic(Object),
}

/// A patch was not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the body of the request was in an unknown format - accepted media types include: {ACCEPTED}")]
    MediaType(String),
    #[error("error decoding patch")]
    Syntax(#[from] crate::json::Error),
    #[error("error decoding patch: json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(&'static str),
    /// A JSON patch is malformed or does not apply.
    #[error(transparent)]
    Json(#[from] json::Error),
    /// A strategic merge patch is malformed or does not match the object.
    #[error(transparent)]
    Strategic(#[from] strategic::Error),
    /// A strategic merge patch for a type without a Go struct, or server-side apply where another patch type is
    /// required.
    #[error("{0}: unimplemented patch type")]
    Unsupported(&'static str),
}

/// The class of an error, which determines the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// 400: the patch is malformed.
    BadRequest,
    /// 413: the patch is too large.
    TooLarge,
    /// 415: the resource does not support this patch type.
    MediaType,
    /// 422: the patch is well formed but does not apply to the object. The message to the client is always upstream's
    /// `the server rejected our request due to an error in our request`.
    Unprocessable,
    /// 500: errors that upstream does not distinguish from internal ones.
    Internal,
}

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, \
    application/strategic-merge-patch+json, application/apply-patch+yaml";

/// Applies the patch in `body` to `current`. Strict decoding errors are ignored; use [`Patch::decode`] to get them.
pub fn apply_patch(kind: PatchType, current: Value, body: &[u8], schema: Option<Schema<'_>>) -> Result<Value, Error> {
    let (patch, _) = Patch::decode(kind, body)?;
    patch.apply(current, schema)
}

/// Fails if `patch` changes one of `paths`, such as `["metadata", "name"]`; kubectl's precondition for its patches.
pub fn require_unchanged(patch: &Value, paths: &[&[&str]]) -> Result<(), PreconditionError> {
    match paths.iter().find(|path| patch.at(path).is_some()) {
        Some(path) => Err(PreconditionError { path: path.join("."), patch: gofmt::Plain(patch).to_string() }),
        None => Ok(()),
    }
}

/// A patch changes a field that it must not change.
#[derive(Debug, thiserror::Error)]
#[error("precondition failed for: {patch}")]
pub struct PreconditionError {
    pub path: String,
    patch: String,
}

impl PatchType {
    /// Returns the patch type of a `Content-Type` header. The CBOR form of server-side apply is rejected, as upstream
    /// does unless a feature gate is set.
    pub fn from_content_type(header: &str) -> Result<Self, Error> {
        let media_type = header.split_once(';').map_or(header, |(media_type, _)| media_type);
        match media_type {
            JSON => Ok(Self::Json),
            MERGE => Ok(Self::Merge),
            STRATEGIC => Ok(Self::Strategic),
            APPLY => Ok(Self::Apply),
            other => Err(Error::MediaType(other.to_owned())),
        }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Merge => MERGE,
            Self::Strategic => STRATEGIC,
            Self::Apply => APPLY,
        }
    }
}

impl Patch {
    /// Parses a patch. Also returns upstream's strict decoding errors: duplicate fields, and unknown fields of JSON
    /// patch operations.
    pub fn decode(kind: PatchType, body: &[u8]) -> Result<(Self, Vec<String>), Error> {
        let (value, repeated) = crate::json::parse_strict(body)?;
        let duplicates = repeated.iter().map(|path| format!("duplicate field {path:?}"));
        match (kind, value) {
            (PatchType::Apply, _) => Err(Error::Unsupported(APPLY)),
            (PatchType::Json, value) => {
                let patch = json::Patch::new(value)?;
                let unknown = patch.unknown_fields().iter().map(|path| format!("unknown field {path:?}"));
                let complaints = duplicates.chain(unknown).map(|complaint| format!("json patch {complaint}")).collect();
                Ok((Self::Json(patch), complaints))
            }
            (PatchType::Merge, Value::Object(patch)) => Ok((Self::Merge(patch), duplicates.collect())),
            (PatchType::Strategic, Value::Object(patch)) => Ok((Self::Strategic(patch), duplicates.collect())),
            (PatchType::Merge | PatchType::Strategic, other) => Err(Error::NotAnObject(other.kind())),
        }
    }

    /// Applies the patch to `current`. Only a strategic merge requires the schema; custom resources do not support it,
    /// since their schemas lack patch strategies.
    pub fn apply(self, current: Value, schema: Option<Schema<'_>>) -> Result<Value, Error> {
        match self {
            Self::Json(patch) => Ok(patch.apply(current)?),
            Self::Merge(patch) => Ok(merge::apply(current, patch.into())),
            Self::Strategic(patch) => {
                let schema = schema.ok_or(Error::Unsupported(STRATEGIC))?;
                let Value::Object(current) = current else { return Err(Error::NotAnObject(current.kind())) };
                Ok(strategic::apply(current, patch, schema)?.into())
            }
        }
    }
}

impl Error {
    pub const fn blame(&self) -> ErrorClass {
        match self {
            Self::MediaType(_) | Self::Unsupported(_) => ErrorClass::MediaType,
            Self::Json(json::Error::TooMany(_)) => ErrorClass::TooLarge,
            Self::Json(json::Error::Failed { .. }) => ErrorClass::Unprocessable,
            Self::Syntax(_) | Self::NotAnObject(_) | Self::Json(_) => ErrorClass::BadRequest,
            Self::Strategic(error) => error.fault.blame(),
        }
    }
}

/// Entries to insert into and remove from an object in one pass. Changing them one at a time would take quadratic time.
#[derive(Default)]
struct Changes {
    added: Vec<(Str, Value)>,
    removed: Vec<Str>,
}

impl Changes {
    fn make(mut self, object: &mut Object) {
        if !self.removed.is_empty() {
            self.removed.sort_unstable();
            object.retain(|key, _| self.removed.binary_search_by(|removed| removed.as_str().cmp(key)).is_err());
        }
        if !self.added.is_empty() {
            let entries = std::mem::take(object).into_iter().chain(self.added).collect();
            *object = Object::from_entries(entries, |_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Shape, Struct, Type, Types};

    fn check(kind: PatchType, body: &str, expect: Result<&str, ErrorClass>) {
        let mut types = Types::new();
        let object = types.add(Type::new("v1.Object", Shape::Struct(Struct::default())));
        let outcome = apply_patch(kind, crate::value!({"a": 1}), body.as_bytes(), Some(types.schema(object)));
        let outcome = outcome.map(|value| value.to_string()).map_err(|error| error.blame());
        assert_eq!(outcome, expect.map(str::to_owned), "{kind:?} {body}");
    }

    #[test]
    fn content_type_determines_the_patch_type() {
        check(PatchType::Json, r#"[{"op":"add","path":"/b","value":2}]"#, Ok(r#"{"a":1,"b":2}"#));
        check(PatchType::Merge, r#"{"a":null,"b":{"c":null}}"#, Ok(r#"{"b":{}}"#));
        check(PatchType::Strategic, r#"{"$retainKeys":["b"],"b":2}"#, Ok(r#"{"b":2}"#));
    }

    #[test]
    fn errors_have_upstreams_http_status() {
        check(PatchType::Json, "not json", Err(ErrorClass::BadRequest));
        check(PatchType::Json, "{}", Err(ErrorClass::BadRequest));
        check(PatchType::Json, r#"[{"op":1}]"#, Err(ErrorClass::BadRequest));
        check(PatchType::Json, r#"[{"op":"test","path":"/a","value":2}]"#, Err(ErrorClass::Unprocessable));
        check(PatchType::Json, r#"[{"op":"remove","path":"/b"}]"#, Err(ErrorClass::Unprocessable));
        check(PatchType::Json, &format!("[{}{{}}]", "{},".repeat(json::OPERATIONS_MAX)), Err(ErrorClass::TooLarge));
        check(PatchType::Merge, "[]", Err(ErrorClass::BadRequest));
        check(PatchType::Strategic, "1", Err(ErrorClass::BadRequest));
        check(PatchType::Strategic, r#"{"$retainKeys":["a"],"b":2}"#, Err(ErrorClass::BadRequest));
        check(PatchType::Strategic, r#"{"$patch":"jump"}"#, Err(ErrorClass::Internal));
        check(PatchType::Apply, "{}", Err(ErrorClass::MediaType));
    }

    #[test]
    fn content_type_may_have_parameters_but_must_be_known() {
        for kind in [PatchType::Json, PatchType::Merge, PatchType::Strategic, PatchType::Apply] {
            assert_eq!(PatchType::from_content_type(kind.content_type()).unwrap(), kind);
            let header = format!("{};charset=utf-8", kind.content_type());
            assert_eq!(PatchType::from_content_type(&header).unwrap(), kind);
        }
        for unknown in ["", ";", "application/json", "application/apply-patch+cbor", "text/plain; x"] {
            assert_eq!(PatchType::from_content_type(unknown).unwrap_err().blame(), ErrorClass::MediaType, "{unknown}");
        }
    }

    #[test]
    fn strict_decoding_errors_match_upstream() {
        let check = |kind, body: &str, expect: &[&str]| {
            assert_eq!(Patch::decode(kind, body.as_bytes()).unwrap().1, expect, "{body}");
        };
        check(
            PatchType::Json,
            r#"[{"op":"test","op":"test","path":"/a","x":1}]"#,
            &[r#"json patch duplicate field "[0].op""#, r#"json patch unknown field "[0].x""#],
        );
        check(PatchType::Merge, r#"{"a":{"b":1,"b":2}}"#, &[r#"duplicate field "a.b""#]);
        check(PatchType::Strategic, r#"{"a":1}"#, &[]);
    }

    #[test]
    fn patches_of_protected_fields_are_rejected() {
        let paths: &[&[&str]] = &[&["apiVersion"], &["kind"], &["metadata", "name"]];
        assert!(require_unchanged(&crate::value!({"metadata": {"labels": {}}}), paths).is_ok());
        let changed = require_unchanged(&crate::value!({"metadata": {"name": "b"}}), paths).unwrap_err();
        assert_eq!(changed.path, "metadata.name");
        assert_eq!(changed.to_string(), "precondition failed for: map[metadata:map[name:b]]");
    }

    #[test]
    fn merging_many_keys_takes_linear_time() {
        let keys = |prefix: &str| (0..100_000).map(|at| (format!("{prefix}{at}"), 1)).collect::<Object>();
        let merged = merge::apply(keys("b").into(), keys("a").into());
        assert_eq!(merged.as_object().map(Object::len), Some(200_000));
        let removal: Object = keys("b").into_iter().map(|(key, _)| (key, Value::Null)).collect();
        assert_eq!(merge::apply(merged, removal.into()), Value::Object(keys("a")));
    }
}
