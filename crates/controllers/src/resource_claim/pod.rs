//! The claims of a pod: created from templates, recorded in the pod's status, and reserved for the pod.

use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Key, Object, Value, value};
use controller::{Action, EventType, Patch, Plan, Preconditions, Regarding, kinds};

use super::{ClaimRequest, POD_CLAIM_NAME, is_done};
use crate::{adoption, names};

/// Maximum entries of `status.reservedFor`.
const USERS_MAX: usize = 256;

/// Returns the next step for a pod.
pub(super) fn plan(pod: &Value, claim_requests: &[ClaimRequest<'_>], _: Time) -> Plan {
    if Meta::of(pod).is_deleting() || is_done(pod) {
        return Plan::default();
    }
    let mut plan = Plan::default();
    let mut statuses = Vec::new();
    for claim_request in claim_requests {
        let by_template = claim_request.stated.str_at(&["resourceClaimTemplateName"]);
        match (claim_request.claim, by_template, claim_request.template) {
            (Some(claim), Some(_), _) if !is_recorded(pod, claim_request, claim) => {
                statuses.push(
                    value!({"name": (claim_request.stated.text_at(&["name"])), "resourceClaimName": (Meta::of(claim).name())}),
                );
            }
            (Some(claim), _, _) => plan.actions.extend(reserve(pod, claim)),
            // The status records that this entry needs no claim.
            (None, Some(_), _) if is_left_out(pod, claim_request) => {}
            (None, Some(_), Some(template)) => plan.push(create(pod, claim_request, template)),
            (None, Some(template), None) => {
                plan.push(missing(pod, claim_request, template));
                plan.waiting = Some(format!("template {template} does not exist"));
            }
            (None, None, _) => {}
        }
    }
    if !statuses.is_empty() {
        plan.push(Action::Patch {
            resource: kinds::PODS.clone(),
            key: Key::of(pod),
            subresource: "status",
            only_if: Preconditions::same(pod),
            patch: Patch::Strategic(value!({"status": {"resourceClaimStatuses": statuses}})),
        });
    }
    plan
}

fn status_of<'a>(pod: &'a Value, claim_request: &ClaimRequest<'_>) -> Option<&'a Value> {
    let statuses = pod.list_at(&["status", "resourceClaimStatuses"]);
    statuses.iter().find(|status| status.get("name") == claim_request.stated.get("name"))
}

/// Whether the pod's status names the claim.
fn is_recorded(pod: &Value, claim_request: &ClaimRequest<'_>, claim: &Value) -> bool {
    status_of(pod, claim_request).is_some_and(|status| status.text_at(&["resourceClaimName"]) == Meta::of(claim).name())
}

fn is_left_out(pod: &Value, claim_request: &ClaimRequest<'_>) -> bool {
    status_of(pod, claim_request).is_some_and(|status| status.get("resourceClaimName").is_none())
}

fn create(pod: &Value, claim_request: &ClaimRequest<'_>, template: &Value) -> Action {
    let stated = claim_request.stated.text_at(&["name"]);
    let prefix = format!("{}-{stated}-", Meta::of(pod).name());
    let mut metadata = Object::new();
    metadata.insert("namespace", Meta::of(pod).namespace());
    metadata.insert("name", names::fresh(pod, &prefix, &[], 1).swap_remove(0));
    metadata.insert("generateName", prefix);
    let from = |field| template.at(&["spec", "metadata", field]).cloned().unwrap_or_else(Value::object);
    let mut annotations = from("annotations");
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(POD_CLAIM_NAME, stated);
    }
    metadata.insert("annotations", annotations);
    metadata.insert("labels", from("labels"));
    metadata.insert("ownerReferences", vec![adoption::reference(pod)]);
    let spec = template.at(&["spec", "spec"]).cloned().unwrap_or_else(Value::object);
    let resource = kinds::RESOURCE_CLAIMS.clone();
    let object =
        value!({"apiVersion": (resource.api_version()), "kind": "ResourceClaim", "metadata": metadata, "spec": spec});
    Action::Create { resource, object, result_event: None }
}

fn missing(pod: &Value, claim_request: &ClaimRequest<'_>, template: &str) -> Action {
    Action::Event {
        regarding: Regarding::object(pod),
        kind: EventType::Warning,
        reason: "FailedResourceClaimCreation",
        message: format!(
            "PodResourceClaim {}: resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found",
            claim_request.stated.text_at(&["name"]),
        ),
    }
}

/// Reserves an allocated claim for a pod that was bound without the scheduler.
fn reserve(pod: &Value, claim: &Value) -> Option<Action> {
    let users = claim.list_at(&["status", "reservedFor"]);
    let reserved = users.iter().any(|user| user.text_at(&["uid"]) == Meta::of(pod).uid());
    let allocated = claim.at(&["status", "allocation"]).is_some();
    if Pod(pod).node_name().is_empty() || reserved || !allocated || users.len() >= USERS_MAX {
        return None;
    }
    let mut users = users.to_vec();
    users.push(value!({"resource": "pods", "name": (Meta::of(pod).name()), "uid": (Meta::of(pod).uid())}));
    let update = Action::UpdateStatus { resource: kinds::RESOURCE_CLAIMS.clone(), object: claim.clone() };
    Some(update.with(&["status", "reservedFor"], users.into()))
}
