//! NodeRestriction: a kubelet changes its own node and its own pods, and nothing that would draw other pods to it.

use std::collections::BTreeSet;

use machinery::meta::{Meta, MetaMut};
use machinery::status::{GroupName, Status};
use machinery::{Object, Value, go};

use super::pods::{is_mirror, items, references_config_maps, references_secrets, spec, text};
use super::{Attributes, Notes, Operation, Plugin, View};

/// Labels of Kubernetes' own that a kubelet may set on its node.
const KUBELET_LABELS: [&str; 13] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Namespaces of labels that are the kubelet's.
const KUBELET_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The namespace of labels by which an administrator keeps nodes apart.
const RESTRICTED: &str = "node-restriction.kubernetes.io";
const LEASES: &str = "kube-node-lease";

/// See the module.
pub struct NodeRestriction;

/// A request of a kubelet.
struct Asked<'a> {
    node: &'a str,
    attributes: &'a Attributes<'a>,
    object: &'a Value,
    view: &'a dyn View,
}

type Verdict = Result<(), Status>;

impl Plugin for NodeRestriction {
    fn admit(&self, attributes: &Attributes<'_>, object: &mut Value, view: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.user.is_in(auth::user::NODES) || attributes.operation == Operation::Connect {
            return Ok(());
        }
        let Some(node) = attributes.user.node() else {
            if !attributes.user.name.starts_with(auth::user::NODE_PREFIX) {
                return Ok(());
            }
            let why = format!("could not determine node from user {}", go::quote(&attributes.user.name));
            return Err(attributes.forbidden(object, why));
        };
        Asked { node, attributes, object, view }.judge()
    }
}

impl Asked<'_> {
    fn judge(&self) -> Verdict {
        let attributes = self.attributes;
        match (attributes.kind.group.as_str(), attributes.kind.plural.as_str(), attributes.subresource) {
            ("", "pods", "") => self.pod(),
            ("", "pods", "status") => self.pod_status(),
            ("", "pods", "eviction") => self.eviction(),
            ("", "pods", part) => self.refuse(format!(
                "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                go::quote(part)
            )),
            ("", "nodes", _) => self.node(),
            ("", "persistentvolumeclaims", "status") => self.claim_status(),
            ("", "persistentvolumeclaims", _) => self.refuse("may only update PVC status"),
            ("", "serviceaccounts", "token") if attributes.operation == Operation::Create => self.token(),
            ("coordination.k8s.io", "leases", _) => self.lease(),
            ("storage.k8s.io", "csinodes", _) => {
                self.require(self.name() == self.node, "can only access CSINode with the same name as the requesting node")
            }
            ("resource.k8s.io", "resourceslices", _) => self.slice(),
            _ => Ok(()),
        }
    }

    fn refuse(&self, why: impl std::fmt::Display) -> Verdict {
        Err(self.attributes.forbidden(self.object, why))
    }

    fn require(&self, holds: bool, why: &str) -> Verdict {
        if holds { Ok(()) } else { self.refuse(why) }
    }

    fn name(&self) -> &str {
        if self.attributes.operation == Operation::Create { Meta::of(self.object).name() } else { self.attributes.name }
    }

    fn quoted(&self) -> String {
        go::quote(self.node)
    }

    fn pod(&self) -> Verdict {
        let node = self.quoted();
        match self.attributes.operation {
            Operation::Create => self.new_pod(),
            Operation::Delete => {
                let own = self.attributes.old.is_some_and(|pod| text(spec(pod), "nodeName") == self.node);
                self.require(own, &format!("node {node} can only delete pods with spec.nodeName set to itself"))
            }
            other => self.refuse(format!(
                "unexpected operation {}, node {node} can only create and delete mirror pods",
                go::quote(word(other))
            )),
        }
    }

    fn new_pod(&self) -> Verdict {
        let (pod, node) = (self.object, self.quoted());
        if !is_mirror(pod) {
            return self.refuse(format!(
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node} can only create mirror pods"
            ));
        }
        if text(spec(pod), "nodeName") != self.node {
            return self.refuse(format!("node {node} can only create pods with spec.nodeName set to itself"));
        }
        self.owner()?;
        let projects_bundle = |volume: &Value| {
            let sources = volume.get("projected").map(|of| items(of, "sources")).unwrap_or_default();
            sources.iter().any(|source| source.get("clusterTrustBundle").is_some())
        };
        let volumes = items(spec(pod), "volumes");
        let what = if !text(spec(pod), "serviceAccountName").is_empty() {
            "a service account"
        } else if references_secrets(spec(pod)) {
            "secrets"
        } else if references_config_maps(spec(pod)) {
            "configmaps"
        } else if volumes.iter().any(projects_bundle) {
            "clustertrustbundles"
        } else if volumes.iter().any(|volume| volume.get("persistentVolumeClaim").is_some()) {
            "persistentvolumeclaims"
        } else if !items(spec(pod), "resourceClaims").is_empty() {
            "resourceclaims"
        } else {
            return Ok(());
        };
        self.refuse(format!("node {node} can not create pods that reference {what}"))
    }

    /// The pod belongs to the node, so that it goes with it.
    fn owner(&self) -> Verdict {
        let node = self.quoted();
        let owners: Vec<_> = Meta::of(self.object).owner_references().collect();
        let owner = match owners.as_slice() {
            [owner] => owner,
            [] => return self.refuse(format!("node {node} can only create pods with an owner reference set to itself")),
            _ => {
                return self
                    .refuse(format!("node {node} can only create pods with a single owner reference set to itself"));
            }
        };
        if owner.api_version() != "v1" || owner.kind() != "Node" || owner.name() != self.node {
            return self.refuse(format!("node {node} can only create pods with an owner reference set to itself"));
        }
        if !owner.is_controller() {
            return self.refuse(format!("node {node} can only create pods with a controller owner reference set to itself"));
        }
        if owner.blocks_owner_deletion() {
            return self.refuse(format!("node {node} must not set blockOwnerDeletion on an owner reference"));
        }
        let Some(found) = self.view.object("", "nodes", "", self.node) else {
            return Err(Status::not_found(GroupName::new("", "nodes"), self.node));
        };
        let (have, given) = (Meta::of(&found).uid(), owner.uid());
        self.require(have == given, &format!("node {} UID mismatch: expected {given} got {have}", self.node))
    }

    fn pod_status(&self) -> Verdict {
        let node = self.quoted();
        let (Operation::Update, Some(old)) = (self.attributes.operation, self.attributes.old) else {
            return self.refuse(format!("unexpected operation {}", go::quote(word(self.attributes.operation))));
        };
        if text(spec(old), "nodeName") != self.node {
            return self
                .refuse(format!("node {node} can only update pod status for pods with spec.nodeName set to itself"));
        }
        let labels = |pod: &Value| Meta::of(pod).labels().cloned().unwrap_or_default();
        if labels(old) != labels(self.object) {
            return self.refuse(format!("node {node} cannot update labels through pod status"));
        }
        let claims = |pod: &Value| pod.at(&["status", "resourceClaimStatuses"]).cloned().unwrap_or_default();
        self.require(
            claims(old) == claims(self.object),
            &format!("node {node} cannot update resource claim statues"),
        )
    }

    fn eviction(&self) -> Verdict {
        if self.attributes.operation != Operation::Create {
            return self.refuse(format!("unexpected operation {}", word(self.attributes.operation)));
        }
        let name = if self.attributes.name.is_empty() { Meta::of(self.object).name() } else { self.attributes.name };
        if name.is_empty() {
            return self.refuse("could not determine pod from request data");
        }
        let Some(pod) = self.view.object("", "pods", self.attributes.namespace, name) else {
            return Err(Status::not_found(GroupName::new("", "pods"), name));
        };
        let why = format!("node {} can only evict pods with spec.nodeName set to itself", self.node);
        self.require(text(spec(&pod), "nodeName") == self.node, &why)
    }

    fn claim_status(&self) -> Verdict {
        let (Operation::Update, Some(old)) = (self.attributes.operation, self.attributes.old) else {
            return self.refuse(format!("unexpected operation {}", go::quote(word(self.attributes.operation))));
        };
        let node = self.quoted();
        let why = format!("node {node} is not allowed to update fields other than status.capacity and status.conditions");
        // DEVIATION: upstream adds the difference as its comparison library prints it.
        self.require(without_report(old) == without_report(self.object), &why)
    }

    fn node(&self) -> Verdict {
        let (node, asked) = (self.quoted(), self.attributes.shown_name(self.object));
        if asked != self.node {
            return self.refuse(format!("node {node} is not allowed to modify node {}", go::quote(asked)));
        }
        let config = |of: &Value| spec(of).get("configSource").cloned();
        match (self.attributes.operation, self.attributes.old) {
            (Operation::Create, _) => {
                if config(self.object).is_some() {
                    return self
                        .refuse(format!("node {node} is not allowed to create pods with a non-nil configSource"));
                }
                let forbidden = forbidden_labels(&Object::new(), self.object);
                let why = format!("node {node} is not allowed to set the following labels: {}", forbidden.join(", "));
                self.require(forbidden.is_empty(), &why)
            }
            (Operation::Update, Some(old)) => {
                if config(self.object).is_some() && config(self.object) != config(old) {
                    let why = format!("node {node} is not allowed to update configSource to a new non-nil configSource");
                    return self.refuse(why);
                }
                if items(spec(self.object), "taints") != items(spec(old), "taints") {
                    return self.refuse(format!("node {node} is not allowed to modify taints"));
                }
                let before = Meta::of(old).labels().cloned().unwrap_or_default();
                let forbidden = forbidden_labels(&before, self.object);
                let why = format!("is not allowed to modify labels: {}", forbidden.join(", "));
                self.require(forbidden.is_empty(), &why)
            }
            _ => Ok(()),
        }
    }

    fn token(&self) -> Verdict {
        let bound = &self.object["spec"]["boundObjectRef"];
        let (name, uid) = (text(bound, "name"), text(bound, "uid"));
        if text(bound, "apiVersion") != "v1" || text(bound, "kind") != "Pod" || name.is_empty() {
            return self.refuse("node requested token not bound to a pod");
        }
        if uid.is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        let Some(pod) = self.view.object("", "pods", self.attributes.namespace, name) else {
            return Err(Status::not_found(GroupName::new("", "pods"), name));
        };
        if Meta::of(&pod).uid() != uid {
            return self.refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            ));
        }
        let own = text(spec(&pod), "nodeName") == self.node;
        self.require(own, "node requested token bound to a pod scheduled on a different node")
    }

    fn lease(&self) -> Verdict {
        if self.attributes.namespace != LEASES {
            return self.refuse(format!("can only access leases in the {} system namespace", go::quote(LEASES)));
        }
        let own = self.name() == self.node;
        self.require(own, "can only access node lease with the same name as the requesting node")
    }

    fn slice(&self) -> Verdict {
        let of = |slice: &Value| text(spec(slice), "nodeName") == self.node;
        match (self.attributes.operation, self.attributes.old) {
            (Operation::Create, _) => {
                self.require(of(self.object), "can only create ResourceSlice with the same NodeName as the requesting node")
            }
            (Operation::Delete, Some(old)) => {
                self.require(of(old), "can only delete ResourceSlice with the same NodeName as the requesting node")
            }
            _ => Ok(()),
        }
    }
}

fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

/// A claim without what a kubelet reports of it.
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

/// The labels that changed and that a kubelet must not touch, in order.
fn forbidden_labels(before: &Object, node: &Value) -> Vec<String> {
    let after = Meta::of(node).labels().cloned().unwrap_or_default();
    let keys: BTreeSet<&str> = before.keys().chain(after.keys()).collect();
    let changed = keys.into_iter().filter(|key| before.get(key) != after.get(key));
    changed.filter(|key| is_forbidden(key)).map(str::to_owned).collect()
}

fn is_forbidden(label: &str) -> bool {
    let namespace = label.split_once('/').map(|(namespace, _)| namespace).unwrap_or_default();
    let within = |domain: &str| namespace == domain || namespace.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    if within(RESTRICTED) {
        return true;
    }
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    kubernetes && !KUBELET_LABELS.contains(&label) && !KUBELET_NAMESPACES.iter().any(|domain| within(domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_sets_its_own_labels_and_those_of_others_but_not_kubernetes() {
        let check = |label: &str, forbidden: bool| assert_eq!(is_forbidden(label), forbidden, "{label}");
        check("kubernetes.io/hostname", false);
        check("a", false);
        check("example.com/a", false);
        check("node.kubernetes.io/x", false);
        check("x.node.kubernetes.io/x", false);
        check("node-role.kubernetes.io/control-plane", true);
        check("node-restriction.kubernetes.io/a", true);
        check("x.k8s.io/a", true);
        check("notk8s.io/a", false);
    }
}
