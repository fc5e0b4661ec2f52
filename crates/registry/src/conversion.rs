//! An object's way between the version of a request and the version it is stored in.
//!
//! ```text
//! built-in: request ──to_stored──> [admission, rules] ──> store ──from_stored──> answer
//! custom:   request ──> [admission, rules] ──in_version──> store ──refresh, in_version──> answer
//! ```
//!
//! Custom resources stay in the version of the request until they are written, since their rules are those of a version.
//! Where a webhook converts them, the server asks it ([`review`]), and [`in_version`] has nothing to do.

pub mod review;

use std::borrow::Cow;

use api::kind::{Keeping, Kind, Shape, Version};
use machinery::apply::{FieldSet, Versions, zero};
use machinery::{Schema, Str, Value, defaulting, pruning};

/// Makes an object of a request's version one of the version in which the rules of its kind see it: the stored one, for
/// a built-in kind.
pub fn to_stored(object: &mut Value, kind: &Kind, version: &Version) {
    if kind.is_custom() {
        return;
    }
    if let Some(convert) = &version.convert {
        (convert.to_stored)(object);
    }
    if let Keeping::Stored { version: stored, .. } = &kind.keeping {
        set_api_version(object, &stored.to_string());
    }
}

/// Makes an object on its way one of a version: from the stored one, for a built-in kind.
pub fn from_stored(object: &mut Value, kind: &Kind, version: &Version) {
    if kind.is_custom() {
        return in_version(object, kind, version);
    }
    if let Some(convert) = &version.convert {
        (convert.from_stored)(object);
    }
    set_api_version(object, &kind.gvk(&version.name).api_version());
}

/// The same of an object that stays as it is: a copy only if it is in another version.
pub fn in_request<'o>(object: &'o Value, kind: &Kind, version: &Version) -> Cow<'o, Value> {
    let is_there = object.str_at(&["apiVersion"]) == Some(kind.gvk(&version.name).api_version().as_str());
    if is_there && version.convert.is_none() {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    from_stored(&mut object, kind, version);
    Cow::Owned(object)
}

/// Makes a custom resource one of another version, of which it keeps what that has. No webhook is asked: where one
/// converts, nothing is done.
pub fn in_version(object: &mut Value, kind: &Kind, version: &Version) {
    let api_version = kind.gvk(&version.name).api_version();
    if kind.is_custom() && kind.converter.is_none() && object.str_at(&["apiVersion"]) != Some(api_version.as_str()) {
        set_api_version(object, &api_version);
        pruning::prune(object, version.schema());
    }
}

/// Makes a custom resource that was read what its definition says now, in the version in which it is: it may have been
/// written before the schema changed.
pub fn refresh(object: &mut Value, kind: &Kind) {
    if let Some(version) = version_of(object, kind).filter(|version| matches!(version.shape, Shape::Custom(..))) {
        pruning::prune(object, version.schema());
        defaulting::default(object, version.schema());
    }
}

/// The version in which an object says it is, if its kind has that.
fn version_of<'k>(object: &Value, kind: &'k Kind) -> Option<&'k Version> {
    let (group, version) = object.str_at(&["apiVersion"])?.rsplit_once('/')?;
    (group == kind.group).then(|| kind.version(version)).flatten()
}

/// The version in which the objects of a kind are stored, if that is one of its own.
pub fn stored_version(kind: &Kind) -> Option<&Version> {
    match &kind.keeping {
        Keeping::Stored { version, .. } if version.group == kind.group => kind.version(&version.version),
        _ => None,
    }
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
