//! ObjectMeta: a view over the tree, name generation, and the fields that the server sets on create and update.
//!
//! Reading never fails: a field that is missing or has the wrong type reads as absent. Schema validation has already
//! rejected wrong types where it matters.

mod validate;

pub use validate::{
    NamePart, NameRule, Scope, name_is_dns_label, name_is_dns_subdomain, name_is_dns1035_label, name_is_path_segment,
    validate_annotations, validate_conditions, validate_create, validate_field_manager, validate_finalizers,
    validate_labels, validate_managed_fields, validate_owner_references, validate_update,
};

use crate::time::Time;
use crate::{Object, Value};

/// Read access to the metadata of an object.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a>(Option<&'a Object>);

/// Write access to the metadata of an object.
#[derive(Debug)]
pub struct MetaMut<'a>(&'a mut Object);

/// One entry of `ownerReferences`.
#[derive(Clone, Copy, Debug)]
pub struct OwnerReference<'a>(&'a Value);

/// The finalizer that keeps an object until its dependents no longer reference it.
pub const FINALIZER_ORPHAN_DEPENDENTS: &str = "orphan";
/// The finalizer that keeps an object until its dependents are deleted.
pub const FINALIZER_DELETE_DEPENDENTS: &str = "foregroundDeletion";

/// The characters of generated suffixes: no vowels, which could form words, and no easily confused characters.
pub const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Number of random characters at the end of a generated name.
pub const NAME_SUFFIX_LENGTH: usize = 5;
/// Maximum bytes kept of a `generateName`: a label of 63 bytes minus the suffix.
const NAME_BASE_MAX: usize = 63 - NAME_SUFFIX_LENGTH;

/// Returns the name made from a `generateName` and a suffix.
pub fn generate_name(base: &str, suffix: &str) -> String {
    let base = &base[..base.floor_char_boundary(NAME_BASE_MAX)];
    format!("{base}{suffix}")
}

/// Derives a suffix for [`generate_name`] from a random number.
pub fn name_suffix(mut random: u64) -> String {
    let mut letter = || {
        let letter = NAME_ALPHABET[(random % 27) as usize];
        random /= 27;
        char::from(letter)
    };
    std::iter::repeat_with(&mut letter).take(NAME_SUFFIX_LENGTH).collect()
}

/// Sets the server-assigned fields on create, and the name if only `generateName` is set.
pub fn prepare_create(object: &mut Value, uid: &str, now: Time, suffix: &str) {
    let Some(mut meta) = MetaMut::of(object) else { return };
    meta.remove("deletionTimestamp");
    meta.remove("deletionGracePeriodSeconds");
    meta.remove("selfLink");
    meta.set("uid", uid);
    meta.set("creationTimestamp", now.to_string());
    let view = meta.view();
    if view.name().is_empty() && !view.generate_name().is_empty() {
        let name = generate_name(view.generate_name(), suffix);
        meta.set("name", name);
    }
}

/// Restores the metadata fields that an update omits or must not change.
pub fn prepare_update(object: &mut Value, old: &Value) {
    let old = Meta::of(old);
    let Some(mut meta) = MetaMut::of(object) else { return };
    // The kind increments the generation when its desired state changes.
    meta.copy("generation", old);
    if meta.view().uid().is_empty() {
        meta.copy("uid", old);
    }
    meta.remove("selfLink");
    if old.value("creationTimestamp").is_some() {
        meta.copy("creationTimestamp", old);
    }
    if old.is_deleting() {
        meta.copy("deletionTimestamp", old);
    }
    if meta.view().value("deletionGracePeriodSeconds").is_none() {
        meta.copy("deletionGracePeriodSeconds", old);
    }
}

impl<'a> Meta<'a> {
    pub fn of(object: &'a Value) -> Self {
        Self(object.get("metadata").and_then(Value::as_object))
    }

    /// Reads a `metadata` value, as embedded in templates.
    pub fn from_metadata(metadata: &'a Value) -> Self {
        Self(metadata.as_object())
    }

    /// Returns a field; `null` counts as absent.
    pub fn value(self, field: &str) -> Option<&'a Value> {
        self.0?.get(field).filter(|value| !value.is_null())
    }

    /// Returns the name; empty if absent. The other text fields behave the same.
    pub fn name(self) -> &'a str {
        self.text("name")
    }

    pub fn generate_name(self) -> &'a str {
        self.text("generateName")
    }

    pub fn namespace(self) -> &'a str {
        self.text("namespace")
    }

    pub fn uid(self) -> &'a str {
        self.text("uid")
    }

    pub fn resource_version(self) -> &'a str {
        self.text("resourceVersion")
    }

    /// Returns the generation; zero if absent.
    pub fn generation(self) -> i64 {
        self.value("generation").and_then(Value::as_int).unwrap_or(0)
    }

    pub fn creation_timestamp(self) -> Option<Time> {
        Time::parse(self.text("creationTimestamp")).ok()
    }

    /// Returns the time at which the grace period ends; [`None`] if no deletion was requested.
    pub fn deletion_timestamp(self) -> Option<Time> {
        Time::parse(self.text("deletionTimestamp")).ok()
    }

    /// Whether deletion was requested.
    pub fn is_deleting(self) -> bool {
        self.value("deletionTimestamp").is_some()
    }

    pub fn deletion_grace_period_seconds(self) -> Option<i64> {
        self.value("deletionGracePeriodSeconds")?.as_int()
    }

    pub fn labels(self) -> Option<&'a Object> {
        self.value("labels")?.as_object()
    }

    pub fn label(self, key: &str) -> Option<&'a str> {
        self.labels()?.get(key)?.as_str()
    }

    pub fn annotations(self) -> Option<&'a Object> {
        self.value("annotations")?.as_object()
    }

    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.annotations()?.get(key)?.as_str()
    }

    pub fn finalizers(self) -> impl Iterator<Item = &'a str> {
        self.list("finalizers").iter().filter_map(Value::as_str)
    }

    pub fn owner_references(self) -> impl Iterator<Item = OwnerReference<'a>> {
        self.list("ownerReferences").iter().map(OwnerReference)
    }

    /// Returns the owner reference with `controller: true`, if any.
    pub fn controller(self) -> Option<OwnerReference<'a>> {
        self.owner_references().find(|owner| owner.is_controller())
    }

    pub fn managed_fields(self) -> &'a [Value] {
        self.list("managedFields")
    }

    fn text(self, field: &str) -> &'a str {
        self.value(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn list(self, field: &str) -> &'a [Value] {
        self.value(field).and_then(Value::as_array).unwrap_or_default()
    }
}

impl<'a> MetaMut<'a> {
    /// Returns the metadata of an object, created if absent. `None` if the object or its metadata is not a JSON object.
    pub fn of(object: &'a mut Value) -> Option<Self> {
        let metadata = object.as_object_mut()?.get_or_insert_with("metadata", Value::object);
        if metadata.is_null() {
            *metadata = Value::object();
        }
        metadata.as_object_mut().map(Self)
    }

    pub fn view(&self) -> Meta<'_> {
        Meta(Some(self.0))
    }

    pub fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.0.insert(field, value);
    }

    pub fn remove(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field)
    }

    pub fn set_resource_version(&mut self, version: u64) {
        self.set("resourceVersion", version.to_string());
    }

    /// Sets `deletionTimestamp` and `deletionGracePeriodSeconds`.
    pub fn set_deletion(&mut self, at: Time, grace_period_seconds: i64) {
        self.set("deletionTimestamp", at.to_string());
        self.set("deletionGracePeriodSeconds", grace_period_seconds);
    }

    pub fn set_label(&mut self, key: &str, value: &str) {
        self.set_in("labels", key, value);
    }

    pub fn set_annotation(&mut self, key: &str, value: &str) {
        self.set_in("annotations", key, value);
    }

    /// Removes a label, and the `labels` field with the last one.
    pub fn remove_label(&mut self, key: &str) {
        self.remove_in("labels", key);
    }

    /// Removes an annotation, and the `annotations` field with the last one.
    pub fn remove_annotation(&mut self, key: &str) {
        self.remove_in("annotations", key);
    }

    /// Adds a finalizer if it is missing. Returns whether it was added.
    pub fn add_finalizer(&mut self, name: &str) -> bool {
        if self.view().finalizers().any(|have| have == name) {
            return false;
        }
        let list = self.0.get_or_insert_with("finalizers", || Value::Array(Vec::new()));
        if list.as_array().is_none() {
            *list = Value::Array(Vec::new());
        }
        list.as_array_mut().expect("the value was made a list above").push(name.into());
        true
    }

    /// Removes a finalizer, and the list with the last one. Returns whether the finalizer was present.
    pub fn remove_finalizer(&mut self, name: &str) -> bool {
        let Some(list) = self.0.get_mut("finalizers").and_then(Value::as_array_mut) else { return false };
        let before = list.len();
        list.retain(|have| have.as_str() != Some(name));
        let (removed, empty) = (list.len() < before, list.is_empty());
        if empty {
            self.remove("finalizers");
        }
        removed
    }

    fn set_in(&mut self, field: &str, key: &str, value: &str) {
        let map = self.0.get_or_insert_with(field, Value::object);
        if map.as_object().is_none() {
            *map = Value::object();
        }
        map.as_object_mut().expect("the value was made an object above").insert(key, value);
    }

    fn remove_in(&mut self, field: &str, key: &str) {
        let Some(map) = self.0.get_mut(field).and_then(Value::as_object_mut) else { return };
        map.remove(key);
        if map.is_empty() {
            self.remove(field);
        }
    }

    fn copy(&mut self, field: &str, from: Meta<'_>) {
        match from.value(field) {
            Some(value) => self.set(field, value.clone()),
            None => drop(self.remove(field)),
        }
    }
}

impl<'a> OwnerReference<'a> {
    pub fn api_version(self) -> &'a str {
        self.text("apiVersion")
    }

    pub fn kind(self) -> &'a str {
        self.text("kind")
    }

    pub fn name(self) -> &'a str {
        self.text("name")
    }

    pub fn uid(self) -> &'a str {
        self.text("uid")
    }

    pub fn is_controller(self) -> bool {
        self.flag("controller") == Some(true)
    }

    /// Whether foreground deletion must delete this object before the owner.
    pub fn blocks_owner_deletion(self) -> bool {
        self.flag("blockOwnerDeletion") == Some(true)
    }

    fn text(self, field: &str) -> &'a str {
        self.0.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn flag(self, field: &str) -> Option<bool> {
        self.0.get(field)?.as_bool()
    }
}

#[cfg(test)]
mod tests;
