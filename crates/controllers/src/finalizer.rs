//! Protection finalizers: added to existing objects, removed when a deleted object is no longer in use.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Resource, Value};
use controller::{Action, Plan};

/// Adds the finalizer if the object is not being deleted. Removes it if the object is being deleted and not in use.
pub(crate) fn guard(resource: &Resource, object: &Value, finalizer: &str, in_use: bool) -> Plan {
    let meta = Meta::of(object);
    let has = meta.finalizers().any(|have| have == finalizer);
    if meta.is_deleting() && has && in_use {
        return Plan::waiting("the object is still in use");
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
    Plan::of(Action::Update { resource: resource.clone(), object, result_event: None })
}
