//! The metadata of objects: a view over the tree, names that are made up, and what is set on create and update.
//!
//! Reading never fails: what is absent or of another type reads as absent, since the schema engine has already
//! refused it where it matters.

mod validate;

pub use validate::{
    NamePart, NameRule, Scope, name_is_dns_label, name_is_dns_subdomain, name_is_dns1035_label, name_is_path_segment,
    validate_annotations, validate_conditions, validate_create, validate_field_manager, validate_finalizers,
    validate_labels, validate_managed_fields, validate_owner_references, validate_update,
};

use crate::time::Time;
use crate::{Object, Value};

/// The metadata of an object, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a>(Option<&'a Object>);

/// The metadata of an object, for changing.
#[derive(Debug)]
pub struct MetaMut<'a>(&'a mut Object);

/// One owner of an object.
#[derive(Clone, Copy, Debug)]
pub struct OwnerReference<'a>(&'a Value);

/// A finalizer that keeps an object until what it owns has lost the reference to it.
pub const FINALIZER_ORPHAN_DEPENDENTS: &str = "orphan";
/// A finalizer that keeps an object until what it owns is gone.
pub const FINALIZER_DELETE_DEPENDENTS: &str = "foregroundDeletion";

/// The letters and digits of made-up names: no vowels, which could form words, and nothing easily mistaken.
pub const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many of them a made-up name ends in.
pub const NAME_SUFFIX_LENGTH: usize = 5;
/// What is kept of a `generateName`: a label of 63 bytes less the suffix.
const NAME_BASE_MAX: usize = 63 - NAME_SUFFIX_LENGTH;

/// The name made from a `generateName` and a suffix.
pub fn generate_name(base: &str, suffix: &str) -> String {
    let base = &base[..base.floor_char_boundary(NAME_BASE_MAX)];
    format!("{base}{suffix}")
}

/// A suffix for [`generate_name`] from a random number.
pub fn name_suffix(mut random: u64) -> String {
    let mut letter = || {
        let letter = NAME_ALPHABET[(random % 27) as usize];
        random /= 27;
        char::from(letter)
    };
    std::iter::repeat_with(&mut letter).take(NAME_SUFFIX_LENGTH).collect()
}

/// Sets what the server alone decides on create, and a name if only `generateName` is there.
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

/// Puts back what a client left out of an update or may not change by one.
pub fn prepare_update(object: &mut Value, old: &Value) {
    let old = Meta::of(old);
    let Some(mut meta) = MetaMut::of(object) else { return };
    // The kind counts it up where its desired state changes.
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
    /// The metadata of a whole object.
    pub fn of(object: &'a Value) -> Self {
        Self(object.get("metadata").and_then(Value::as_object))
    }

    /// The metadata itself, as templates embed it.
    pub fn from_metadata(metadata: &'a Value) -> Self {
        Self(metadata.as_object())
    }

    /// A field by name, `null` counting as absent.
    pub fn value(self, field: &str) -> Option<&'a Value> {
        self.0?.get(field).filter(|value| !value.is_null())
    }

    /// The name, empty if absent.
    pub fn name(self) -> &'a str {
        self.text("name")
    }

    /// The prefix that a name is to be made from, empty if absent.
    pub fn generate_name(self) -> &'a str {
        self.text("generateName")
    }

    /// The namespace, empty if absent.
    pub fn namespace(self) -> &'a str {
        self.text("namespace")
    }

    /// The unique identifier, empty if absent.
    pub fn uid(self) -> &'a str {
        self.text("uid")
    }

    /// The version of the object in the store, empty if absent.
    pub fn resource_version(self) -> &'a str {
        self.text("resourceVersion")
    }

    /// How often the desired state changed, zero if absent.
    pub fn generation(self) -> i64 {
        self.value("generation").and_then(Value::as_int).unwrap_or(0)
    }

    /// When it was created.
    pub fn creation_timestamp(self) -> Option<Time> {
        Time::parse(self.text("creationTimestamp")).ok()
    }

    /// When it is to be gone, if its deletion was asked for.
    pub fn deletion_timestamp(self) -> Option<Time> {
        Time::parse(self.text("deletionTimestamp")).ok()
    }

    /// Whether its deletion was asked for.
    pub fn is_deleting(self) -> bool {
        self.value("deletionTimestamp").is_some()
    }

    /// How long it may take to stop.
    pub fn deletion_grace_period_seconds(self) -> Option<i64> {
        self.value("deletionGracePeriodSeconds")?.as_int()
    }

    /// All labels.
    pub fn labels(self) -> Option<&'a Object> {
        self.value("labels")?.as_object()
    }

    /// The value of a label.
    pub fn label(self, key: &str) -> Option<&'a str> {
        self.labels()?.get(key)?.as_str()
    }

    /// All annotations.
    pub fn annotations(self) -> Option<&'a Object> {
        self.value("annotations")?.as_object()
    }

    /// The value of an annotation.
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.annotations()?.get(key)?.as_str()
    }

    /// The finalizers.
    pub fn finalizers(self) -> impl Iterator<Item = &'a str> {
        self.list("finalizers").iter().filter_map(Value::as_str)
    }

    /// The owners.
    pub fn owner_references(self) -> impl Iterator<Item = OwnerReference<'a>> {
        self.list("ownerReferences").iter().map(OwnerReference)
    }

    /// The owner that manages it, if one does.
    pub fn controller(self) -> Option<OwnerReference<'a>> {
        self.owner_references().find(|owner| owner.is_controller())
    }

    /// Who set which fields.
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
    /// The metadata of a whole object, made if it is not there. `None` if either is something other than an object.
    pub fn of(object: &'a mut Value) -> Option<Self> {
        let metadata = object.as_object_mut()?.get_or_insert_with("metadata", Value::object);
        if metadata.is_null() {
            *metadata = Value::object();
        }
        metadata.as_object_mut().map(Self)
    }

    /// The same metadata for reading.
    pub fn view(&self) -> Meta<'_> {
        Meta(Some(self.0))
    }

    /// Sets a field.
    pub fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.0.insert(field, value);
    }

    /// Takes a field out.
    pub fn remove(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field)
    }

    /// Sets the version of the object in the store.
    pub fn set_resource_version(&mut self, version: u64) {
        self.set("resourceVersion", version.to_string());
    }

    /// Marks the object as one whose deletion was asked for.
    pub fn set_deletion(&mut self, at: Time, grace_period_seconds: i64) {
        self.set("deletionTimestamp", at.to_string());
        self.set("deletionGracePeriodSeconds", grace_period_seconds);
    }

    /// Sets a label.
    pub fn set_label(&mut self, key: &str, value: &str) {
        self.set_in("labels", key, value);
    }

    /// Sets an annotation.
    pub fn set_annotation(&mut self, key: &str, value: &str) {
        self.set_in("annotations", key, value);
    }

    /// Takes a label out, and all labels if it was the last.
    pub fn remove_label(&mut self, key: &str) {
        self.remove_in("labels", key);
    }

    /// Takes an annotation out, and all annotations if it was the last.
    pub fn remove_annotation(&mut self, key: &str) {
        self.remove_in("annotations", key);
    }

    /// Adds a finalizer that is not there yet. Tells whether it was added.
    pub fn add_finalizer(&mut self, name: &str) -> bool {
        if self.view().finalizers().any(|have| have == name) {
            return false;
        }
        let list = self.0.get_or_insert_with("finalizers", || Value::Array(Vec::new()));
        if list.as_array().is_none() {
            *list = Value::Array(Vec::new());
        }
        list.as_array_mut().expect("made a list above").push(name.into());
        true
    }

    /// Takes a finalizer out, and the list if it was the last. Tells whether it was there.
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
        map.as_object_mut().expect("made an object above").insert(key, value);
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
    /// The group and version of the owner.
    pub fn api_version(self) -> &'a str {
        self.text("apiVersion")
    }

    /// The kind of the owner.
    pub fn kind(self) -> &'a str {
        self.text("kind")
    }

    /// The name of the owner.
    pub fn name(self) -> &'a str {
        self.text("name")
    }

    /// The unique identifier of the owner.
    pub fn uid(self) -> &'a str {
        self.text("uid")
    }

    /// Whether the owner manages the object.
    pub fn is_controller(self) -> bool {
        self.flag("controller") == Some(true)
    }

    /// Whether the owner cannot go before the object when it is deleted in the foreground.
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
