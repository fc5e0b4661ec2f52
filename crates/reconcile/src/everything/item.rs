//! What is kept of an object of any kind: who it is, whom it belongs to, and what holds it.

use std::sync::Arc;

use machinery::meta::Meta;
use machinery::{Object, Resource, Str, Value};

/// The finalizer of an object whose dependents go first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents stay.
pub const ORPHAN: &str = "orphan";

/// An object, as far as it matters who belongs to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The kind it is of.
    pub resource: Arc<Resource>,
    /// Which one of its name.
    pub uid: Str,
    /// The version of it.
    pub resource_version: Str,
    /// Whom it belongs to.
    pub owners: Box<[Owner]>,
    /// What must be done before it goes.
    pub finalizers: Box<[Str]>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `apps/v1`.
    pub api_version: Str,
    /// `ReplicaSet`.
    pub kind: Str,
    /// Which one.
    pub name: Str,
    /// Which one of that name.
    pub uid: Str,
    /// Whether it is the controller; absent if the reference does not say.
    pub controller: Option<bool>,
    /// Whether the owner waits for this object when it goes in the foreground; absent if the reference does not say.
    pub block: Option<bool>,
}

impl Item {
    /// What is to be kept of an object.
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

    /// Whether something must be done before it goes.
    pub fn is_held_by(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|have| have == finalizer)
    }

    /// Whether it goes as soon as its dependents have gone.
    pub fn waits_for_dependents(&self) -> bool {
        self.deleting && self.is_held_by(FOREGROUND)
    }

    /// How it names an owner, if it does.
    pub fn owner(&self, uid: &str) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.uid == uid)
    }
}

impl Owner {
    /// The reference as it stands in an object.
    pub fn to_value(&self) -> Value {
        let mut reference = Object::new();
        reference.insert("apiVersion", self.api_version.clone());
        reference.insert("kind", self.kind.clone());
        reference.insert("name", self.name.clone());
        reference.insert("uid", self.uid.clone());
        for (field, said) in [("controller", self.controller), ("blockOwnerDeletion", self.block)] {
            if let Some(said) = said {
                reference.insert(field, said);
            }
        }
        Value::Object(reference)
    }

    fn of(reference: &Value) -> Self {
        let text = |field| Str::from(reference.str_at(&[field]).unwrap_or_default());
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
