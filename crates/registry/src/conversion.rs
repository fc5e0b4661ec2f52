//! An object's way between the version of a request and the version it is stored in.
//!
//! Objects of a kind that a webhook converts stay in the version of the request until they are written: then, and when
//! they are read, the server asks the webhook ([`review`]), and the functions here leave them as they are.

pub mod review;

use api::kind::{Keeping, Kind, Shape, Version};
use machinery::apply::{FieldSet, Versions, zero};
use machinery::{Schema, Str, Value};

/// Makes an object of a request's version one of the stored version. For custom resources this happens when they are
/// written to the store, for built-in kinds before their rules see them.
pub fn to_stored(object: &mut Value, kind: &Kind, version: &Version) {
    if kind.converter.is_some() {
        return;
    }
    if let Some(convert) = &version.convert {
        (convert.to_stored)(object);
    }
    if let Keeping::Stored { version: stored, .. } = &kind.keeping {
        set_api_version(object, &stored.to_string());
    }
}

/// Makes an object of the stored version one of a request's version.
pub fn from_stored(object: &mut Value, kind: &Kind, version: &Version) {
    if kind.converter.is_some() {
        return;
    }
    if let Some(convert) = &version.convert {
        (convert.from_stored)(object);
    }
    set_api_version(object, &kind.gvk(&version.name).api_version());
}

/// Whether objects of this version are stored as they are.
pub fn is_stored(kind: &Kind, version: &Version) -> bool {
    match &kind.keeping {
        Keeping::Stored { version: stored, .. } => stored.group == kind.group && stored.version == version.name,
        Keeping::Answered(_) => true,
    }
}

fn set_api_version(object: &mut Value, api_version: &str) {
    if let Value::Object(fields) = object {
        fields.insert("apiVersion", api_version);
    }
}

/// The versions of a kind, as managed fields need them.
#[derive(Clone, Copy, Debug)]
pub struct Managed<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// The subresource that is written.
    pub subresource: &'a str,
}

impl Managed<'_> {
    fn version(&self, api_version: &str) -> Option<&Version> {
        let name = match api_version.rsplit_once('/') {
            Some((group, name)) => (group == self.kind.group).then_some(name)?,
            None => self.kind.group.is_empty().then_some(api_version)?,
        };
        self.kind.version(name)
    }
}

impl Versions for Managed<'_> {
    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        self.version(api_version).map(Version::schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let from = object.str_at(&["apiVersion"]).unwrap_or_default();
        let versions = (self.version(from), self.version(api_version));
        let (Some(from), Some(to)) = versions else { return Err(format!("there is no version {api_version}")) };
        let mut object = object.clone();
        if self.kind.converter.is_some() {
            // DEVIATION: who owns which field of a webhook-converted object is compared between versions by the fields' names.
            set_api_version(&mut object, api_version);
            return Ok(object);
        }
        to_stored(&mut object, self.kind, from);
        from_stored(&mut object, self.kind, to);
        Ok(object)
    }

    fn reset_fields(&self, _: &str) -> FieldSet {
        match self.kind.subresource("status") {
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
