//! ResourceClaim deallocation and deletion after its pods no longer need it.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Object, Value};
use controller::{Action, Plan, kinds};

use super::{FINALIZER, is_done};

/// Returns the next step for a claim.
// DEVIATION: a deallocated claim keeps its finalizer until it is deleted, so that a concurrent allocation by the
// scheduler stays protected.
pub(super) fn plan(claim: &Value, users: Option<&[&Value]>, owner: Option<&Value>) -> Plan {
    let Some(users) = users else { return Plan::waiting("the state of its pods is unknown") };
    let meta = Meta::of(claim);
    let has_finalizer = meta.finalizers().any(|finalizer| finalizer == FINALIZER);
    let reserved = claim.list_at(&["status", "reservedFor"]).len();
    let allocated = claim.at(&["status", "allocation"]).is_some();
    // An unused claim is deallocated, because the next pod may need another node. A claim that was never reserved may
    // be about to be.
    let free = users.is_empty() && has_finalizer && allocated && (reserved > 0 || meta.is_deleting());
    if users.len() < reserved || free {
        return Plan::of(status(claim, users, free));
    }
    if !users.is_empty() {
        return Plan::default();
    }
    if meta.is_deleting() {
        if !has_finalizer || allocated {
            return Plan::default();
        }
        let mut object = claim.clone();
        if let Some(mut meta) = MetaMut::of(&mut object) {
            meta.remove_finalizer(FINALIZER);
        }
        return Plan::of(Action::Update { resource: kinds::RESOURCE_CLAIMS.clone(), object, result_event: None });
    }
    // A claim is deleted here only if its owner terminated or was replaced. The garbage collector handles a deleted
    // owner.
    let over = |pod: &Value| {
        let same = meta.controller().is_some_and(|owner| owner.uid() == Meta::of(pod).uid());
        !same || is_done(pod)
    };
    if owner.is_some_and(over) { Plan::of(Action::delete(&kinds::RESOURCE_CLAIMS, claim)) } else { Plan::default() }
}

/// Updates reservedFor to `users` and, if `free`, removes the allocation.
fn status(claim: &Value, users: &[&Value], free: bool) -> Action {
    let mut status = claim.get("status").and_then(Value::as_object).cloned().unwrap_or_else(Object::new);
    if users.is_empty() {
        status.remove("reservedFor");
    } else {
        status.insert("reservedFor", users.iter().copied().cloned().collect::<Vec<_>>());
    }
    if free {
        status.remove("allocation");
        status.remove("devices");
    }
    let update = Action::UpdateStatus { resource: kinds::RESOURCE_CLAIMS.clone(), object: claim.clone() };
    update.with(&["status"], status.into())
}
