//! Create and update: the steps that all kinds share, in order.
//!
//! ```text
//! decode body ─> set namespace, check name ─> update managedFields ─> [mutating admission]
//!   ─> convert to storage version ─> create or update: prepare, validate ─> [validating admission]
//!   ─> normalize ─> store
//! ```
//!
//! Each step is a pure function. Random values are in [`GeneratedIds`], drawn once per request.

use api::catalogue;
use api::kind::{Context, Kind, Persistence, Shape, Version};
use apimachinery::conform::{drop_empty, zero};
use apimachinery::field::BadValue;
use apimachinery::meta::{self, Meta, MetaMut};
use apimachinery::schema::Omit;
use apimachinery::status::Status;
use apimachinery::time::Time;
use apimachinery::{Errors, GroupVersion, GroupVersionKind, Path, Value, apply, field};

use crate::conversion::ManagedFieldsConverter;
use crate::decode::{kind_name, resource_name};

/// Random values of a new object.
#[derive(Clone, Debug)]
pub struct GeneratedIds {
    pub uid: String,
    /// The suffix of a generated name.
    pub suffix: String,
}

/// The target of a write.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub kind: &'a Kind,
    /// The version in the URL.
    pub version: &'a Version,
    /// The namespace in the URL, empty for a cluster-scoped kind.
    pub namespace: &'a str,
    /// The name in the URL, may be empty.
    pub name: &'a str,
    /// The subresource in the URL, may be empty.
    pub subresource: &'a str,
    /// The field manager.
    pub manager: &'a str,
}

/// Sets the namespace of the URL, and rejects an object with another name or namespace.
pub fn address(target: &Target<'_>, object: &mut Value) -> Result<(), Status> {
    let expected = if target.kind.is_namespaced() { target.namespace } else { "" };
    if let (Some(mut meta), false) = (MetaMut::of(object), target.kind.is_namespaced()) {
        // A namespace in a cluster-scoped object is ignored.
        meta.remove("namespace");
    }
    let meta = Meta::of(object);
    if !meta.namespace().is_empty() && meta.namespace() != expected {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !target.name.is_empty() && meta.name() != target.name {
        let (url, sent) = (target.name, meta.name());
        return Err(Status::bad_request(match sent {
            "" => format!("the name of the object ({url} based on URL) was undeterminable: name must be provided"),
            sent => format!("the name of the object ({sent}) does not match the name on the URL ({url})"),
        }));
    }
    if let Some(mut meta) = MetaMut::of(object)
        && !expected.is_empty()
    {
        meta.set("namespace", expected);
    }
    Ok(())
}

/// Updates managedFields. `live` is the existing object in the request's version.
pub fn own(target: &Target<'_>, live: Option<&Value>, object: Value, now: Time) -> Value {
    let versions = ManagedFieldsConverter { kind: target.kind, subresource: target.subresource };
    let api_version = target.kind.gvk(&target.version.name).api_version();
    let write = apply::Write {
        versions: &versions,
        api_version: &api_version,
        kind: &target.kind.kind,
        subresource: target.subresource,
        manager: target.manager,
        now,
    };
    write.update_or_keep(live, object)
}

/// Prepares and validates an object for creation. Returns warnings.
pub fn create(
    kind: &Kind,
    object: &mut Value,
    ids: &GeneratedIds,
    context: &Context<'_>,
) -> Result<Vec<String>, Status> {
    let suffix = if kind.ends_names { ids.suffix.as_str() } else { "" };
    meta::prepare_create(object, &ids.uid, context.now, suffix);
    kind.rules.prepare_create(object, context);
    show_status(object, context.version);
    let mut errors = Errors::new();
    if !kind.validates_metadata {
        check_metadata(kind, object, &mut errors);
    }
    kind.rules.validate(object, context, &mut errors);
    if kind.validates_metadata && errors.is_empty() {
        check_metadata(kind, object, &mut errors);
    }
    check_errors(kind, object, &errors)?;
    let warnings = kind.rules.warnings(object, None, context);
    kind.rules.canonicalize(object);
    Ok(warnings)
}

/// Prepares and validates an object that replaces `old`. Returns warnings.
pub fn update(kind: &Kind, object: &mut Value, old: &Value, context: &Context<'_>) -> Result<Vec<String>, Status> {
    meta::prepare_update(object, old);
    kind.rules.prepare_update(object, old, context);
    show_status(object, context.version);
    let mut errors = Errors::new();
    let (metadata, checks) = (Path::of("metadata"), kind.update_checks);
    meta::validate_create(object, kind.scope, meta::name_is_path_segment, &metadata, &mut errors);
    for _ in 0..=checks.change {
        meta::validate_update(object, old, &metadata, &mut errors);
    }
    for _ in 0..checks.whole {
        check_metadata(kind, object, &mut errors);
    }
    kind.rules.validate_update(object, old, context, &mut errors);
    show_emptied(&mut errors, old);
    check_errors(kind, object, &errors)?;
    let warnings = kind.rules.warnings(object, Some(old), context);
    kind.rules.canonicalize(object);
    Ok(warnings)
}

/// Normalizes an object to the form in which it will be read: upstream stores most kinds as protobuf, which cannot
/// distinguish an empty list or map from an absent one.
pub fn normalize(kind: &Kind, object: &mut Value) {
    /// Groups that upstream stores as JSON, which keeps empty lists and maps.
    const AS_JSON: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
    let Persistence::Stored { version: GroupVersion { group, version }, .. } = &kind.persistence else { return };
    let is_built_in = kind.versions.iter().all(|version| matches!(version.shape, Shape::BuiltIn(_)));
    if !is_built_in || AS_JSON.contains(&group.as_str()) {
        return;
    }
    let stored = GroupVersionKind { group: group.clone(), version: version.clone(), kind: kind.kind.clone() };
    if let Some(schema) = catalogue::schema(&stored) {
        drop_empty(object, schema);
    }
}

/// Validates the metadata of an object.
fn check_metadata(kind: &Kind, object: &Value, errors: &mut Errors) {
    /// Finalizers that need no domain.
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let metadata = Path::of("metadata");
    meta::validate_create(object, kind.scope, kind.name_rule, &metadata, errors);
    if !kind.qualified_finalizers {
        return;
    }
    let path = metadata.field("finalizers");
    for (index, name) in Meta::of(object).finalizers().enumerate() {
        if !name.contains('/') && !STANDARD.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(field::Error::invalid(&path.index(index), name, detail));
        }
    }
}

/// Reports a list or map that lost its last entry as empty, not as null. The tree does not contain it any more.
fn show_emptied(errors: &mut Errors, old: &Value) {
    for error in errors.iter_mut().filter(|error| error.value == BadValue::Value(Value::Null)) {
        let path: Vec<&str> = error.field.split('.').collect();
        match old.at(&path) {
            Some(Value::Object(_)) => error.value = BadValue::Value(Value::object()),
            Some(Value::Array(_)) => error.value = BadValue::Value(Value::Array(Vec::new())),
            _ => {}
        }
    }
}

/// Adds an empty status where Go's type cannot omit it.
fn show_status(object: &mut Value, version: &Version) {
    const STATUS: &str = "status";
    let Shape::BuiltIn(schema) = version.shape else { return };
    let Value::Object(fields) = object else { return };
    if let Some((field, ty)) = schema.field(STATUS).filter(|_| fields.get(STATUS).is_none())
        && !field.pointer
        && field.omit != Omit::Zero
    {
        fields.insert(STATUS, zero(ty));
    }
}

/// Checks UID and resourceVersion of an update against the existing object. Afterwards `object`, as sent by the client,
/// contains the resourceVersion that it replaces.
pub fn check_preconditions(kind: &Kind, object: &mut Value, old: &Value, storage_key: &str) -> Result<(), Status> {
    let (sent, have) = (Meta::of(object), Meta::of(old));
    let name = have.name().to_owned();
    if !sent.uid().is_empty() && sent.uid() != have.uid() {
        let cause = format!(
            "StorageError: invalid object, Code: 4, Key: {storage_key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {}, UID in object meta: {}",
            sent.uid(),
            have.uid()
        );
        return Err(Status::conflict(resource_name(kind), &name, cause));
    }
    match sent.resource_version() {
        "" | "0" if kind.unconditional_update => {}
        "" | "0" => {
            let metadata = Path::of("metadata");
            let path = metadata.field("resourceVersion");
            let error = field::Error::invalid(&path, 0_i64, "must be specified for an update");
            return Err(Status::invalid(kind_name(kind), &name, &[error]));
        }
        version if version != have.resource_version() => return Err(modified(kind, &name)),
        _ => {}
    }
    if let Some(mut meta) = MetaMut::of(object) {
        meta.set("resourceVersion", have.resource_version());
    }
    Ok(())
}

/// Returns the 409 for a concurrent modification.
pub fn modified(kind: &Kind, name: &str) -> Status {
    let cause = "the object has been modified; please apply your changes to the latest version and try again";
    Status::conflict(resource_name(kind), name, cause)
}

fn check_errors(kind: &Kind, object: &Value, errors: &[field::Error]) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(kind_name(kind), Meta::of(object).name(), errors)) }
}
