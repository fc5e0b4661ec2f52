//! Puts finalizers on objects that are in use and takes them off when they no longer are.

use machinery::meta::{Meta, MetaMut};
use machinery::{Resource, Value};
use reconcile::{Action, Plan};

/// What is to become of the finalizer of an object: on while it is not deleted, off when it is and nobody uses it.
pub fn guard(resource: &Resource, object: &Value, finalizer: &str, in_use: bool) -> Plan {
    let meta = Meta::of(object);
    let has = meta.finalizers().any(|have| have == finalizer);
    if meta.is_deleting() && has && in_use {
        return Plan::waiting("it is still in use");
    }
    if meta.is_deleting() != has {
        return Plan::default();
    }
    let mut object = object.clone();
    if let Some(mut meta) = MetaMut::of(&mut object) {
        if has {
            meta.remove_finalizer(finalizer);
        } else {
            meta.add_finalizer(finalizer);
        }
    }
    Plan::of(Action::Update { resource: resource.clone(), object, told: None })
}
