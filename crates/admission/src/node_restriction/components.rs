//! NodeRestriction for node components other than the kubelet: each can only write objects of its own node.
//!
//! RBAC decides which kinds a component may write, but cannot restrict the objects. Kinds not listed here are decided
//! by RBAC alone.

use std::net::IpAddr;

use api::resources::{NODES, PERSISTENT_VOLUME_CLAIMS};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::names::parse_cidr;
use apimachinery::{Value, go};
use auth::node::component::{self, Component};

use super::super::pods::spec;
use super::super::{Attributes, Operation, View};
use super::{AdmissionResult, LEASES};

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "knarr.dev/local-path";
const SERVICE: &str = "kube-dns";

// DEVIATION: NodeRestriction also restricts the users of Knarr's own node components, `knarr:dns:NODE`,
// `knarr:network:NODE` and `knarr:local-path:NODE`, to objects of their node.
/// Rejects writes of a node component to objects of other nodes.
pub(super) fn admit(attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> AdmissionResult {
    component::of(attributes.user).try_for_each(|Component { component, node }| {
        let write = Write { node, attributes, object, view };
        match (component, attributes.kind.group.as_str(), attributes.kind.plural.as_str()) {
            (component::DNS, "discovery.k8s.io", "endpointslices") => write.slice(),
            (component::NETWORK, "coordination.k8s.io", "leases") => write.lease(),
            (component::LOCAL_PATH, "", "persistentvolumes") => write.volume(),
            _ => Ok(()),
        }
    })
}

/// A write of a component.
struct Write<'a> {
    node: &'a str,
    attributes: &'a Attributes<'a>,
    object: &'a Value,
    view: &'a dyn View,
}

impl Write<'_> {
    fn forbid(&self, action: &str) -> AdmissionResult {
        let (user, node) = (&self.attributes.user.name, go::quote(self.node));
        Err(self.attributes.forbidden(self.object, format!("{user} can only {action} of node {node}")))
    }

    fn require(&self, holds: bool, action: &str) -> AdmissionResult {
        if holds && !self.node.is_empty() { Ok(()) } else { self.forbid(action) }
    }

    fn is_named(&self, namespace: &str, names: &[String]) -> bool {
        let created = self.attributes.operation == Operation::Create;
        let name = if created { Meta::of(self.object).name() } else { self.attributes.name };
        self.attributes.namespace == namespace && names.iter().any(|one| one == name)
    }

    /// Allows the node's own EndpointSlices of the DNS Service, which only pods of the node use.
    fn slice(&self) -> AdmissionResult {
        let names = ["", "-ipv6"].map(|family| format!("{SERVICE}-{}{family}", self.node));
        self.require(self.is_named("kube-system", &names), "write the EndpointSlices of kube-dns")?;
        if self.attributes.operation == Operation::Delete {
            return Ok(());
        }
        let is_of_service = Meta::of(self.object).label("kubernetes.io/service-name") == Some(SERVICE);
        self.require(is_of_service, "write EndpointSlices of the service kube-dns")?;
        let node = self.view.object(NODES, "", self.node);
        let is_own = |endpoint: &Value| {
            let hints = endpoint.get("hints").map(|hints| hints.list_at(&["forNodes"])).unwrap_or_default();
            let mut addresses =
                endpoint.list_at(&["addresses"]).iter().map(|address| address.as_str().unwrap_or_default());
            endpoint.text_at(&["nodeName"]) == self.node
                && matches!(hints, [hint] if hint.text_at(&["name"]) == self.node)
                && node.as_ref().is_some_and(|node| addresses.all(|address| has_address(node, address)))
        };
        self.require(
            self.object.list_at(&["endpoints"]).iter().all(is_own),
            "publish endpoints with addresses and hints",
        )
    }

    fn lease(&self) -> AdmissionResult {
        let is_own = self.is_named(LEASES, &[format!("load-balancer-{}", self.node)]);
        let is_holder = self.attributes.operation == Operation::Delete
            || spec(self.object).text_at(&["holderIdentity"]) == self.node;
        self.require(is_own && is_holder, "write the load balancer's Lease")
    }

    fn volume(&self) -> AdmissionResult {
        match (self.attributes.operation, self.attributes.old) {
            (Operation::Create, _) => {
                self.require(self.is_own_volume(self.object), "create local volumes")?;
                self.require(self.is_for_selected_claim(), "create volumes for claims")
            }
            (Operation::Update, Some(old)) => {
                self.require(self.is_own_volume(old), "update local volumes")?;
                self.require(without_finalizers(old) == without_finalizers(self.object), "update finalizers of volumes")
            }
            (Operation::Delete, Some(old)) => self.require(self.is_own_volume(old), "delete local volumes"),
            _ => self.forbid("write volumes"),
        }
    }

    /// Whether the volume is a directory on this node, provisioned by the component.
    fn is_own_volume(&self, volume: &Value) -> bool {
        let terms = spec(volume).at(&["nodeAffinity", "required", "nodeSelectorTerms"]).and_then(Value::as_array);
        let expressions = match terms.unwrap_or_default() {
            [term] => term.list_at(&["matchExpressions"]),
            _ => &[],
        };
        let is_here = matches!(expressions, [one] if one.text_at(&["key"]) == "kubernetes.io/hostname"
            && one.text_at(&["operator"]) == "In"
            && matches!(one.list_at(&["values"]), [value] if value.as_str() == Some(self.node)));
        let is_local = spec(volume).get("local").is_some_and(|local| !local.is_null());
        Meta::of(volume).annotation(PROVISIONED_BY) == Some(PROVISIONER) && is_here && is_local
    }

    /// Whether the scheduler selected this node for the claim that the volume is bound to.
    fn is_for_selected_claim(&self) -> bool {
        let reference = &spec(self.object)["claimRef"];
        let (namespace, name) = (reference.text_at(&["namespace"]), reference.text_at(&["name"]));
        self.view.object(PERSISTENT_VOLUME_CLAIMS, namespace, name).is_some_and(|claim| {
            let meta = Meta::of(&claim);
            meta.uid() == reference.text_at(&["uid"])
                && !meta.uid().is_empty()
                && meta.annotation(STORAGE_PROVISIONER) == Some(PROVISIONER)
                && meta.annotation(SELECTED_NODE) == Some(self.node)
                && spec(&claim).text_at(&["storageClassName"]) == spec(self.object).text_at(&["storageClassName"])
        })
    }
}

/// Whether an address belongs to the node or to its pod CIDR.
fn has_address(node: &Value, address: &str) -> bool {
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let status = node.get("status").map(|status| status.list_at(&["addresses"])).unwrap_or_default();
    let is_of_node = status.iter().any(|one| one.text_at(&["address"]).parse() == Ok(address));
    let mut ranges = spec(node).list_at(&["podCIDRs"]).iter().filter_map(|range| parse_cidr(range.as_str()?));
    is_of_node || ranges.any(|range| contains(range, address))
}

fn contains((first, bits): (IpAddr, u8), address: IpAddr) -> bool {
    match (first, address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => {
            let Some(host_bits) = 32_u32.checked_sub(bits.into()) else { return false };
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            u32::from(first) & mask == u32::from(address) & mask
        }
        (IpAddr::V6(first), IpAddr::V6(address)) => {
            let Some(host_bits) = 128_u32.checked_sub(bits.into()) else { return false };
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            u128::from(first) & mask == u128::from(address) & mask
        }
        _ => false,
    }
}

fn without_finalizers(volume: &Value) -> Value {
    let mut volume = volume.clone();
    if let Some(mut meta) = MetaMut::of(&mut volume) {
        for field in ["finalizers", "resourceVersion", "managedFields"] {
            meta.remove(field);
        }
    }
    volume
}
