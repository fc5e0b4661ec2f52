//! Pods, condensed to the fields that scheduling depends on.

mod affinity;
mod devices;
mod node_affinity;
mod requests;
mod spread;
mod taints;
mod volumes;

use std::sync::Arc;

use api::view;
use apimachinery::labels::{Selector, SelectorError};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Key, Object, Str, Value};

pub use affinity::{Term, TermKind};
pub use devices::{ContainerResource, DeviceClaim, Source};
pub use node_affinity::{NodeAffinity, PreferredTerm};
pub use requests::{MISSING_CPU_MILLI, MISSING_MEMORY};
pub use spread::{Policy, Spread, WhenUnsatisfiable};
pub use taints::{Effect, Taint, Toleration};
pub use volumes::{PodClaim, VolumeUse};

use crate::hash;
use crate::plugins::node_declared_features;
use crate::resources::Resources;

/// Labels sorted by key.
pub type Labels = Box<[(Str, Str)]>;

/// Identity of a pod: a hash of namespace and name. An array of bytes has no alignment; beside a `u32`, a `u128` would
/// add 12 bytes of padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId([u8; 16]);

/// A host port requested by a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Str,
    /// `hostIP`; `0.0.0.0` for all addresses.
    pub address: Str,
}

/// Properties by which other pods' selectors match a pod; interned, because many pods share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class {
    pub namespace: Str,
    pub labels: Labels,
    /// Whether the pods are being deleted; PodTopologySpread does not count these.
    pub terminating: bool,
}

/// Resource usage of a pod; interned, because pods of one template share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Requests that the node must provide.
    pub requests: Resources,
    /// CPU and memory for scoring, with default values for containers without requests.
    pub non_zero: [i64; 2],
    /// Used host ports.
    pub ports: Box<[HostPort]>,
    /// Pod affinity terms.
    pub terms: Box<[Arc<Term>]>,
    /// Used claims and disks.
    pub volumes: Box<[VolumeUse]>,
}

/// Controllers whose selector is used for default spreading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerKind {
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

/// The controller of a pod, in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub kind: OwnerKind,
    pub name: Str,
}

#[derive(Clone, Debug, Default)]
pub struct Pod {
    pub name: Str,
    pub uid: Str,
    pub class: Arc<Class>,
    pub shape: Arc<Shape>,
    pub priority: i32,
    /// Whether `preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// Whether the pod is being deleted by a preemption.
    pub preempted: bool,
    /// Whether the phase is terminal: the pod uses no resources.
    pub finished: bool,
    /// Start time in seconds since 1970.
    pub started_seconds: Option<i64>,
    /// `spec.nodeName`; empty if not set.
    pub node_name: Str,
    /// `status.nominatedNodeName`; empty if not set.
    pub nominated_node: Str,
    pub scheduler_name: Str,
    /// Scheduling gates.
    pub gates: Vec<Str>,
    pub node_selector: Labels,
    pub node_affinity: NodeAffinity,
    pub tolerations: Vec<Toleration>,
    /// Topology spread constraints; empty if the pod specifies none.
    pub spread: Vec<Spread>,
    pub owner: Option<Owner>,
    /// Combined selector of the pod's services and controller, for default spreading.
    pub default_selector: Option<Selector>,
    /// CPU and memory of the pod to schedule, with default values for each container without requests.
    pub scored: [i64; 2],
    /// PersistentVolumeClaims of its volumes.
    pub claims: Vec<PodClaim>,
    /// Names of all images, with tags.
    pub images: Vec<Str>,
    pub device_claims: Vec<DeviceClaim>,
    /// Extended resources per container.
    pub extended: Vec<ContainerResource>,
    /// Node features that the pod needs (`status.declaredFeatures` of nodes).
    pub features: Vec<&'static str>,
}

/// A pod that cannot be parsed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("{field}: {reason}")]
    Selector {
        /// Path of the selector in the pod.
        field: &'static str,
        reason: SelectorError,
    },
}

impl PodId {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(hash::wide(&[namespace, name]).to_be_bytes())
    }
}

impl Pod {
    pub fn new(object: &Value) -> Result<Self, Error> {
        let meta = Meta::of(object);
        let (spec, status) = (&object["spec"], &object["status"]);
        let text = |value: &Value, field: &str| Str::from(value.text_at(&[field]));
        let class = Class {
            namespace: meta.namespace().into(),
            labels: labels(meta.labels()),
            terminating: meta.is_deleting(),
        };
        let terms = affinity::terms(spec, meta.namespace())?;
        let amounts = requests::requests(view::Pod(object));
        let claims = volumes::claims(spec, meta.name());
        let shape = Shape {
            requests: amounts.requests,
            non_zero: amounts.non_zero,
            ports: ports(spec),
            terms,
            volumes: volumes::uses(spec, meta.namespace(), &claims),
        };
        Ok(Self {
            name: meta.name().into(),
            uid: meta.uid().into(),
            priority: spec.get("priority").and_then(Value::as_int).map_or(0, clamp),
            never_preempts: spec.str_at(&["preemptionPolicy"]) == Some("Never"),
            preempted: meta.is_deleting() && disrupted_by_scheduler(status),
            finished: view::Pod(object).is_terminal(),
            started_seconds: status
                .str_at(&["startTime"])
                .and_then(|text| Time::parse(text).ok())
                .map(Time::unix_seconds),
            node_name: text(spec, "nodeName"),
            nominated_node: text(status, "nominatedNodeName"),
            scheduler_name: text(spec, "schedulerName"),
            gates: spec.list_at(&["schedulingGates"]).iter().map(|gate| text(gate, "name")).collect(),
            node_selector: labels(spec.get("nodeSelector").and_then(Value::as_object)),
            node_affinity: NodeAffinity::new(spec.at(&["affinity", "nodeAffinity"])),
            tolerations: spec.list_at(&["tolerations"]).iter().map(Toleration::new).collect(),
            spread: spread::constraints(spec, &class.labels)?,
            owner: owner(meta),
            default_selector: None,
            scored: amounts.scored,
            claims,
            images: images(spec),
            device_claims: devices::claims(spec, status),
            extended: devices::extended(spec),
            features: node_declared_features::needed(spec),
            class: Arc::new(class),
            shape: Arc::new(shape),
        })
    }

    pub fn id(&self) -> PodId {
        PodId::new(&self.class.namespace, &self.name)
    }

    /// Whether both have the same namespace and name, like [`Pod::id`].
    pub fn is(&self, other: &Self) -> bool {
        self.name == other.name && self.class.namespace == other.class.namespace
    }

    /// Returns the keys of its PersistentVolumeClaims.
    pub fn claim_keys(&self) -> impl Iterator<Item = Key> {
        self.claims.iter().map(|own| Key::new(self.class.namespace.clone(), own.name.clone()))
    }

    /// Whether the pod uses a ResourceClaim.
    pub fn uses_device_claim(&self, key: &Key) -> bool {
        let names = self.device_claims.iter().filter_map(|own| own.source.name());
        self.class.namespace == key.namespace && names.into_iter().any(|name| *name == key.name)
    }
}

impl Class {
    pub fn matches(&self, selector: &Selector) -> bool {
        selector.matches(|key| label(&self.labels, key))
    }
}

impl HostPort {
    /// Whether both ports cannot be used on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || self.address == ANY || other.address == ANY)
    }
}

/// Reads labels; they stay in the object's order, which is sorted by key.
pub fn labels(object: Option<&Object>) -> Labels {
    let entries = object.into_iter().flat_map(Object::iter);
    entries.map(|(key, value)| (key.into(), value.as_str().unwrap_or_default().into())).collect()
}

/// Returns the value of a label by binary search; `labels` must be sorted.
pub fn label<'a>(labels: &'a [(Str, Str)], key: &str) -> Option<&'a str> {
    let at = labels.binary_search_by(|(have, _)| have.as_str().cmp(key)).ok()?;
    Some(&labels[at].1)
}

/// Returns the image name as nodes report it, with `:latest` if it has no tag.
pub fn tagged(image: &str) -> Str {
    if image.rfind(':') <= image.rfind('/') { format!("{image}:latest").into() } else { image.into() }
}

fn owner(meta: Meta<'_>) -> Option<Owner> {
    let controller = meta.controller()?;
    let group = controller.api_version().split_once('/').map_or("", |(group, _)| group);
    let kind = match (group, controller.kind()) {
        ("", "ReplicationController") => OwnerKind::ReplicationController,
        ("apps", "ReplicaSet") => OwnerKind::ReplicaSet,
        ("apps", "StatefulSet") => OwnerKind::StatefulSet,
        _ => return None,
    };
    Some(Owner { kind, name: controller.name().into() })
}

fn clamp(int: i64) -> i32 {
    i32::try_from(int).unwrap_or(if int < 0 { i32::MIN } else { i32::MAX })
}

fn ports(spec: &Value) -> Box<[HostPort]> {
    let sidecars =
        spec.list_at(&["initContainers"]).iter().filter(|it| it.str_at(&["restartPolicy"]) == Some("Always"));
    let ports =
        spec.list_at(&["containers"]).iter().chain(sidecars).flat_map(|container| container.list_at(&["ports"]));
    let text = |port: &Value, field: &str, absent: &str| {
        Str::from(port.str_at(&[field]).filter(|text| !text.is_empty()).unwrap_or(absent))
    };
    let mut ports: Vec<_> = ports
        .filter_map(|port| {
            let number = u16::try_from(port.get("hostPort")?.as_int()?).ok().filter(|number| *number > 0)?;
            let (protocol, address) = (text(port, "protocol", "TCP"), text(port, "hostIP", "0.0.0.0"));
            Some(HostPort { port: number, protocol, address })
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports.into()
}

fn images(spec: &Value) -> Vec<Str> {
    let containers = spec.list_at(&["initContainers"]).iter().chain(spec.list_at(&["containers"]));
    let volumes = spec.list_at(&["volumes"]).iter().filter_map(|volume| volume.get("image"));
    let names = containers.map(|it| it.str_at(&["image"])).chain(volumes.map(|it| it.str_at(&["reference"])));
    names.map(|name| tagged(name.unwrap_or_default())).collect()
}

fn disrupted_by_scheduler(status: &Value) -> bool {
    status.list_at(&["conditions"]).iter().any(|condition| {
        condition.str_at(&["type"]) == Some("DisruptionTarget")
            && condition.str_at(&["status"]) == Some("True")
            && condition.str_at(&["reason"]) == Some("PreemptionByScheduler")
    })
}

#[cfg(test)]
mod tests;
