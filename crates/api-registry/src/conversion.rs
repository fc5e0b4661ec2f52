//! Conversion between the version of a request and the storage version.
//!
//! ```text
//! built-in: request ──to_stored──> [admission, rules] ──> store ──from_stored──> response
//! custom:   request ──> [admission, rules] ──in_version──> store ──refresh, in_version──> response
//! ```
//!
//! Custom resources stay in the request's version until they are written, since their rules are per version. If the CRD
//! has a conversion webhook, the server calls it ([`review`]), and [`in_version`] does nothing.

pub mod review;

use std::borrow::Cow;

use api::kind::{Kind, Persistence, Shape, Version};
use apimachinery::apply::{FieldSet, Versions, zero};
use apimachinery::{Schema, Str, Value, defaulting, pruning};

/// Converts an object from the request's version to the version of its kind's rules, which is the storage version for a
/// built-in kind.
pub fn to_stored(object: &mut Value, kind: &Kind, version: &Version) {
    if kind.is_custom() {
        return;
    }
    if let Some(convert) = &version.convert {
        (convert.to_stored)(object);
    }
    if let Persistence::Stored { version: stored, .. } = &kind.persistence {
        set_api_version(object, &stored.to_string());
    }
}

/// Converts an object from the storage version to `version`. For a custom resource this is [`in_version`].
pub fn from_stored(object: &mut Value, kind: &Kind, version: &Version) {
    if kind.is_custom() {
        return in_version(object, kind, version);
    }
    if let Some(convert) = &version.convert {
        (convert.from_stored)(object);
    }
    set_api_version(object, &kind.gvk(&version.name).api_version());
}

/// Like [`from_stored`], but borrows the object if it already has that version and needs no conversion.
pub fn in_request<'o>(object: &'o Value, kind: &Kind, version: &Version) -> Cow<'o, Value> {
    let is_there = object.str_at(&["apiVersion"]) == Some(kind.gvk(&version.name).api_version().as_str());
    if is_there && version.convert.is_none() {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    from_stored(&mut object, kind, version);
    Cow::Owned(object)
}

/// Returns a stored object with the current CRD applied: pruned and defaulted.
pub fn refreshed(kind: &Kind, mut stored: Value) -> Value {
    if kind.is_custom() {
        refresh(&mut stored, kind);
    }
    stored
}

/// Converts a custom resource to another version and drops the fields that version does not have. Does nothing if a
/// webhook converts the kind.
pub fn in_version(object: &mut Value, kind: &Kind, version: &Version) {
    let api_version = kind.gvk(&version.name).api_version();
    if kind.is_custom() && kind.converter.is_none() && object.str_at(&["apiVersion"]) != Some(api_version.as_str()) {
        set_api_version(object, &api_version);
        pruning::prune(object, version.schema());
    }
}

/// Prunes and defaults a stored custom resource by the current schema of its stored version. It may have been written
/// before the schema changed.
pub fn refresh(object: &mut Value, kind: &Kind) {
    if let Some(version) = version_of(object, kind).filter(|version| matches!(version.shape, Shape::Custom(..))) {
        pruning::prune(object, version.schema());
        defaulting::default(object, version.schema());
    }
}

/// Returns the version in an object's apiVersion, if its kind has that version.
fn version_of<'k>(object: &Value, kind: &'k Kind) -> Option<&'k Version> {
    let (group, version) = object.str_at(&["apiVersion"])?.rsplit_once('/')?;
    (group == kind.group).then(|| kind.version(version)).flatten()
}

/// Returns the storage version of a kind, if it is one of the kind's own versions.
pub fn stored_version(kind: &Kind) -> Option<&Version> {
    match &kind.persistence {
        Persistence::Stored { version, .. } if version.group == kind.group => kind.version(&version.version),
        _ => None,
    }
}

/// Whether objects of this version are stored without conversion.
pub fn is_stored(kind: &Kind, version: &Version) -> bool {
    match &kind.persistence {
        Persistence::Stored { version: stored, .. } => stored.group == kind.group && stored.version == version.name,
        Persistence::Virtual(_) => true,
    }
}

fn set_api_version(object: &mut Value, api_version: &str) {
    if let Value::Object(fields) = object {
        fields.insert("apiVersion", api_version);
    }
}

/// Version conversion for managedFields.
#[derive(Clone, Copy, Debug)]
pub struct ManagedFieldsConverter<'a> {
    pub kind: &'a Kind,
    /// The written subresource.
    pub subresource: &'a str,
}

impl ManagedFieldsConverter<'_> {
    fn version(&self, api_version: &str) -> Option<&Version> {
        let name = match api_version.rsplit_once('/') {
            Some((group, name)) => (group == self.kind.group).then_some(name)?,
            None => self.kind.group.is_empty().then_some(api_version)?,
        };
        self.kind.version(name)
    }
}

impl Versions for ManagedFieldsConverter<'_> {
    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        self.version(api_version).map(Version::schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let from = object.text_at(&["apiVersion"]);
        let versions = (self.version(from), self.version(api_version));
        let (Some(from), Some(to)) = versions else { return Err(format!("there is no version {api_version}")) };
        let mut object = object.clone();
        if self.kind.converter.is_some() {
            // DEVIATION: field ownership of a webhook-converted object is compared between versions by field name.
            set_api_version(&mut object, api_version);
            return Ok(object);
        }
        to_stored(&mut object, self.kind, from);
        from_stored(&mut object, self.kind, to);
        Ok(object)
    }

    fn reset_fields(&self, api_version: &str) -> FieldSet {
        let version = self.version(api_version).map(|version| version.name.as_str());
        match version.and_then(|version| self.kind.subresource(version, "status")) {
            Some(_) => FieldSet::of_fields(self.kind.rules.reset_fields(self.subresource)),
            None => FieldSet::EMPTY,
        }
    }

    fn empty(&self, api_version: &str) -> Value {
        let mut empty = match self.version(api_version) {
            Some(Version { shape: Shape::BuiltIn(schema), .. }) => zero(*schema),
            _ => Value::object(),
        };
        if let Value::Object(fields) = &mut empty {
            fields.insert("apiVersion", Str::from(api_version));
            fields.insert("kind", self.kind.kind.clone());
        }
        empty
    }
}
