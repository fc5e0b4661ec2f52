//! What to do about a volume.

use machinery::meta::{Meta, MetaMut};
use machinery::{Key, Value};
use reconcile::{Action, Plan, kinds};

use super::BOUND_BY_CONTROLLER;
use crate::read::text;

/// The claim that a volume names.
pub fn claim_key(volume: &Value) -> Option<Key> {
    let reference = volume.at(&["spec", "claimRef"])?;
    Some(Key::new(text(reference, &["namespace"]), text(reference, &["name"])))
}

/// Brings a volume's phase in line with what it names; `claim` is there if it is that very one.
// DEVIATION: volumes are not recycled, and those of in-tree plug-ins are not deleted; what is dynamic, its provisioner deletes.
pub fn plan(volume: &Value, claim: Option<&Value>) -> Plan {
    let name = Meta::of(volume).name();
    let phase = match claim {
        // Nobody's, or reserved for a claim that has not been seen yet.
        None if text(volume, &["spec", "claimRef", "uid"]).is_empty() => "Available",
        None => "Released",
        Some(claim) => match text(claim, &["spec", "volumeName"]) {
            "" => return Plan::waiting("its claim does not name it yet"),
            named if named == name => "Bound",
            _ => return Plan::of(unbound(volume)),
        },
    };
    let have = text(volume, &["status", "phase"]);
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

/// The claim chose another volume: this one is free again, or again only reserved if a person reserved it.
fn unbound(volume: &Value) -> Action {
    let mut object = volume.clone();
    let ours = Meta::of(volume).annotation(BOUND_BY_CONTROLLER).is_some();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        if ours {
            spec.remove("claimRef");
        } else if let Some(reference) = spec.get_mut("claimRef").and_then(Value::as_object_mut) {
            reference.remove("uid");
            reference.remove("resourceVersion");
        }
    }
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.remove_annotation(BOUND_BY_CONTROLLER);
    }
    Action::Update { resource: kinds::PERSISTENT_VOLUMES.clone(), object, told: None }
}
