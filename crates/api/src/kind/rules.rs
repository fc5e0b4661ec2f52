//! What only a kind knows: its defaults, what a write may touch, and what is wrong with it.

use std::fmt;

use machinery::time::Time;
use machinery::{Errors, Str, Value};

use crate::kind::Version;

/// What a write happens in.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The version that the client speaks.
    pub version: &'a Version,
    /// The subresource that is written, empty for the object itself.
    pub subresource: &'a str,
    /// When.
    pub now: Time,
    /// By whom.
    pub requester: &'a Requester,
}

/// Who asks, as far as an object may record it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// The user's name.
    pub name: Str,
    /// The user's id, mostly empty.
    pub uid: Str,
    /// The user's groups.
    pub groups: Vec<Str>,
    /// What else the authenticator said.
    pub extra: Vec<(Str, Vec<Str>)>,
}

/// A kind's own behaviour. Every hook is a pure function, works on the stored version of the object (for custom
/// resources: on the version of the request), and by default does nothing.
///
/// The generic path has done what holds for all objects: decoding, unknown fields, the schema's own defaults, system
/// metadata, validation of metadata, managed fields, optimistic locking. A hook adds what is particular.
pub trait Rules: Send + Sync + fmt::Debug {
    /// Fills in what is absent, after the defaults that the schema declares. Runs on decoding of every request body,
    /// in the version of the request, and again after mutating admission. Must be idempotent.
    fn default(&self, _object: &mut Value, _version: &str) {}

    /// Makes an object ready to be created: drops what clients may not set (status), sets the generation.
    fn prepare_create(&self, _object: &mut Value, _context: &Context<'_>) {}

    /// Makes an object ready to replace `old`: keeps what this write may not change, raises the generation.
    /// For a write to a subresource (`context.subresource`) it keeps everything but that part.
    fn prepare_update(&self, _object: &mut Value, _old: &Value, _context: &Context<'_>) {}

    /// What is wrong with an object that shall be created.
    fn validate(&self, _object: &Value, _context: &Context<'_>, _errors: &mut Errors) {}

    /// What is wrong with an object that shall replace `old`, the whole of it: upstream's `ValidateUpdate`, or that of
    /// the subresource. Metadata has been compared already. Most kinds validate the object again and compare.
    fn validate_update(&self, object: &Value, _old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
    }

    /// What a client should know though it is no error: sent as `Warning` headers.
    fn warnings(&self, _object: &Value, _old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Brings an object into the form it is stored and compared in, after validation: sorting, dropping duplicates.
    fn canonicalize(&self, _object: &mut Value) {}

    /// The schema of a version as its author wrote it, where that is a CustomResourceDefinition: what clients read.
    fn published_schema(&self, _version: &str) -> Option<&Value> {
        None
    }

    /// The fields that a write to the object or to a subresource does not set, whatever it says: nobody comes to own
    /// them by it. Asked only of kinds that have a status by itself.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "" => &["status"],
            "status" => &["spec"],
            _ => &[],
        }
    }

    /// How a selector is refused that names a field which the kind does not select by, where upstream has words of its
    /// own for the kind.
    fn refused_selector(&self, _version: &str, _field: &str) -> Option<String> {
        None
    }

    /// What a client should know that deletes without saying what becomes of dependents.
    fn delete_warning(&self) -> Option<&'static str> {
        None
    }

    /// Readies an object for its first delete: a kind that must clean up gives it a finalizer here.
    fn begin_delete(&self, _object: &mut Value, _now: Time) {}

    /// Marks an object that is being deleted and stays for now, beyond the deletion timestamp that all kinds have.
    fn mark_deleted(&self, _object: &mut Value) {}

    /// Whether something other than `metadata.finalizers` keeps an object that is being deleted.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// How long an object may take to go: `None` if it goes at once. `wanted` is what the client asked for.
    fn grace_seconds(&self, _object: &Value, _wanted: Option<i64>) -> Option<i64> {
        None
    }
}

/// For a kind that has nothing of its own.
#[derive(Debug)]
pub struct NoRules;

impl Rules for NoRules {}
