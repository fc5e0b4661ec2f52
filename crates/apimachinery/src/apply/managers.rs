//! Field managers: parsing, writing and limiting the `managedFields` of an object.

use super::fields_v1::FieldsError;
use super::fieldset::FieldSet;
use super::gotext;
use crate::field;
use crate::time::Time;
use crate::{Object, Path, Str, Value, go};

/// Maximum number of `Update` entries in an object; older entries are merged.
pub const MAX_UPDATERS: usize = 10;

/// Maximum length of a manager name in bytes.
pub const MAX_MANAGER_NAME: usize = 128;

/// The manager name of the entry into which the oldest updates are merged.
const ANCIENT: &str = "ancient-changes";

/// The operation through which a manager owns its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply: the manager states all fields it wants.
    Apply,
    /// Any other write: the manager owns the fields it changed last.
    Update,
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub manager: Str,
    pub operation: Operation,
    /// The `apiVersion` of `fields`.
    pub api_version: Str,
    /// Empty for the main resource.
    pub subresource: Str,
    /// Time of the last change to `fields`, as serialized.
    pub time: Option<Str>,
    pub fields: FieldSet,
}

/// The `managedFields` of an object. Each owner has at most one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners(pub(super) Vec<Owner>);

/// A `managedFields` value is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnersError {
    /// The value is not a list, or an entry is not an object.
    #[error("managedFields must be a list of objects")]
    NotAList,
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    NoVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// The `fieldsType` is not `FieldsV1`.
    #[error("invalid fieldsType {} in managed fields entry {}", go::quote(.0), .1)]
    FieldsType(String, usize),
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

/// Validates the manager name found at `path`; returns all errors.
pub fn validate_manager_name(path: &Path<'_>, name: &str) -> Vec<field::Error> {
    let long = (name.len() > MAX_MANAGER_NAME).then(|| field::Error::too_long(path, MAX_MANAGER_NAME));
    let unprintable = name.char_indices().filter(|(_, c)| !gotext::is_print(*c)).map(|(at, c)| {
        field::Error::invalid(path, name, format!("invalid character U+{:04X} (at position {at})", u32::from(c)))
    });
    long.into_iter().chain(unprintable).collect()
}

impl Operation {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl Owner {
    /// Whether both entries belong to one owner. An applier is the same owner in all versions; an updater is a separate
    /// owner per version.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Returns upstream's manager identifier. Messages and the merging of the oldest updates are ordered by it.
    pub(super) fn identifier(&self) -> String {
        let version = if self.operation == Operation::Apply { "" } else { self.api_version.as_str() };
        let parts = [
            ("manager", self.manager.as_str()),
            ("operation", self.operation.as_str()),
            ("apiVersion", version),
            ("subresource", self.subresource.as_str()),
        ];
        let mut out = String::from("{");
        for (name, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
            if out.len() > 1 {
                out.push(',');
            }
            gotext::write_json_string(&mut out, name, true);
            out.push(':');
            gotext::write_json_string(&mut out, value, true);
        }
        out.push('}');
        out
    }

    fn from_value(at: usize, value: &Value) -> Result<Self, OwnersError> {
        let entry = value.as_object().ok_or(OwnersError::NotAList)?;
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(OwnersError::Operation),
        };
        if text("apiVersion").is_empty() {
            return Err(OwnersError::NoVersion);
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(OwnersError::NoFieldsType(at)),
            other => return Err(OwnersError::FieldsType(other.to_owned(), at)),
        }
        Ok(Self {
            manager: text("manager").into(),
            operation,
            api_version: text("apiVersion").into(),
            subresource: text("subresource").into(),
            time: entry.get("time").and_then(Value::as_str).map(Str::from),
            fields: entry.get("fieldsV1").map_or(Ok(FieldSet::EMPTY), FieldSet::from_value)?,
        })
    }

    fn to_value(&self) -> Value {
        let text = |text: &Str| (!text.is_empty()).then(|| Value::String(text.clone()));
        let parts = [
            ("apiVersion", text(&self.api_version)),
            ("fieldsType", Some("FieldsV1".into())),
            ("fieldsV1", Some(self.fields.to_value())),
            ("manager", text(&self.manager)),
            ("operation", Some(self.operation.as_str().into())),
            ("subresource", text(&self.subresource)),
            ("time", self.time.clone().map(Value::String)),
        ];
        let parts = parts.into_iter().filter_map(|(name, value)| Some((Str::const_new(name), value?)));
        Value::Object(Object::from_entries(parts.collect(), |_| {}))
    }

    fn seconds(&self) -> i64 {
        self.time.as_ref().and_then(|time| Time::parse(time).ok()).map_or(0, Time::unix_seconds)
    }
}

impl Owners {
    /// Parses the `managedFields` of an object. Later entries of the same owner override earlier ones.
    pub fn of(object: &Value) -> Result<Self, OwnersError> {
        object.at(&["metadata", "managedFields"]).map_or(Ok(Self::default()), Self::from_value)
    }

    /// Parses a `managedFields` list.
    pub fn from_value(value: &Value) -> Result<Self, OwnersError> {
        let entries = match value {
            Value::Null => return Ok(Self::default()),
            Value::Array(entries) => entries,
            _ => return Err(OwnersError::NotAList),
        };
        let mut owners = Self(Vec::with_capacity(entries.len()));
        for (at, entry) in entries.iter().enumerate() {
            owners.put(Owner::from_value(at, entry)?);
        }
        Ok(owners)
    }

    /// Returns the `managedFields` list in storage order: appliers first, then by time, name, version and subresource.
    pub fn to_value(&self) -> Value {
        let mut owners: Vec<_> = self.0.iter().map(|owner| (owner.seconds(), owner)).collect();
        owners.sort_by(|(a_time, a), (b_time, b)| {
            let order = a.operation.cmp(&b.operation).then(a_time.cmp(b_time)).then_with(|| a.manager.cmp(&b.manager));
            order.then_with(|| a.api_version.cmp(&b.api_version)).then_with(|| a.subresource.cmp(&b.subresource))
        });
        Value::Array(owners.into_iter().map(|(_, owner)| owner.to_value()).collect())
    }

    /// Returns the owners in unspecified order.
    pub fn list(&self) -> &[Owner] {
        &self.0
    }

    /// Writes `managedFields` into an object; removes the field if there are no owners.
    pub fn write(&self, object: &mut Value) {
        if self.0.is_empty() {
            clear(object);
        } else {
            set_owners(object, self.to_value());
        }
    }

    /// Returns the index of the owner's entry.
    pub(super) fn find(&self, owner: &Owner) -> Option<usize> {
        self.0.iter().position(|have| have.is(owner))
    }

    /// Replaces or adds the owner's entry.
    pub(super) fn put(&mut self, owner: Owner) {
        match self.find(&owner) {
            Some(at) => self.0[at] = owner,
            None => self.0.push(owner),
        }
    }

    /// Merges the oldest updaters of each version until at most [`MAX_UPDATERS`] remain.
    pub(super) fn cap_updaters(&mut self) {
        let updaters = self.0.iter().filter(|owner| owner.operation == Operation::Update);
        let mut updaters: Vec<Owner> = updaters.cloned().collect();
        if updaters.len() <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by_cached_key(|owner| (owner.seconds(), owner.identifier()));
        let mut left = updaters.len();
        let mut first_of: Vec<Owner> = Vec::new();
        for owner in updaters {
            if left <= MAX_UPDATERS {
                return;
            }
            let Some(first) = first_of.iter().find(|first| first.api_version == owner.api_version) else {
                first_of.push(owner);
                continue;
            };
            let mut bucket = Owner { manager: ANCIENT.into(), subresource: Str::default(), ..owner.clone() };
            let existing = if owner.is(&bucket) { None } else { self.find(&bucket) };
            let before = existing.or_else(|| self.find(first));
            if let Some(at) = before {
                bucket.fields = owner.fields.union(&self.0.remove(at).fields);
            }
            self.0.retain(|have| !have.is(&owner));
            self.put(bucket);
            left -= 1;
        }
    }
}

pub(super) fn set_owners(object: &mut Value, owners: Value) {
    let Value::Object(object) = object else { return };
    let metadata = object.get_or_insert_with("metadata", Value::object);
    if metadata.is_null() {
        *metadata = Value::object();
    }
    if let Value::Object(metadata) = metadata {
        metadata.insert("managedFields", owners);
    }
}

pub(super) fn clear(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}
