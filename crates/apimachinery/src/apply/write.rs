//! One write to one object: the merge of an apply, and the resulting `managedFields`.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::collect::field_set;
use super::compare::{Comparison, compare};
use super::conflict::Conflicts;
use super::fieldset::FieldSet;
use super::last_applied;
use super::managers::{Operation, Owner, Owners, OwnersError, clear, set_owners};
use super::merge::merge;
use super::prune::{convert, prune};
use super::reconcile::reconcile;
use super::typed::same;
use super::validate::{Duplicates, Violations, validate};
use crate::time::Time;
use crate::{Schema, Str, Value};

/// The manager that owns the existing fields of an object without `managedFields` when it is first applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields without an owner: they identify the object or are set by the server.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

pub trait Versions {
    /// Returns the schema of a version; [`None`] if the version no longer exists.
    fn schema(&self, api_version: &str) -> Option<Schema<'_>>;

    /// Converts an object to another version that [`schema`](Self::schema) knows. The error is a message for the
    /// client.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String>;

    /// Returns the fields that a write of this kind ignores, such as `status` in writes to the main resource.
    fn reset_fields(&self, api_version: &str) -> FieldSet;

    /// Returns the object without set fields, with which a new object is compared: [`zero`](super::zero::zero) for a
    /// built-in kind, only `apiVersion` and `kind` for a custom one.
    fn empty(&self, api_version: &str) -> Value;
}

#[derive(Clone, Debug)]
pub struct OneVersion<'a> {
    pub api_version: &'a str,
    pub schema: Schema<'a>,
    /// See [`Versions::reset_fields`].
    pub reset_fields: FieldSet,
    /// See [`Versions::empty`].
    pub empty: Value,
}

impl Versions for OneVersion<'_> {
    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        (self.api_version == api_version).then_some(self.schema)
    }

    fn convert(&self, _: &Value, api_version: &str) -> Result<Value, String> {
        Err(format!("there is no version {api_version}"))
    }

    fn reset_fields(&self, _: &str) -> FieldSet {
        self.reset_fields.clone()
    }

    fn empty(&self, _: &str) -> Value {
        self.empty.clone()
    }
}

/// One write to an object by a field manager.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    pub versions: &'a dyn Versions,
    /// The version of the objects in this write.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
    pub manager: &'a str,
    pub now: Time,
}

/// The result of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplyResult {
    /// The merged object with `managedFields`. Defaults are not applied yet.
    pub object: Value,
    /// Whether anything except `managedFields` differs from the live object.
    pub changed: bool,
}

/// A write failed. Only [`Error::Conflict`] and the 400 errors are caused by the client.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Other managers own fields that would change: 409.
    #[error(transparent)]
    Conflict(Conflicts),
    /// The object has a different kind than the resource: 400.
    #[error("invalid object type: {0}")]
    WrongType(String),
    /// The applied object sets `managedFields`: 400.
    #[error("metadata.managedFields must be nil")]
    HasManagedFields,
    #[error("no corresponding type for {0}")]
    NoVersion(String),
    /// The `managedFields` of the stored object are invalid.
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(#[source] OwnersError),
    /// The applied object does not match its schema.
    #[error("failed to create typed patch object ({object}): {violations}")]
    Patch {
        /// Namespace, name and kind for the message.
        object: String,
        violations: Violations,
    },
    /// The stored object does not match its schema.
    #[error("failed to create typed live object ({object}): {violations}")]
    Live {
        /// Namespace, name and kind for the message.
        object: String,
        violations: Violations,
    },
    /// The written or the stored object does not match its schema.
    #[error("failed to convert {which} object ({object}) to smd typed: {violations}")]
    Typed {
        /// `new` or `live`.
        which: &'static str,
        object: String,
        violations: Violations,
    },
    #[error("failed to convert object: {0}")]
    Convert(String),
}

impl Write<'_> {
    /// Applies `config` to `live`; without `live` the object is created.
    pub fn apply(&self, live: Option<&Value>, config: &Value, force: bool) -> Result<ApplyResult, Error> {
        let kind = group_version_kind(config);
        if config.str_at(&["apiVersion"]) != Some(self.api_version) || config.str_at(&["kind"]) != Some(self.kind) {
            return Err(Error::WrongType(kind));
        }
        let mut owners = live.map_or(Ok(Owners::default()), Owners::of).map_err(Error::ManagedFields)?;
        let written = live.and_then(|live| live.at(&["metadata", "managedFields"]));
        let before = owners.clone();
        let live = match live {
            Some(live) => without_owners(live),
            None => self.versions.empty(self.api_version),
        };
        if owners.0.is_empty() {
            let before = Write { manager: BEFORE_FIRST_APPLY, ..*self };
            owners = before.take_changes(owners, &self.versions.empty(self.api_version), &live)?;
        }
        if config.at(&["metadata", "managedFields"]).is_some_and(|owners| !owners.is_null()) {
            return Err(Error::HasManagedFields);
        }
        let applied = self.merge_in(owners.clone(), &live, config, force);
        let (mut object, changed, owners) = match applied {
            Err(Error::Conflict(conflicts)) if self.manager == last_applied::KUBECTL => {
                self.take_over_client_side_apply(owners, &live, config, conflicts)?
            }
            other => other?,
        };
        match written.filter(|_| owners == before) {
            Some(written) => set_owners(&mut object, written.clone()),
            None => owners.write(&mut object),
        }
        if self.manager == last_applied::KUBECTL {
            last_applied::refresh(&mut object, config);
        }
        Ok(ApplyResult { object, changed })
    }

    /// Updates the `managedFields` of an object that is about to be written as `new` by any operation except apply.
    /// Without `live` the object is created.
    pub fn update(&self, live: Option<&Value>, mut new: Value) -> Result<Value, Error> {
        let owners = self.inherited_owners(live, &new);
        clear(&mut new);
        self.updated_owners(owners, live, &new)?.write(&mut new);
        Ok(new)
    }

    /// Calls [`update`](Self::update); if it fails, the object keeps the `managedFields` it had.
    pub fn update_or_keep(&self, live: Option<&Value>, mut new: Value) -> Value {
        let owners = self.inherited_owners(live, &new);
        clear(&mut new);
        match self.updated_owners(owners, live, &new) {
            Ok(owners) => owners.write(&mut new),
            Err(_) => {
                if let Some(managed_fields) = live.and_then(|live| live.at(&["metadata", "managedFields"])) {
                    set_owners(&mut new, managed_fields.clone());
                }
            }
        }
        new
    }

    /// Returns the owners after an update to `new`, which has no `managedFields`.
    fn updated_owners(&self, owners: Owners, live: Option<&Value>, new: &Value) -> Result<Owners, Error> {
        let exists = live.is_some_and(|live| live.str_at(&["metadata", "uid"]).is_some_and(|uid| !uid.is_empty()));
        // An object without managedFields is not tracked until the first apply.
        if owners.0.is_empty() && exists {
            return Ok(owners);
        }
        let live = live.map_or_else(|| self.versions.empty(self.api_version), without_owners);
        self.take_changes(owners, &live, new)
    }

    /// Returns the owners that an update starts from. A client may change them, or reset them with an empty list or a
    /// list of one empty entry. Missing or invalid `managedFields` leave the live owners unchanged.
    fn inherited_owners(&self, live: Option<&Value>, new: &Value) -> Owners {
        let of_live = || live.and_then(|live| Owners::of(live).ok()).unwrap_or_default();
        if !self.subresource.is_empty() {
            return of_live();
        }
        if new.at(&["metadata", "managedFields"]).is_some_and(is_reset) {
            return Owners::default();
        }
        match Owners::of(new) {
            Ok(owners) if !owners.0.is_empty() => owners,
            _ => of_live(),
        }
    }

    fn take_over_client_side_apply(
        &self,
        owners: Owners,
        live: &Value,
        config: &Value,
        conflicts: Conflicts,
    ) -> Result<(Value, bool, Owners), Error> {
        let allowed = self.schema().ok().and_then(|it| last_applied::unchanged_fields(it, self.api_version, live));
        let Some(allowed) = allowed else { return Err(Error::Conflict(conflicts)) };
        match conflicts.outside(&allowed) {
            Some(conflicts) => Err(Error::Conflict(conflicts)),
            None => self.merge_in(owners, live, config, true),
        }
    }

    fn merge_in(
        &self,
        mut owners: Owners,
        live: &Value,
        config: &Value,
        force: bool,
    ) -> Result<(Value, bool, Owners), Error> {
        let schema = self.schema()?;
        validate(schema, config, Duplicates::Rejected)
            .map_err(|violations| Error::Patch { object: describe(config), violations })?;
        validate(schema, live, Duplicates::Allowed)
            .map_err(|violations| Error::Live { object: describe(live), violations })?;
        self.reconcile_all(&mut owners);
        let mut merged = live.clone();
        merge(schema, &mut merged, config);
        let fields = field_set(schema, config).recursive_difference(&self.versions.reset_fields(self.api_version));
        let mut owner = self.owner(Operation::Apply, fields.clone());
        let last = owners.find(&owner).map(|at| owners.0[at].clone());
        owner.time = last.as_ref().and_then(|last| last.time.clone());
        owners.put(owner.clone());
        if let Some(last) = &last {
            merged = prune(self.versions, self.api_version, merged, &owners, &fields, last)?;
        }
        let changed = !same(live, &merged);
        // Without a change, or without other owners, no owner can lose a field.
        if changed && owners.0.iter().any(|other| !other.is(&owner)) {
            self.update_owners(&mut owners, Some(&owner), live, &merged, force)?;
        }
        owners.0.retain(|owner| !owner.fields.is_empty());
        if let Some(at) = owners.find(&owner) {
            let own = &mut owners.0[at];
            own.fields = own.fields.difference(&UNOWNED);
            if changed {
                own.time = Some(self.now.to_string().into());
            }
            if own.fields.is_empty() {
                owners.0.remove(at);
            }
        }
        Ok((merged, changed, owners))
    }

    /// Makes this manager the owner of all fields that differ between `live` and `new`.
    fn take_changes(&self, mut owners: Owners, live: &Value, new: &Value) -> Result<Owners, Error> {
        let schema = self.schema()?;
        for (which, object) in [("new", new), ("live", live)] {
            validate(schema, object, Duplicates::Allowed).map_err(|violations| Error::Typed {
                which,
                object: describe(object),
                violations,
            })?;
        }
        self.reconcile_all(&mut owners);
        let changes = self.update_owners(&mut owners, None, live, new, true)?;
        let fields = changes.modified.union(&changes.added).difference(&UNOWNED);
        if !fields.is_empty() {
            let mut owner = self.owner(Operation::Update, fields);
            owner.time = Some(self.now.to_string().into());
            if let Some(at) = owners.find(&owner) {
                owner.fields = owner.fields.union(&owners.0[at].fields);
            }
            owners.put(owner);
        }
        owners.cap_updaters();
        Ok(owners)
    }

    /// Removes the fields that change between `live` and `new` from all owners except `applier`, and drops owners
    /// without remaining fields. Without `force`, fails with [`Error::Conflict`] if an owner would lose a field.
    ///
    /// Returns the comparison in the version of this write.
    fn update_owners(
        &self,
        owners: &mut Owners,
        applier: Option<&Owner>,
        live: &Value,
        new: &Value,
        force: bool,
    ) -> Result<Comparison, Error> {
        let mut by_version = vec![(Str::from(self.api_version), self.changes(self.api_version, live, new)?)];
        for owner in &owners.0 {
            if by_version.iter().all(|(version, _)| *version != owner.api_version) {
                let changes = self.changes(&owner.api_version, live, new)?;
                by_version.push((owner.api_version.clone(), changes));
            }
        }
        let of = |owner: &Owner| {
            let found = by_version.iter().find(|(version, _)| *version == owner.api_version);
            found.map(|(_, changes)| changes).expect("the version of every owner was checked")
        };
        let others = owners.0.iter().filter(|owner| !applier.is_some_and(|applier| applier.is(owner)));
        let lost = others.map(|owner| (owner, owner.fields.intersection(&of(owner).set)));
        if !force && let Some(conflicts) = Conflicts::of(lost) {
            return Err(Error::Conflict(conflicts));
        }
        owners.0.retain_mut(|owner| {
            if !applier.is_some_and(|applier| applier.is(owner)) {
                let changes = of(owner);
                owner.fields = owner.fields.difference(&changes.set).difference(&changes.comparison.removed);
            }
            !owner.fields.is_empty()
        });
        Ok(by_version.swap_remove(0).1.comparison)
    }

    /// Returns the changes between two objects, compared in a version.
    fn changes(&self, api_version: &str, live: &Value, new: &Value) -> Result<Changes, Error> {
        let Some(schema) = self.versions.schema(api_version) else { return Ok(Changes::default()) };
        let (live, new) = if api_version == self.api_version {
            (Cow::Borrowed(live), Cow::Borrowed(new))
        } else {
            (convert(self.versions, live, api_version)?, convert(self.versions, new, api_version)?)
        };
        let comparison = compare(schema, &live, &new).without(&self.versions.reset_fields(api_version));
        let set = comparison.modified.union(&comparison.added);
        Ok(Changes { comparison, set })
    }

    /// Adapts all sets to the current schemas, and drops owners in versions that no longer exist.
    fn reconcile_all(&self, owners: &mut Owners) {
        owners.0.retain_mut(|owner| match self.versions.schema(&owner.api_version) {
            Some(schema) => {
                owner.fields = reconcile(schema, &owner.fields);
                true
            }
            None => false,
        });
    }

    fn owner(&self, operation: Operation, fields: FieldSet) -> Owner {
        Owner {
            manager: if self.manager.is_empty() { "unknown" } else { self.manager }.into(),
            operation,
            api_version: self.api_version.into(),
            subresource: self.subresource.into(),
            time: None,
            fields,
        }
    }

    fn schema(&self) -> Result<Schema<'_>, Error> {
        let missing_version = || Error::NoVersion(format!("{}, Kind={}", self.api_version, self.kind));
        self.versions.schema(self.api_version).ok_or_else(missing_version)
    }
}

/// The comparison of two objects, and the fields that have a new value.
#[derive(Default)]
struct Changes {
    comparison: Comparison,
    set: FieldSet,
}

/// Keeps the old times if only times in `managedFields` would change, so that the write is a no-op.
pub fn keep_times(old: &Value, new: &mut Value) {
    let at = &["metadata", "managedFields"];
    let (Some(Value::Array(before)), Some(Value::Array(after))) = (old.at(at), new.at(at)) else { return };
    let alike = |a: &Value, b: &Value| match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let rest = |(key, _): &(&str, &Value)| *key != "time";
            a.iter().filter(rest).eq(b.iter().filter(rest))
        }
        _ => false,
    };
    if before == after || before.len() != after.len() || !before.iter().zip(after).all(|(a, b)| alike(a, b)) {
        return;
    }
    let before = Value::Array(before.clone());
    let Some(Value::Object(metadata)) = new.get_mut("metadata") else { return };
    let after = metadata.insert("managedFields", before).unwrap_or_default();
    if old != new
        && let Some(Value::Object(metadata)) = new.get_mut("metadata")
    {
        metadata.insert("managedFields", after);
    }
}

/// Whether `managedFields` requests a reset: an empty list, or one empty entry.
fn is_reset(owners: &Value) -> bool {
    match owners.as_array() {
        Some([]) => true,
        Some([Value::Object(only)]) => only.values().all(Value::is_null),
        _ => false,
    }
}

/// Copies an object without `managedFields`, which are often more than half of it.
fn without_owners(object: &Value) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let fields = fields.iter().map(|(name, value)| match value {
        Value::Object(metadata) if name == "metadata" => {
            let remaining = metadata.iter().filter(|(name, _)| *name != "managedFields");
            (name, Value::Object(remaining.map(|(name, value)| (name, value.clone())).collect()))
        }
        _ => (name, value.clone()),
    });
    Value::Object(fields.collect())
}

/// Describes an object as in messages: `namespace/name; group/version, Kind=Kind`.
fn describe(object: &Value) -> String {
    let text = |key| object.str_at(&["metadata", key]).unwrap_or_default();
    format!("{}/{}; {}", text("namespace"), text("name"), group_version_kind(object))
}

fn group_version_kind(object: &Value) -> String {
    let version = object.str_at(&["apiVersion"]).unwrap_or_default();
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", object.str_at(&["kind"]).unwrap_or_default())
}
