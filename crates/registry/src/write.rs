//! What becomes of an object on its way into the store: the steps that all kinds share, in their order.
//!
//! ```text
//! create: body ─> address ─> own ─> [mutating admission] ─> convert ─> create ─> [validating admission] ─> store
//! update: body ─> address ─> own ─> [mutating admission] ─> convert ─> update ─> [validating admission] ─> store
//! ```
//!
//! Each step is a function of what it is given. What must be drawn from nowhere is in [`Draw`], drawn once a request.

use api::catalogue;
use api::kind::{Context, Keeping, Kind, Shape, Version};
use machinery::conform::{forget_empty, zero};
use machinery::field::BadValue;
use machinery::meta::{self, Meta, MetaMut};
use machinery::schema::Omit;
use machinery::status::Status;
use machinery::time::Time;
use machinery::{Errors, GroupVersion, GroupVersionKind, Path, Value, apply, field};

use crate::body::{kind_name, resource_name};
use crate::conversion::Managed;

/// What a new object gets from nowhere.
#[derive(Clone, Debug)]
pub struct Draw {
    /// The id of the object, if it is created.
    pub uid: String,
    /// The end of its name, if the name is to be made up.
    pub suffix: String,
}

/// Where a write goes.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// The version that the client speaks.
    pub version: &'a Version,
    /// The namespace of the URL, empty for a cluster-wide kind.
    pub namespace: &'a str,
    /// The name in the URL, empty if it has none.
    pub name: &'a str,
    /// The subresource in the URL, empty if it has none.
    pub subresource: &'a str,
    /// Who owns the fields that are written.
    pub manager: &'a str,
}

/// Gives an object the namespace of the URL, and refuses one that says it is another's.
pub fn address(target: &Target<'_>, object: &mut Value) -> Result<(), Status> {
    let expected = if target.kind.is_namespaced() { target.namespace } else { "" };
    if let (Some(mut meta), false) = (MetaMut::of(object), target.kind.is_namespaced()) {
        // What a client says of a namespace means nothing here, and is forgotten.
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

/// Settles who owns which field. `live` is the object as it is, in the version of the request.
pub fn own(target: &Target<'_>, live: Option<&Value>, object: Value, now: Time) -> Value {
    let versions = Managed { kind: target.kind, subresource: target.subresource };
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

/// Makes an object ready to be created, and says what is wrong with it. Gives the warnings to send along.
pub fn create(kind: &Kind, object: &mut Value, draw: &Draw, context: &Context<'_>) -> Result<Vec<String>, Status> {
    let suffix = if kind.ends_names { draw.suffix.as_str() } else { "" };
    meta::prepare_create(object, &draw.uid, context.now, suffix);
    kind.rules.prepare_create(object, context);
    show_status(object, context.version);
    let mut errors = Errors::new();
    if !kind.judges_metadata {
        check_metadata(kind, object, &mut errors);
    }
    kind.rules.validate(object, context, &mut errors);
    if kind.judges_metadata && errors.is_empty() {
        check_metadata(kind, object, &mut errors);
    }
    judge(kind, object, &errors)?;
    let warnings = kind.rules.warnings(object, None, context);
    kind.rules.canonicalize(object);
    Ok(warnings)
}

/// Makes an object ready to take the place of `old`, and says what is wrong with it. Gives the warnings to send along.
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
    judge(kind, object, &errors)?;
    let warnings = kind.rules.warnings(object, Some(old), context);
    kind.rules.canonicalize(object);
    Ok(warnings)
}

/// Brings an object that is about to be stored into the form in which it will be read: upstream stores most kinds as
/// protobuf, which cannot tell an empty list or map from none.
pub fn settle(kind: &Kind, object: &mut Value) {
    /// Stored as JSON, which can.
    const AS_JSON: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
    let Keeping::Stored { version: GroupVersion { group, version }, .. } = &kind.keeping else { return };
    let is_built_in = kind.versions.iter().all(|version| matches!(version.shape, Shape::BuiltIn(_)));
    if !is_built_in || AS_JSON.contains(&group.as_str()) {
        return;
    }
    let stored = GroupVersionKind { group: group.clone(), version: version.clone(), kind: kind.kind.clone() };
    if let Some(schema) = catalogue::schema(&stored) {
        forget_empty(object, schema);
    }
}

/// What is wrong with the metadata of an object by itself.
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
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(field::Error::invalid(&path.index(index), name, why));
        }
    }
}

/// A list or map that lost its last entry is gone from the tree; messages show it empty, as it was sent.
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

/// A status of which nothing is set is still shown, where Go has no way to leave it out.
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

/// What an update must hold of the object that is there. `object` is what the client sent; afterwards it has the
/// resourceVersion that it will replace.
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

/// Somebody else was faster.
pub fn modified(kind: &Kind, name: &str) -> Status {
    let cause = "the object has been modified; please apply your changes to the latest version and try again";
    Status::conflict(resource_name(kind), name, cause)
}

fn judge(kind: &Kind, object: &Value, errors: &[field::Error]) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(kind_name(kind), Meta::of(object).name(), errors)) }
}
