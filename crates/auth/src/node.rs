//! Node authorizer: a kubelet may access the objects that its own pods need, and none of other nodes.
//!
//! [`Graph`] records the relations between nodes and objects; this module decides on requests. Requests that do not
//! depend on single objects are allowed by the rules of the role `system:node`, which are the same for all nodes.

pub mod audience;
pub mod component;
pub mod graph;
mod references;

pub use graph::{Graph, Kind};
pub use references::secrets_of_pod;

use crate::attributes::{Attributes, Resource, Target};
use crate::rbac::{Rule, bootstrap};
use crate::user::{NODE_PREFIX, NODES};
use crate::{Authorizer, Decision, User};

/// The error for rule reviews of a kubelet: its permissions depend on its pods.
pub const NO_RULES: &str = "node authorizer does not support user rule resolution";

/// The Node authorizer.
#[derive(Clone, Debug)]
pub struct Node {
    /// The objects that each node's pods need.
    pub graph: Graph,
    rules: Vec<Rule>,
}

impl Node {
    /// Returns an authorizer with the bootstrap rules and an empty graph.
    pub fn new() -> Self {
        let is_node = |object: &apimachinery::Value| {
            object["kind"].as_str() == Some("ClusterRole")
                && object.str_at(&["metadata", "name"]) == Some("system:node")
        };
        let rules = bootstrap::objects().iter().find(|object| is_node(object)).map(Rule::all_from_object);
        Self { graph: Graph::default(), rules: rules.expect("the bootstrap policy has a role for nodes") }
    }

    /// Whether the user is a kubelet, whose rules cannot be listed.
    pub fn hides_rules_of(user: &User) -> bool {
        user.name.starts_with(NODE_PREFIX) && user.is_in(NODES)
    }

    fn decide(&self, node: &str, attributes: &Attributes<'_>) -> Result<Decision, String> {
        let Target::Resource(resource) = attributes.target else { return Ok(self.by_rules(attributes)) };
        let request = KubeletRequest { graph: &self.graph, node, verb: attributes.verb, resource };
        match (resource.group, resource.resource) {
            ("", "secrets") => request.read(Kind::Secret),
            ("", "configmaps") => request.read(Kind::ConfigMap),
            ("", "persistentvolumeclaims") if resource.subresource == "status" => request.write_status(Kind::Claim),
            ("", "persistentvolumeclaims") => request.get(Kind::Claim),
            ("", "persistentvolumes") => request.get(Kind::Volume),
            ("resource.k8s.io", "resourceclaims") => request.get(Kind::ResourceClaim),
            ("storage.k8s.io", "volumeattachments") => request.get(Kind::VolumeAttachment),
            ("", "serviceaccounts") => request.service_account(),
            ("coordination.k8s.io", "leases") => request.lease(),
            ("storage.k8s.io", "csinodes") => request.csi_node(),
            ("resource.k8s.io", "resourceslices") => request.resource_slice(),
            // The role has no rule for this kind, because upstream's feature gate is off by default. The kind is only
            // readable if it is served.
            ("certificates.k8s.io", "clustertrustbundles") => request.read_trust_bundles(),
            ("certificates.k8s.io", "podcertificaterequests") => request.pod_certificate_request(),
            ("", "nodes") => request.node(),
            ("", "pods") => request.pod(),
            _ => return Ok(self.by_rules(attributes)),
        }
        .map(|()| Decision::Allow(String::new()))
    }

    fn by_rules(&self, attributes: &Attributes<'_>) -> Decision {
        if self.rules.iter().any(|rule| rule.permits(attributes)) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

impl Authorizer for Node {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let user = attributes.user;
        match user.node() {
            Some(node) => self.decide(node, attributes).unwrap_or_else(Decision::NoOpinion),
            None if user.name == NODE_PREFIX && user.is_in(NODES) => {
                Decision::NoOpinion(format!("unknown node for user {:?}", user.name))
            }
            None => Decision::NoOpinion(String::new()),
        }
    }
}

/// A kubelet's request on a resource. Its methods return `Ok` if it is allowed, or else the reason.
struct KubeletRequest<'a> {
    graph: &'a Graph,
    node: &'a str,
    verb: &'a str,
    resource: Resource<'a>,
}

type CheckResult = Result<(), String>;

impl KubeletRequest<'_> {
    fn get(&self, kind: Kind) -> CheckResult {
        self.require(self.verb == "get", "can only get individual resources of this type")?;
        self.require(self.is_whole(), "cannot get subresource")?;
        self.related(kind)
    }

    /// Allows reading one object. Kubelets watch single Secrets and ConfigMaps.
    fn read(&self, kind: Kind) -> CheckResult {
        self.require(matches!(self.verb, "get" | "list" | "watch"), "can only read resources of this type")?;
        self.require(self.is_whole(), "cannot read subresource")?;
        self.require(!self.resource.namespace.is_empty(), "can only read namespaced object of this type")?;
        self.related(kind)
    }

    fn write_status(&self, kind: Kind) -> CheckResult {
        self.require(matches!(self.verb, "update" | "patch"), "can only get/update/patch this type")?;
        self.related(kind)
    }

    fn service_account(&self) -> CheckResult {
        if self.verb == "get" && self.is_whole() {
            return self.read(Kind::ServiceAccount);
        }
        let single = self.verb == "create" && !self.resource.name.is_empty();
        self.require(single, "can only create tokens for individual service accounts")?;
        self.require(self.resource.subresource == "token", "can only create token subresource of serviceaccount")?;
        self.related(Kind::ServiceAccount)
    }

    /// Allows access to the node's Lease. The name is unknown on create and is checked by admission.
    fn lease(&self) -> CheckResult {
        self.require(self.owns_by_name(), "can only get, create, update, patch, or delete a node lease")?;
        let reason = "can only access leases in the \"kube-node-lease\" system namespace";
        self.require(self.resource.namespace == "kube-node-lease", reason)?;
        let own = self.verb == "create" || self.resource.name == self.node;
        self.require(own, "can only access node lease with the same name as the requesting node")
    }

    fn csi_node(&self) -> CheckResult {
        self.require(self.owns_by_name(), "can only get, create, update, patch, or delete a CSINode")?;
        self.require(self.is_whole(), "cannot authorize CSINode subresources")?;
        let own = self.verb == "create" || self.resource.name == self.node;
        self.require(own, "can only access CSINode with the same name as the requesting node")
    }

    fn resource_slice(&self) -> CheckResult {
        self.require(self.is_whole(), "cannot authorize ResourceSlice subresources")?;
        match self.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(Kind::ResourceSlice),
            "watch" | "list" | "deletecollection" => self.require(
                self.selects_own("spec.nodeName"),
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            _ => Err("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection".to_owned()),
        }
    }

    fn read_trust_bundles(&self) -> CheckResult {
        let only_looks = self.is_whole() && matches!(self.verb, "get" | "list" | "watch");
        if only_looks { Ok(()) } else { Err(String::new()) }
    }

    fn pod_certificate_request(&self) -> CheckResult {
        self.require(self.is_whole(), "nodes may not access the status subresource of PodCertificateRequests")?;
        match self.verb {
            "create" => Ok(()),
            "get" => self.related(Kind::PodCertificateRequest),
            "list" | "watch" => self.require(
                self.selects_own("spec.nodeName"),
                "can only list/watch podcertificaterequests with nodeName field selector",
            ),
            verb => Err(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    /// Allows access to the node. The name is compared instead of looked up, so that a kubelet can read its node before
    /// it exists.
    fn node(&self) -> CheckResult {
        let node = self.node;
        match (self.resource.subresource, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match self.resource.name {
                "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
                name if name == node => Ok(()),
                name => Err(format!("node '{node}' cannot read '{name}', only its own Node object")),
            },
            _ => Err(String::new()),
        }
    }

    /// Allows access to pods. Admission compares written pods with the kubelet's node.
    fn pod(&self) -> CheckResult {
        match (self.resource.subresource, self.verb) {
            ("", "get") => self.get(Kind::Pod),
            ("", "list" | "watch") if self.selects_own("spec.nodeName") => Ok(()),
            ("", "list" | "watch") if !self.resource.name.is_empty() => self.related(Kind::Pod),
            ("", "list" | "watch") => Err("can only list/watch pods with spec.nodeName field selector".to_owned()),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(String::new()),
        }
    }

    fn related(&self, kind: Kind) -> CheckResult {
        let Resource { namespace, name, .. } = self.resource;
        self.require(!name.is_empty(), "No Object name found")?;
        if self.graph.relates(kind, namespace, name, self.node) {
            return Ok(());
        }
        Err(format!("no relationship found between node '{}' and this object", self.node))
    }

    fn is_whole(&self) -> bool {
        self.resource.subresource.is_empty()
    }

    fn owns_by_name(&self) -> bool {
        matches!(self.verb, "get" | "create" | "update" | "patch" | "delete")
    }

    fn selects_own(&self, field: &str) -> bool {
        let equals = apimachinery::fields::Operator::Equals;
        let mut terms = self.resource.field_selector.iter();
        terms.any(|term| term.field == field && term.operator == equals && term.value == self.node)
    }

    fn require(&self, holds: bool, otherwise: &str) -> CheckResult {
        if holds { Ok(()) } else { Err(otherwise.to_owned()) }
    }
}

#[cfg(test)]
mod tests;
