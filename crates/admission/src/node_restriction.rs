//! NodeRestriction: a kubelet can only change its own node and pods, and nothing that would attract other pods to the
//! node.
//!
//! The same applies to the components that run on a node with a separate identity ([`components`]).

mod certificates;
mod components;
mod pods;
mod tokens;

use std::collections::BTreeSet;

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::Status;
use apimachinery::{Object, Value, go};

use super::pods::spec;
use super::{Attributes, Notes, Operation, Plugin, View};

/// Labels in Kubernetes' namespaces that a kubelet may set on its node.
const KUBELET_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Label namespaces that a kubelet may set.
const KUBELET_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Label namespace that is reserved for administrators to isolate nodes.
const RESTRICTED: &str = "node-restriction.kubernetes.io";
const LEASES: &str = "kube-node-lease";

pub(crate) struct NodeRestriction;

/// A request of a kubelet.
struct KubeletRequest<'a> {
    node: &'a str,
    attributes: &'a Attributes<'a>,
    object: &'a Value,
    view: &'a dyn View,
}

type AdmissionResult = Result<(), Status>;

impl Plugin for NodeRestriction {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if attributes.operation == Operation::Connect {
            return Ok(());
        }
        components::admit(attributes, object, view)?;
        if !attributes.user.is_in(auth::user::NODES) {
            return Ok(());
        }
        let Some(node) = attributes.user.node() else {
            if !attributes.user.name.starts_with(auth::user::NODE_PREFIX) {
                return Ok(());
            }
            let message = format!("could not determine node from user {}", go::quote(&attributes.user.name));
            return Err(attributes.forbidden(object, message));
        };
        KubeletRequest { node, attributes, object, view }.evaluate()
    }
}

impl KubeletRequest<'_> {
    fn evaluate(&self) -> AdmissionResult {
        let attributes = self.attributes;
        match (attributes.kind.group.as_str(), attributes.kind.plural.as_str(), attributes.subresource) {
            ("", "pods", "") => self.pod(),
            ("", "pods", "status") => self.pod_status(),
            ("", "pods", "eviction") => self.eviction(),
            ("", "pods", subresource) => self.forbid(format!(
                "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                go::quote(subresource)
            )),
            ("", "nodes", _) => self.node(),
            ("", "persistentvolumeclaims", "status") => self.claim_status(),
            ("", "persistentvolumeclaims", _) => self.forbid("may only update PVC status"),
            ("", "serviceaccounts", "token") if attributes.operation == Operation::Create => self.token(),
            ("certificates.k8s.io", "podcertificaterequests", _) => self.pod_certificate(),
            ("certificates.k8s.io", "certificatesigningrequests", _) => self.signing_request(),
            ("coordination.k8s.io", "leases", _) => self.lease(),
            ("storage.k8s.io", "csinodes", _) => self
                .require(self.name() == self.node, "can only access CSINode with the same name as the requesting node"),
            ("resource.k8s.io", "resourceslices", _) => self.slice(),
            _ => Ok(()),
        }
    }

    fn forbid(&self, message: impl std::fmt::Display) -> AdmissionResult {
        Err(self.attributes.forbidden(self.object, message))
    }

    fn require(&self, holds: bool, message: &str) -> AdmissionResult {
        if holds { Ok(()) } else { self.forbid(message) }
    }

    /// Returns the object's name, empty if the server still has to generate it. A kubelet must not use `generateName`:
    /// the object would get a different name than the one checked.
    fn name(&self) -> &str {
        if self.attributes.operation == Operation::Create { Meta::of(self.object).name() } else { self.attributes.name }
    }

    fn quoted(&self) -> String {
        go::quote(self.node)
    }

    fn claim_status(&self) -> AdmissionResult {
        let (Operation::Update, Some(old)) = (self.attributes.operation, self.attributes.old) else {
            return self.forbid(format!("unexpected operation {}", go::quote(self.attributes.operation.word())));
        };
        let node = self.quoted();
        let message =
            format!("node {node} is not allowed to update fields other than status.quantity and status.conditions");
        // DEVIATION: upstream appends the difference as its comparison library prints it.
        self.require(without_report(old) == without_report(self.object), &message)
    }

    fn node(&self) -> AdmissionResult {
        let (node, target_node) = (self.quoted(), self.name());
        if target_node != self.node {
            return self.forbid(format!("node {node} is not allowed to modify node {}", go::quote(target_node)));
        }
        let config = |of: &Value| spec(of).get("configSource").cloned();
        match (self.attributes.operation, self.attributes.old) {
            (Operation::Create, _) => {
                if config(self.object).is_some() {
                    return self
                        .forbid(format!("node {node} is not allowed to create pods with a non-nil configSource"));
                }
                let forbidden = forbidden_labels(&Object::new(), self.object);
                let message =
                    format!("node {node} is not allowed to set the following labels: {}", forbidden.join(", "));
                self.require(forbidden.is_empty(), &message)
            }
            (Operation::Update, Some(old)) => {
                if config(self.object).is_some() && config(self.object) != config(old) {
                    let message =
                        format!("node {node} is not allowed to update configSource to a new non-nil configSource");
                    return self.forbid(message);
                }
                if spec(self.object).list_at(&["taints"]) != spec(old).list_at(&["taints"]) {
                    return self.forbid(format!("node {node} is not allowed to modify taints"));
                }
                // With a nonexistent owner the garbage collector would delete the node, and it would be re-created
                // without its taints and labels.
                if owners(self.object) != owners(old) {
                    return self.forbid(format!("node {node} is not allowed to modify ownerReferences"));
                }
                let before = Meta::of(old).labels().cloned().unwrap_or_default();
                let forbidden = forbidden_labels(&before, self.object);
                let message = format!("is not allowed to modify labels: {}", forbidden.join(", "));
                self.require(forbidden.is_empty(), &message)
            }
            _ => Ok(()),
        }
    }

    fn lease(&self) -> AdmissionResult {
        if self.attributes.namespace != LEASES {
            return self.forbid(format!("can only access leases in the {} system namespace", go::quote(LEASES)));
        }
        let own = self.name() == self.node;
        self.require(own, "can only access node lease with the same name as the requesting node")
    }

    fn slice(&self) -> AdmissionResult {
        let of = |slice: &Value| spec(slice).text_at(&["nodeName"]) == self.node;
        match (self.attributes.operation, self.attributes.old) {
            (Operation::Create, _) => self.require(
                of(self.object),
                "can only create ResourceSlice with the same NodeName as the requesting node",
            ),
            (Operation::Delete, Some(old)) => {
                self.require(of(old), "can only delete ResourceSlice with the same NodeName as the requesting node")
            }
            _ => Ok(()),
        }
    }
}

fn owners(object: &Value) -> &[Value] {
    object.get("metadata").map(|meta| meta.list_at(&["ownerReferences"])).unwrap_or_default()
}

/// Returns a claim without the status fields that a kubelet reports.
fn without_report(claim: &Value) -> Value {
    let mut claim = claim.clone();
    if let Some(mut meta) = MetaMut::of(&mut claim) {
        meta.remove("resourceVersion");
        meta.remove("managedFields");
    }
    if let Some(Value::Object(status)) = claim.get_mut("status") {
        for field in ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"] {
            status.remove(field);
        }
    }
    claim
}

/// Returns the changed labels that a kubelet must not change, sorted.
fn forbidden_labels(before: &Object, node: &Value) -> Vec<String> {
    let after = Meta::of(node).labels().cloned().unwrap_or_default();
    let keys: BTreeSet<&str> = before.keys().chain(after.keys()).collect();
    let changed = keys.into_iter().filter(|key| before.get(key) != after.get(key));
    changed.filter(|key| is_forbidden(key)).map(str::to_owned).collect()
}

fn is_forbidden(label: &str) -> bool {
    let namespace = label.split_once('/').map(|(namespace, _)| namespace).unwrap_or_default();
    let within =
        |domain: &str| namespace == domain || namespace.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    if within(RESTRICTED) {
        return true;
    }
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    kubernetes && !KUBELET_LABELS.contains(&label) && !KUBELET_NAMESPACES.iter().any(|domain| within(domain))
}

#[cfg(test)]
mod tests;
