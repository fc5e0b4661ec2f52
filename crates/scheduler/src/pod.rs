//! A pod condensed to what placing it depends on.

mod affinity;
mod devices;
mod node_affinity;
mod requests;
mod spread;
mod taints;
mod volumes;

use std::sync::Arc;

use machinery::labels::{Selector, SelectorError};
use machinery::meta::Meta;
use machinery::time::Time;
use machinery::{Key, Object, Str, Value};

pub use affinity::{Term, TermKind};
pub use devices::{ContainerResource, DeviceClaim, Source};
pub use node_affinity::{NodeAffinity, NodeTerm, Operator, Requirement, Weighted};
pub use requests::{MISSING_CPU_MILLI, MISSING_MEMORY};
pub use spread::{Policy, Spread, WhenUnsatisfiable};
pub use taints::{Effect, Taint, Toleration};
pub use volumes::{PodClaim, VolumeUse};

use crate::hash;
use crate::plugins::node_declared_features;
use crate::resources::{self, Resources};

/// Labels sorted by key.
pub type Labels = Box<[(Str, Str)]>;

/// Which pod, whatever becomes of it: a hash of namespace and name. Bytes, because beside a number of four a number of sixteen would
/// take up twelve more than it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId([u8; 16]);

/// A port of the node that a pod wants for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// The number.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Str,
    /// The address, `0.0.0.0` for every one.
    pub address: Str,
}

/// What many pods have in common: the labels that others select them by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class {
    /// Their namespace.
    pub namespace: Str,
    /// Their labels.
    pub labels: Labels,
    /// Whether they are being deleted: spreading does not count those.
    pub terminating: bool,
}

/// What pods of one template have in common: how they weigh on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// What is taken off the node.
    pub requests: Resources,
    /// Processor and memory with a guess for containers that ask for none: what scoring counts.
    pub non_zero: [i64; 2],
    /// The node's ports that are taken.
    pub ports: Box<[HostPort]>,
    /// Rules about other pods.
    pub terms: Box<[Arc<Term>]>,
    /// Claims and disks that are taken.
    pub volumes: Box<[VolumeUse]>,
}

/// Whose selector tells which pods are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerKind {
    /// A `ReplicationController`.
    ReplicationController,
    /// A `ReplicaSet` of `apps`.
    ReplicaSet,
    /// A `StatefulSet` of `apps`.
    StatefulSet,
}

/// A controller of pods, in their namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// What it is.
    pub kind: OwnerKind,
    /// Its name.
    pub name: Str,
}

/// A pod as the scheduler sees it.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    /// Its name.
    pub name: Str,
    /// Its unique identifier.
    pub uid: Str,
    /// Namespace and labels.
    pub class: Arc<Class>,
    /// Its weight and rules.
    pub shape: Arc<Shape>,
    /// How important it is.
    pub priority: i32,
    /// Whether it must not evict others.
    pub never_preempts: bool,
    /// Whether it is being deleted to make room for another pod.
    pub preempted: bool,
    /// Whether its containers have all ended for good: it weighs nothing.
    pub finished: bool,
    /// When it started, in seconds since 1970.
    pub started_seconds: Option<i64>,
    /// The node that it runs on or must run on; empty if not yet known.
    pub node_name: Str,
    /// The node whose pods it has evicted.
    pub nominated_node: Str,
    /// Who places it.
    pub scheduler_name: Str,
    /// What must be taken away before it is placed.
    pub gates: Vec<Str>,
    /// Labels that its node must have.
    pub node_selector: Labels,
    /// More elaborate rules on its node.
    pub node_affinity: NodeAffinity,
    /// The taints that it bears.
    pub tolerations: Vec<Toleration>,
    /// How it spreads with others; empty if it has no rules of its own.
    pub spread: Vec<Spread>,
    /// The controller that made it.
    pub owner: Option<Owner>,
    /// What the services and controllers that it belongs to select, for spreading by default.
    pub default_selector: Option<Selector>,
    /// Processor and memory as scoring counts them, with a guess for each container that asks for none.
    pub scored: [i64; 2],
    /// The claims of its volumes.
    pub claims: Vec<PodClaim>,
    /// Names of all images, with tags.
    pub images: Vec<Str>,
    /// The claims of its devices.
    pub device_claims: Vec<DeviceClaim>,
    /// The extended resources of its containers.
    pub extended: Vec<ContainerResource>,
    /// What its node's kubelet must have declared.
    pub features: Vec<&'static str>,
}

/// Why a pod cannot be understood.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// An amount of a resource is none.
    #[error(transparent)]
    Quantity(#[from] resources::Error),
    /// A label selector is none.
    #[error("{field}: {reason}")]
    Selector {
        /// The field that holds it.
        field: &'static str,
        /// What is wrong.
        reason: SelectorError,
    },
}

impl PodId {
    /// The pod of this namespace and name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(hash::wide(&[namespace, name]).to_be_bytes())
    }
}

impl Pod {
    /// Condenses an object of kind Pod.
    pub fn new(object: &Value) -> Result<Self, Error> {
        let meta = Meta::of(object);
        let (spec, status) = (&object["spec"], &object["status"]);
        let text = |value: &Value, field: &str| Str::from(value.str_at(&[field]).unwrap_or_default());
        let class = Class {
            namespace: meta.namespace().into(),
            labels: labels(meta.labels()),
            terminating: meta.is_deleting(),
        };
        let terms = affinity::terms(spec, meta.namespace())?;
        let amounts = requests::requests(spec, status)?;
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
            finished: matches!(status.str_at(&["phase"]), Some("Succeeded" | "Failed")),
            started_seconds: status
                .str_at(&["startTime"])
                .and_then(|text| Time::parse(text).ok())
                .map(Time::unix_seconds),
            node_name: text(spec, "nodeName"),
            nominated_node: text(status, "nominatedNodeName"),
            scheduler_name: text(spec, "schedulerName"),
            gates: items(spec, "schedulingGates").iter().map(|gate| text(gate, "name")).collect(),
            node_selector: labels(spec.get("nodeSelector").and_then(Value::as_object)),
            node_affinity: NodeAffinity::new(spec.at(&["affinity", "nodeAffinity"])),
            tolerations: items(spec, "tolerations").iter().map(Toleration::new).collect(),
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

    /// Which pod it is.
    pub fn id(&self) -> PodId {
        PodId::new(&self.class.namespace, &self.name)
    }

    /// Whether both are the same pod, as [`Pod::id`] has it.
    pub fn is(&self, other: &Self) -> bool {
        self.name == other.name && self.class.namespace == other.class.namespace
    }

    /// The keys of its claims.
    pub fn claim_keys(&self) -> impl Iterator<Item = Key> {
        self.claims.iter().map(|own| Key::new(self.class.namespace.clone(), own.name.clone()))
    }

    /// Whether it uses a claim of devices.
    pub fn uses_device_claim(&self, key: &Key) -> bool {
        let names = self.device_claims.iter().filter_map(|own| own.source.name());
        self.class.namespace == key.namespace && names.into_iter().any(|name| *name == key.name)
    }
}

impl Class {
    /// Whether a selector matches the labels.
    pub fn matches(&self, selector: &Selector) -> bool {
        selector.matches(|key| label(&self.labels, key))
    }
}

impl HostPort {
    /// Whether both cannot be had on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || self.address == ANY || other.address == ANY)
    }
}

/// The labels of an object, sorted by key as the object is.
pub fn labels(object: Option<&Object>) -> Labels {
    let entries = object.into_iter().flat_map(Object::iter);
    entries.map(|(key, value)| (key.into(), value.as_str().unwrap_or_default().into())).collect()
}

/// The value of a label.
pub fn label<'a>(labels: &'a [(Str, Str)], key: &str) -> Option<&'a str> {
    let at = labels.binary_search_by(|(have, _)| have.as_str().cmp(key)).ok()?;
    Some(&labels[at].1)
}

/// The image's name as nodes report it: with a tag.
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

pub(crate) fn items<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).unwrap_or_default()
}

fn clamp(int: i64) -> i32 {
    i32::try_from(int).unwrap_or(if int < 0 { i32::MIN } else { i32::MAX })
}

fn ports(spec: &Value) -> Box<[HostPort]> {
    let sidecars = items(spec, "initContainers").iter().filter(|it| it.str_at(&["restartPolicy"]) == Some("Always"));
    let ports = items(spec, "containers").iter().chain(sidecars).flat_map(|container| items(container, "ports"));
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
    let containers = items(spec, "initContainers").iter().chain(items(spec, "containers"));
    let volumes = items(spec, "volumes").iter().filter_map(|volume| volume.get("image"));
    let names = containers.map(|it| it.str_at(&["image"])).chain(volumes.map(|it| it.str_at(&["reference"])));
    names.map(|name| tagged(name.unwrap_or_default())).collect()
}

fn disrupted_by_scheduler(status: &Value) -> bool {
    items(status, "conditions").iter().any(|condition| {
        condition.str_at(&["type"]) == Some("DisruptionTarget")
            && condition.str_at(&["status"]) == Some("True")
            && condition.str_at(&["reason"]) == Some("PreemptionByScheduler")
    })
}

#[cfg(test)]
mod tests;
