//! Kind-specific behaviour: defaulting, preparation of writes, and validation.

use std::fmt;

use apimachinery::time::Time;
use apimachinery::{Errors, Str, Value};

use crate::kind::Version;

/// Properties of a write that rules may depend on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The version of the request.
    pub version: &'a Version,
    /// The subresource that is written, empty for the object itself.
    pub subresource: &'a str,
    pub now: Time,
    pub requester: &'a Requester,
}

/// The user of the request, as far as objects record it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    pub name: Str,
    /// The user's ID, usually empty.
    pub uid: Str,
    pub groups: Vec<Str>,
    /// Additional information from the authenticator.
    pub extra: Vec<(Str, Vec<Str>)>,
}

/// The kind-specific behaviour. Every hook is a pure function, operates on the storage version of the object (for
/// custom resources: on the version of the request), and by default does nothing.
///
/// Generic handling covers decoding, unknown fields, schema defaults, system metadata, metadata validation, managed
/// fields and optimistic locking.
pub trait Rules: Send + Sync + fmt::Debug {
    /// Sets defaults, after those of the schema. Runs after decoding of every request body, in the version of the
    /// request, and again after mutating admission. Must be idempotent.
    fn default(&self, _object: &mut Value, _version: &str) {}

    /// Prepares an object for creation: drops fields that clients may not set (status), sets the generation.
    fn prepare_create(&self, _object: &mut Value, _context: &Context<'_>) {}

    /// Prepares an object that replaces `old`: restores fields that this write may not change, increments the
    /// generation. For a subresource (`context.subresource`), restores everything else.
    fn prepare_update(&self, _object: &mut Value, _old: &Value, _context: &Context<'_>) {}

    /// Validates an object that is created.
    fn validate(&self, _object: &Value, _context: &Context<'_>, _errors: &mut Errors) {}

    /// Validates an object that replaces `old`: upstream's `ValidateUpdate`, or that of the subresource. Metadata has
    /// already been compared. Most kinds validate the object again and compare.
    fn validate_update(&self, object: &Value, _old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
    }

    /// Returns the warnings for the client, sent as `Warning` headers.
    fn warnings(&self, _object: &Value, _old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Normalizes an object after validation, before it is stored and compared: sorting, removal of duplicates.
    fn canonicalize(&self, _object: &mut Value) {}

    /// Returns the schema of a version as written in the CRD, for OpenAPI.
    fn published_schema(&self, _version: &str) -> Option<&Value> {
        None
    }

    /// Returns the fields that a write to the object or a subresource does not set, so the client does not become their
    /// field manager. Called only for kinds with a status subresource.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "" => &["status"],
            "status" => &["spec"],
            _ => &[],
        }
    }

    /// Returns the error for a field selector with an unsupported field, where upstream has a kind-specific message.
    fn field_selector_error(&self, _version: &str, _field: &str) -> Option<String> {
        None
    }

    /// Returns the warning for a delete without a propagation policy.
    fn delete_warning(&self) -> Option<&'static str> {
        None
    }

    /// Prepares an object for its first delete: a kind that needs cleanup adds a finalizer here.
    fn prepare_delete(&self, _object: &mut Value, _now: Time) {}

    /// Changes an object whose deletion starts, in addition to its deletionTimestamp. A Namespace becomes Terminating.
    fn mark_deleted(&self, _object: &mut Value) {}

    /// Whether something other than `metadata.finalizers` delays the deletion.
    fn blocks_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// Returns the deletion grace period in seconds, `None` for immediate deletion. The second parameter is the
    /// client's `gracePeriodSeconds`.
    fn grace_seconds(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }
}

/// Rules of a kind without specific behaviour.
#[derive(Debug)]
pub struct NoRules;

impl Rules for NoRules {}
