//! Validation of ObjectMeta.

use std::collections::BTreeSet;

use super::{FINALIZER_DELETE_DEPENDENTS, FINALIZER_ORPHAN_DEPENDENTS, Meta, OwnerReference};
use crate::field::{BadValue, Error, Errors};
use crate::{Object, Path, Value, go, names};

/// The scope of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// The part of a name that a name rule validates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePart {
    Full,
    /// The prefix of a generated name: `generateName`.
    Prefix,
}

/// A kind's name validation; returns error messages.
pub type NameRule = fn(&str, NamePart) -> Vec<String>;

/// Maximum total bytes of all annotation keys and values.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;
const FIELD_MANAGER_BYTES_MAX: usize = 128;
const SUBRESOURCE_BYTES_MAX: usize = 256;
const CONDITION_REASON_BYTES_MAX: usize = 1 << 10;
const CONDITION_MESSAGE_BYTES_MAX: usize = 32 << 10;

/// Requires a DNS subdomain: the rule of most kinds.
pub fn name_is_dns_subdomain(name: &str, part: NamePart) -> Vec<String> {
    names::dns1123_subdomain(&completed(name, part))
}

/// Requires a DNS label: the rule of namespaces and of kinds whose names become host names.
pub fn name_is_dns_label(name: &str, part: NamePart) -> Vec<String> {
    names::dns1123_label(&completed(name, part))
}

/// Requires a DNS label that starts with a letter: the rule of Services.
pub fn name_is_dns1035_label(name: &str, part: NamePart) -> Vec<String> {
    names::dns1035_label(&completed(name, part))
}

/// Requires a valid URL path segment: the rule of RBAC kinds.
pub fn name_is_path_segment(name: &str, part: NamePart) -> Vec<String> {
    match part {
        NamePart::Full => names::path_segment(name),
        NamePart::Prefix => names::path_segment_prefix(name),
    }
}

/// Validates the metadata of a new object, after name generation.
pub fn validate_create(object: &Value, scope: Scope, rule: NameRule, path: &Path, errors: &mut Errors) {
    let meta = Meta::of(object);
    for wrong in Some(meta.generate_name())
        .filter(|name| !name.is_empty())
        .map_or(Vec::new(), |name| rule(name, NamePart::Prefix))
    {
        errors.push(Error::invalid(&path.field("generateName"), meta.generate_name(), wrong));
    }
    if meta.name().is_empty() {
        errors.push(Error::required(&path.field("name"), "name or generateName is required"));
    } else {
        for wrong in rule(meta.name(), NamePart::Full) {
            errors.push(Error::invalid(&path.field("name"), meta.name(), wrong));
        }
    }
    validate_namespace(meta, scope, &path.field("namespace"), errors);
    if meta.generation() < 0 {
        let detail = "must be greater than or equal to 0";
        errors.push(Error::invalid(&path.field("generation"), meta.generation(), detail));
    }
    validate_maps_and_owners(meta, path, errors);
    validate_finalizers(meta, &path.field("finalizers"), errors);
    validate_managed_fields(meta.managed_fields(), &path.field("managedFields"), errors);
}

/// Validates the metadata of an object that replaces `old`.
pub fn validate_update(object: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let (meta, old) = (Meta::of(object), Meta::of(old));
    if old.is_deleting() {
        no_new_finalizers(meta, old, &path.field("finalizers"), errors);
    }
    if meta.resource_version().is_empty() {
        errors.push(Error::invalid(&path.field("resourceVersion"), "", "must be specified for an update"));
    }
    if meta.generation() < old.generation() {
        errors.push(Error::invalid(&path.field("generation"), meta.generation(), "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        immutable(meta, old, field, &Value::from(""), path, errors);
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        immutable(meta, old, field, &Value::Null, path, errors);
    }
    validate_maps_and_owners(meta, path, errors);
    validate_managed_fields(meta.managed_fields(), &path.field("managedFields"), errors);
}

pub fn validate_labels(labels: &Object, path: &Path, errors: &mut Errors) {
    for (key, value) in labels.iter() {
        for wrong in names::qualified_name(key) {
            errors.push(Error::invalid(path, key, wrong));
        }
        let value = value.as_str().unwrap_or_default();
        for wrong in names::label_value(value) {
            errors.push(Error::invalid(path, value, wrong));
        }
    }
}

pub fn validate_annotations(annotations: &Object, path: &Path, errors: &mut Errors) {
    let mut bytes = 0;
    for (key, value) in annotations.iter() {
        for wrong in names::qualified_name(&key.to_lowercase()) {
            errors.push(Error::invalid(path, key, wrong));
        }
        bytes += key.len() + value.as_str().unwrap_or_default().len();
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(Error::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
}

pub fn validate_finalizers(meta: Meta<'_>, path: &Path, errors: &mut Errors) {
    let has = |name: &str| meta.finalizers().any(|finalizer| finalizer == name);
    for finalizer in meta.finalizers() {
        for wrong in names::qualified_name(finalizer) {
            errors.push(Error::invalid(path, finalizer, wrong));
        }
    }
    if has(FINALIZER_ORPHAN_DEPENDENTS) && has(FINALIZER_DELETE_DEPENDENTS) {
        let detail =
            format!("finalizer {FINALIZER_ORPHAN_DEPENDENTS} and {FINALIZER_DELETE_DEPENDENTS} cannot be both set");
        let all = meta.value("finalizers").cloned().unwrap_or_default();
        errors.push(Error::invalid(path, all, detail));
    }
}

/// Validates `ownerReferences`. At most one owner may be the controller.
pub fn validate_owner_references(meta: Meta<'_>, path: &Path, errors: &mut Errors) {
    let mut first: Option<String> = None;
    for owner in meta.owner_references() {
        validate_owner(owner, path, errors);
        if !owner.is_controller() {
            continue;
        }
        let name = format!("{}/{}", owner.kind(), owner.name());
        match &first {
            None => first = Some(name),
            Some(first) => {
                let all: Vec<_> = meta.owner_references().map(owner_json).collect();
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                errors.push(Error::invalid(path, BadValue::Text(format!("[{}]", all.join(","))), detail));
            }
        }
    }
}

pub fn validate_managed_fields(entries: &[Value], path: &Path, errors: &mut Errors) {
    for (at, entry) in entries.iter().enumerate() {
        let path = path.index(at);
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            errors.push(Error::invalid(&path.field("operation"), text("operation"), "must be `Apply` or `Update`"));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            errors.push(Error::invalid(&path.field("fieldsType"), text("fieldsType"), "must be `FieldsV1`"));
        }
        validate_field_manager(text("manager"), &path.field("manager"), errors);
        if text("subresource").len() > SUBRESOURCE_BYTES_MAX {
            errors.push(Error::too_long(&path.field("subresource"), SUBRESOURCE_BYTES_MAX));
        }
    }
}

pub fn validate_field_manager(manager: &str, path: &Path, errors: &mut Errors) {
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.push(Error::too_long(path, FIELD_MANAGER_BYTES_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !go::is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(Error::invalid(path, manager, detail));
    }
}

/// Validates a list of status conditions.
pub fn validate_conditions(conditions: &[Value], path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (at, condition) in conditions.iter().enumerate() {
        let path = path.index(at);
        let kind = condition.str_at(&["type"]).unwrap_or_default();
        if !seen.insert(kind) {
            errors.push(Error::duplicate(&path.field("type"), kind));
        }
        validate_condition(condition, &path, errors);
    }
}

/// Masks a trailing dash of a `generateName`, as upstream's `maskTrailingDash`: the generated suffix follows it.
fn completed(name: &str, part: NamePart) -> String {
    match name.strip_suffix('-') {
        Some(rest) if part == NamePart::Prefix && !rest.is_empty() => {
            let end = rest.char_indices().next_back().map_or(0, |(at, _)| at);
            format!("{}a", &rest[..end])
        }
        _ => name.to_owned(),
    }
}

fn validate_namespace(meta: Meta<'_>, scope: Scope, path: &Path, errors: &mut Errors) {
    let namespace = meta.namespace();
    match scope {
        Scope::Namespaced if namespace.is_empty() => errors.push(Error::required(path, "")),
        Scope::Namespaced => {
            for wrong in names::dns1123_label(namespace) {
                errors.push(Error::invalid(path, namespace, wrong));
            }
        }
        Scope::Cluster if namespace.is_empty() => {}
        Scope::Cluster => errors.push(Error::forbidden(path, "not allowed on this type")),
    }
}

fn validate_maps_and_owners(meta: Meta<'_>, path: &Path, errors: &mut Errors) {
    if let Some(labels) = meta.labels() {
        validate_labels(labels, &path.field("labels"), errors);
    }
    if let Some(annotations) = meta.annotations() {
        validate_annotations(annotations, &path.field("annotations"), errors);
    }
    validate_owner_references(meta, &path.field("ownerReferences"), errors);
}

fn validate_owner(owner: OwnerReference<'_>, path: &Path, errors: &mut Errors) {
    // An apiVersion with more than one slash has no group and version.
    let (group, version) = match owner.api_version().split_once('/') {
        Some((_, rest)) if rest.contains('/') => ("", ""),
        Some((group, version)) => (group, version),
        None => ("", owner.api_version()),
    };
    if version.is_empty() {
        errors.push(Error::invalid(&path.field("apiVersion"), owner.api_version(), "version must not be empty"));
    }
    for (field, value) in [("kind", owner.kind()), ("name", owner.name()), ("uid", owner.uid())] {
        if value.is_empty() {
            errors.push(Error::invalid(&path.field(field), value, "must not be empty"));
        }
    }
    if (group, version, owner.kind()) == ("", "v1", "Event") {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(Error::invalid(path, BadValue::Text(owner_json(owner)), detail));
    }
}

/// Formats an owner reference like Go: fields in declaration order.
fn owner_json(owner: OwnerReference<'_>) -> String {
    let mut fields = Vec::new();
    for (name, always) in [
        ("apiVersion", true),
        ("kind", true),
        ("name", true),
        ("uid", true),
        ("controller", false),
        ("blockOwnerDeletion", false),
    ] {
        let value = owner.0.get(name).filter(|value| !value.is_null());
        match value {
            Some(value) => fields.push(format!("\"{name}\":{}", go::json(value))),
            None if always => fields.push(format!("\"{name}\":\"\"")),
            None => {}
        }
    }
    format!("{{{}}}", fields.join(","))
}

fn no_new_finalizers(meta: Meta<'_>, old: Meta<'_>, path: &Path, errors: &mut Errors) {
    let had: BTreeSet<_> = old.finalizers().collect();
    let new: BTreeSet<_> = meta.finalizers().filter(|finalizer| !had.contains(finalizer)).collect();
    if !new.is_empty() {
        let new: Vec<_> = new.into_iter().map(go::quote).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            new.join(", ")
        );
        errors.push(Error::forbidden(path, detail));
    }
}

fn immutable(meta: Meta<'_>, old: Meta<'_>, field: &str, absent: &Value, path: &Path, errors: &mut Errors) {
    let new = meta.value(field).unwrap_or(absent);
    if new != old.value(field).unwrap_or(absent) {
        errors.push(Error::invalid(&path.field(field), new, "field is immutable"));
    }
}

fn validate_condition(condition: &Value, path: &Path, errors: &mut Errors) {
    let text = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default();
    for wrong in names::qualified_name(text("type")) {
        errors.push(Error::invalid(&path.field("type"), text("type"), wrong));
    }
    let statuses = ["False", "True", "Unknown"];
    if !statuses.contains(&text("status")) {
        errors.push(Error::not_supported(&path.field("status"), text("status"), &statuses));
    }
    let generation = condition.get("observedGeneration").and_then(Value::as_int).unwrap_or(0);
    if generation < 0 {
        let detail = "must be greater than or equal to zero";
        errors.push(Error::invalid(&path.field("observedGeneration"), generation, detail));
    }
    if text("lastTransitionTime").is_empty() {
        errors.push(Error::required(&path.field("lastTransitionTime"), "must be set"));
    }
    let reason = text("reason");
    if reason.is_empty() {
        errors.push(Error::required(&path.field("reason"), "must be set"));
    } else if !is_condition_reason(reason) {
        let detail = names::mismatch(
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
            "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
            &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
        );
        errors.push(Error::invalid(&path.field("reason"), reason, detail));
    }
    if reason.len() > CONDITION_REASON_BYTES_MAX {
        errors.push(Error::too_long(&path.field("reason"), CONDITION_REASON_BYTES_MAX));
    }
    if text("message").len() > CONDITION_MESSAGE_BYTES_MAX {
        errors.push(Error::too_long(&path.field("message"), CONDITION_MESSAGE_BYTES_MAX));
    }
}

fn is_condition_reason(reason: &str) -> bool {
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && reason.bytes().all(|c| c.is_ascii_alphanumeric() || b"_,:".contains(&c))
}
