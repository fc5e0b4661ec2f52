//! Items: the identity, owners and finalizers of an object of any kind.

use std::sync::Arc;

use apimachinery::meta::Meta;
use apimachinery::{Object, Resource, Str, Value};

/// The finalizer of foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphan deletion.
pub const ORPHAN: &str = "orphan";

/// The metadata of an object that ownership decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub resource: Arc<Resource>,
    pub uid: Str,
    pub resource_version: Str,
    pub owners: Box<[Owner]>,
    pub finalizers: Box<[Str]>,
    pub deleting: bool,
}

/// An owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Such as `apps/v1`.
    pub api_version: Str,
    /// Such as `ReplicaSet`.
    pub kind: Str,
    pub name: Str,
    pub uid: Str,
    /// The `controller` field.
    pub controller: Option<bool>,
    /// The `blockOwnerDeletion` field.
    pub block: Option<bool>,
}

impl Item {
    /// Returns the item of an object.
    pub fn of(resource: &Arc<Resource>, object: &Value) -> Self {
        let meta = Meta::of(object);
        Self {
            resource: Arc::clone(resource),
            uid: meta.uid().into(),
            resource_version: meta.resource_version().into(),
            owners: meta
                .value("ownerReferences")
                .and_then(Value::as_array)
                .unwrap_or_default()
                .iter()
                .map(Owner::of)
                .collect(),
            finalizers: meta.finalizers().map(Str::from).collect(),
            deleting: meta.is_deleting(),
        }
    }

    /// Whether the object has the finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|have| have == finalizer)
    }

    /// Whether the object is in foreground deletion.
    pub fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(FOREGROUND)
    }

    /// Returns the reference to the owner with this UID.
    pub fn owner(&self, uid: &str) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.uid == uid)
    }
}

impl Owner {
    /// Returns the reference as JSON.
    pub fn to_value(&self) -> Value {
        let mut reference = Object::new();
        reference.insert("apiVersion", self.api_version.clone());
        reference.insert("kind", self.kind.clone());
        reference.insert("name", self.name.clone());
        reference.insert("uid", self.uid.clone());
        for (field, flag) in [("controller", self.controller), ("blockOwnerDeletion", self.block)] {
            if let Some(flag) = flag {
                reference.insert(field, flag);
            }
        }
        Value::Object(reference)
    }

    fn of(reference: &Value) -> Self {
        let text = |field| Str::from(reference.text_at(&[field]));
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controller: reference.get("controller").and_then(Value::as_bool),
            block: reference.get("blockOwnerDeletion").and_then(Value::as_bool),
        }
    }
}
