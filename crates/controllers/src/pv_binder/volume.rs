//! PersistentVolumes: phase and claimRef.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Value};
use controller::{Action, Plan, kinds};

use super::BOUND_BY_CONTROLLER;

/// Returns the key of the claim in `spec.claimRef`.
pub(super) fn claim_key(volume: &Value) -> Option<Key> {
    let reference = volume.at(&["spec", "claimRef"])?;
    Some(Key::new(reference.text_at(&["namespace"]), reference.text_at(&["name"])))
}

/// Updates the phase of a volume. `claim` is the claim in its claimRef, if the UID matches.
// DEVIATION: volumes are not recycled, and volumes of in-tree plugins are not deleted. Dynamically provisioned volumes
// are deleted by their provisioner.
pub(super) fn plan(volume: &Value, claim: Option<&Value>) -> Plan {
    let name = Meta::of(volume).name();
    let phase = match claim {
        // The volume is free, or pre-bound to a claim that does not exist yet.
        None if volume.text_at(&["spec", "claimRef", "uid"]).is_empty() => "Available",
        None => "Released",
        Some(claim) => match claim.text_at(&["spec", "volumeName"]) {
            "" => return Plan::waiting("the claim does not refer to the volume yet"),
            named if named == name => "Bound",
            _ => return Plan::of(unbound(volume)),
        },
    };
    let have = volume.text_at(&["status", "phase"]);
    if have == phase || (phase == "Released" && have == "Failed") {
        return Plan::default();
    }
    let mut object = volume.clone();
    if let Some(status) =
        object.as_object_mut().and_then(|it| it.get_or_insert_with("status", Value::object).as_object_mut())
    {
        status.insert("phase", phase);
    }
    Plan::of(Action::UpdateStatus { resource: kinds::PERSISTENT_VOLUMES.clone(), object })
}

/// Removes the claimRef after the claim was bound to another volume. A claimRef that a user set keeps its name and
/// loses its UID.
fn unbound(volume: &Value) -> Action {
    let mut object = volume.clone();
    let bound_by_controller = Meta::of(volume).annotation(BOUND_BY_CONTROLLER).is_some();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        if bound_by_controller {
            spec.remove("claimRef");
        } else if let Some(reference) = spec.get_mut("claimRef").and_then(Value::as_object_mut) {
            reference.remove("uid");
            reference.remove("resourceVersion");
        }
    }
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.remove_annotation(BOUND_BY_CONTROLLER);
    }
    Action::Update { resource: kinds::PERSISTENT_VOLUMES.clone(), object, result_event: None }
}
