//! PersistentVolumeClaims: binding, provisioning and phase.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Object, Value, value};
use controller::{Action, EventType, Plan, kinds};

use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, CLASS_BETA, PROVISIONER, PROVISIONER_BETA, SELECTED_NODE, event, matching,
};

/// Plans for a claim that was completely bound before: rebinds it or marks it Lost.
pub(super) fn plan_bound(claim: &Value, named: Option<&Value>) -> Plan {
    let lost = |reason, message: &str| {
        let mut plan = Plan { actions: phase(claim, "Lost", None).into_iter().collect(), ..Plan::default() };
        if !plan.actions.is_empty() {
            plan.push(event(claim, EventType::Warning, reason, message));
        }
        plan
    };
    if claim.text_at(&["spec", "volumeName"]).is_empty() {
        return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
    }
    let Some(volume) = named else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    if volume.at(&["spec", "claimRef"]).is_none() || matching::is_for(volume, claim) {
        return bind(volume, claim);
    }
    lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

/// Plans for a claim that is not completely bound.
pub(super) fn plan_unbound(
    claim: &Value,
    named: Option<&Value>,
    volumes: &[&Value],
    class: Option<&Value>,
    default_class: Option<&Value>,
) -> Plan {
    let pending = |event: Option<Action>| {
        let actions = phase(claim, "Pending", None).into_iter().chain(event).collect();
        Plan { actions, waiting: Some("no volume yet".to_owned()), ..Plan::default() }
    };
    if !claim.text_at(&["spec", "volumeName"]).is_empty() {
        let Some(volume) = named else { return pending(None) };
        if matching::is_for(volume, claim) {
            return bind(volume, claim);
        }
        if volume.at(&["spec", "claimRef"]).is_some() {
            return pending(None);
        }
        return match matching::mismatch(volume, claim) {
            Some(cause) => {
                let name = Meta::of(volume).name();
                let message = format!("Cannot bind to requested volume {name:?}: {cause}");
                pending(Some(event(claim, EventType::Warning, "VolumeMismatch", message)))
            }
            None => bind(volume, claim),
        };
    }
    let meta = Meta::of(claim);
    let waits = class.is_some_and(|class| class.text_at(&["volumeBindingMode"]) == "WaitForFirstConsumer")
        && meta.annotation(SELECTED_NODE).is_none();
    if let Some(volume) = matching::best(claim, volumes, waits) {
        return bind(volume, claim);
    }
    if waits {
        let message = "waiting for first consumer to be created before binding";
        return pending(Some(event(claim, EventType::Normal, "WaitForFirstConsumer", message)));
    }
    let has_class = claim.at(&["spec", "storageClassName"]).is_some() || meta.annotation(CLASS_BETA).is_some();
    match (class, default_class) {
        (None, Some(default)) if !has_class => Plan::of(with_class(claim, default)),
        (Some(class), _) => provision(claim, class, pending),
        (None, _) if matching::class_of(claim).is_empty() => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            pending(Some(event(claim, EventType::Normal, "FailedBinding", message)))
        }
        (None, _) => {
            let message = format!("storageclass.storage.k8s.io {:?} not found", matching::class_of(claim));
            pending(Some(event(claim, EventType::Warning, "ProvisioningFailed", message)))
        }
    }
}

/// Annotates the claim for the external provisioner of its class.
fn provision(claim: &Value, class: &Value, pending: impl Fn(Option<Action>) -> Plan) -> Plan {
    let provisioner = class.text_at(&["provisioner"]);
    if provisioner == "kubernetes.io/no-provisioner" {
        return pending(None);
    }
    let meta = Meta::of(claim);
    if meta.annotation(PROVISIONER) == Some(provisioner) && meta.annotation(PROVISIONER_BETA) == Some(provisioner) {
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
             administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
        );
        return pending(Some(event(claim, EventType::Normal, "ExternalProvisioning", message)));
    }
    let mut object = claim.clone();
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.set_annotation(PROVISIONER, provisioner);
        meta.set_annotation(PROVISIONER_BETA, provisioner);
    }
    Plan::of(Action::Update { resource: kinds::PERSISTENT_VOLUME_CLAIMS.clone(), object, result_event: None })
}

fn with_class(claim: &Value, class: &Value) -> Action {
    let mut object = claim.clone();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("storageClassName", Meta::of(class).name());
    }
    Action::Update { resource: kinds::PERSISTENT_VOLUME_CLAIMS.clone(), object, result_event: None }
}

/// Returns the next write that binds the claim to the volume.
fn bind(volume: &Value, claim: &Value) -> Plan {
    if let Some(volume) = naming(volume, claim) {
        return Plan::of(Action::Update {
            resource: kinds::PERSISTENT_VOLUMES.clone(),
            object: volume,
            result_event: None,
        });
    }
    if let Some(claim) = named(claim, volume) {
        let resource = kinds::PERSISTENT_VOLUME_CLAIMS.clone();
        return Plan::of(Action::Update { resource, object: claim, result_event: None });
    }
    Plan { actions: phase(claim, "Bound", Some(volume)).into_iter().collect(), ..Plan::default() }
}

/// Returns the volume with its claimRef set; `None` if it is set already.
fn naming(volume: &Value, claim: &Value) -> Option<Value> {
    let meta = Meta::of(claim);
    if volume.text_at(&["spec", "claimRef", "uid"]) == meta.uid() && matching::is_for(volume, claim) {
        return None;
    }
    let bound_by_controller = volume.at(&["spec", "claimRef"]).is_none();
    let mut object = volume.clone();
    let reference = value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": (meta.namespace()),
        "name": (meta.name()), "uid": (meta.uid()), "resourceVersion": (meta.resource_version())});
    object.get_mut("spec")?.as_object_mut()?.insert("claimRef", reference);
    if bound_by_controller && let Some(mut meta) = MetaMut::of(&mut object) {
        meta.set_annotation(BOUND_BY_CONTROLLER, "yes");
    }
    Some(object)
}

/// Returns the claim with its volumeName set; `None` if it is set already.
fn named(claim: &Value, volume: &Value) -> Option<Value> {
    let name = Meta::of(volume).name();
    let is_named = claim.text_at(&["spec", "volumeName"]) == name;
    if is_named && Meta::of(claim).annotation(BIND_COMPLETED).is_some() {
        return None;
    }
    let mut object = claim.clone();
    object.get_mut("spec")?.as_object_mut()?.insert("volumeName", name);
    if let Some(mut meta) = MetaMut::of(&mut object) {
        if !is_named {
            meta.set_annotation(BOUND_BY_CONTROLLER, "yes");
        }
        meta.set_annotation(BIND_COMPLETED, "yes");
    }
    Some(object)
}

/// Returns the status update of a claim, if the status changes.
fn phase(claim: &Value, phase: &str, volume: Option<&Value>) -> Option<Action> {
    let mut object = claim.clone();
    let status = object.as_object_mut()?.get_or_insert_with("status", Value::object).as_object_mut()?;
    status.insert("phase", phase);
    match volume {
        None => ["accessModes", "capacity"].iter().for_each(|field| drop(status.remove(field))),
        Some(volume) => {
            if let Some(modes) = volume.at(&["spec", "accessModes"]) {
                status.insert("accessModes", modes.clone());
            }
            // After binding, the component that resizes the volume updates the capacity.
            if claim.text_at(&["status", "phase"]) != "Bound"
                && let Some(storage) = volume.at(&["spec", "capacity", "storage"])
            {
                let capacity = status.get_or_insert_with("capacity", Value::object);
                if capacity.as_object().is_none() {
                    *capacity = Value::Object(Object::new());
                }
                capacity.as_object_mut()?.insert("storage", storage.clone());
            }
            if let Some(class) = volume.at(&["spec", "volumeAttributesClassName"])
                && claim.text_at(&["status", "phase"]) != "Bound"
            {
                status.insert("currentVolumeAttributesClassName", class.clone());
            }
        }
    }
    (object != *claim).then(|| Action::UpdateStatus { resource: kinds::PERSISTENT_VOLUME_CLAIMS.clone(), object })
}
