//! Cluster snapshot of the scheduler: node columns for scanning and pod counts per node and domain, updated in place.
//!
//! A pod is a record of a few machine words. Its labels (class) and its requests, ports and affinity terms (shape) are
//! interned. Pods of each class are counted per node and per topology domain, so the cost of affinity rules grows with
//! the number of domains, not of pods.

mod arena;
mod change;
mod counts;
mod free_space;
mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::{Key, Str};

pub use arena::Arena;
pub use counts::Counts;
pub use free_space::FreeCapacity;
pub use topology::{Key as TopologyKey, NOWHERE, Topology};

use crate::devices::Devices;
use crate::hash::Map;
use crate::node::Node;
use crate::pod::{Class, HostPort, Labels, Pod, PodId, Shape, Taint, Term, VolumeUse};
use crate::resources::Resources;
use crate::storage::Storage;

/// Index of a node in the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

/// Resources used by the pods of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sum of requests.
    pub requested: Resources,
    /// Sum of CPU and memory with default values for missing requests.
    pub non_zero: [i64; 2],
    /// Number of pods.
    pub pods: i64,
    /// Used host ports.
    pub ports: Vec<HostPort>,
    /// Used claims and disks.
    pub volumes: Vec<VolumeUse>,
}

/// Properties of a node that filters scan: one entry of a column.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    pub allocatable: Resources,
    /// Allocatable number of pods.
    pub pods_max: i64,
    /// ID of the interned taint set.
    pub taints: u32,
    pub unschedulable: bool,
    /// `status.declaredFeatures`.
    pub features: Box<[Str]>,
}

/// A pod assigned to a node.
#[derive(Clone, Debug)]
pub struct AssignedPod {
    /// The namespace is in the class.
    pub name: Str,
    /// Seconds since 1970; `i64::MAX` if not started.
    pub started_seconds: i64,
    pub priority: i32,
    class: u32,
    shape: u32,
    node: NodeId,
    /// Whether the pod is being deleted by a preemption.
    pub preempted: bool,
    assumed: bool,
}

/// The state of the cluster that scheduling depends on.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    names: Map<Str, NodeId>,
    nodes: Vec<Record>,
    free_nodes: Vec<NodeId>,
    offers: Vec<Offer>,
    usage: Vec<Usage>,
    rooms: Vec<FreeCapacity>,
    /// Number of unschedulable (cordoned) nodes.
    closed: usize,
    symbols: Arena<Str>,
    taints: Arena<Box<[Taint]>>,
    images: Arena<Str>,
    image_nodes: Vec<Vec<(NodeId, i64)>>,
    topology: Topology,
    pods: Vec<Option<AssignedPod>>,
    free_pods: Vec<u32>,
    ids: Map<PodId, u32>,
    classes: Arena<Class>,
    class_counts: Vec<ClassCounts>,
    shapes: Arena<Shape>,
    shape_terms: Vec<Box<[u32]>>,
    terms: Arena<Term>,
    term_counts: Vec<TermCounts>,
    namespaces: BTreeMap<Str, Labels>,
    order: Vec<NodeId>,
    order_is_stale: bool,
    /// Number of pods per claim.
    claim_users: BTreeMap<Key, u32>,
    /// PersistentVolumeClaims, PersistentVolumes and StorageClasses.
    pub storage: Storage,
    /// ResourceClaims, ResourceSlices and DeviceClasses.
    pub devices: Devices,
}

/// Properties of a node that filters do not scan.
#[derive(Clone, Debug, Default)]
struct Record {
    name: Str,
    /// Whether the node object exists: pods may be observed before their node and outlive it.
    present: bool,
    labels: Box<[(u32, u32)]>,
    images: Box<[u32]>,
    pods: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct ClassCounts {
    by_node: Counts,
    /// Indexed by topology key.
    by_domain: Vec<Counts>,
}

#[derive(Clone, Debug, Default)]
struct TermCounts {
    key: u32,
    by_domain: Counts,
}

impl NodeId {
    /// Returns the index in the columns.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Usage {
    pub fn add(&mut self, shape: &Shape) {
        self.requested.increase(&shape.requests);
        self.non_zero = [0, 1].map(|at| self.non_zero[at].saturating_add(shape.non_zero[at]));
        self.pods += 1;
        self.ports.extend_from_slice(&shape.ports);
        self.volumes.extend_from_slice(&shape.volumes);
    }

    /// Removes a pod that was added before.
    pub fn remove(&mut self, shape: &Shape) {
        self.requested.decrease(&shape.requests);
        self.non_zero = [0, 1].map(|at| self.non_zero[at].saturating_sub(shape.non_zero[at]));
        self.pods -= 1;
        for port in &shape.ports {
            let at = self.ports.iter().position(|used| used == port).expect("the ports of the pod are in use");
            self.ports.swap_remove(at);
        }
        for volume in &shape.volumes {
            let at = self.volumes.iter().position(|used| used == volume).expect("the volumes of the pod are in use");
            self.volumes.swap_remove(at);
        }
    }
}

/// Updates from watches and from scheduling decisions.
impl Snapshot {
    /// Adds or updates a node.
    pub fn set_node(&mut self, node: &Node) {
        let id = self.node_slot(&node.name);
        self.uncount_domains(id);
        self.clear_node(id);
        let labels: Vec<_> = node.labels.iter().map(|(key, value)| (self.symbol(key), self.symbol(value))).collect();
        let images: Vec<_> = node.images.iter().map(|(name, size)| self.add_image(id, name, *size)).collect();
        let taints = self.taints.acquire(&Arc::new(node.taints.clone()));
        self.offers[id.index()] = Offer {
            allocatable: node.allocatable.clone(),
            pods_max: node.pods_max,
            taints,
            unschedulable: node.unschedulable,
            features: node.features.clone(),
        };
        self.closed += usize::from(node.unschedulable);
        self.measure(id);
        let record = &mut self.nodes[id.index()];
        record.present = true;
        record.labels = labels.into();
        record.labels.sort_unstable();
        record.images = images.into();
        for (label, key) in self.topology.labels() {
            let value = crate::pod::label(&node.labels, &label).map(Str::from);
            self.topology.set_domain(key, id, value.as_ref());
        }
        self.count_domains(id);
        self.order_is_stale = true;
    }

    /// Removes a node. Pods that are still assigned to it are kept until they are removed.
    pub fn remove_node(&mut self, name: &str) {
        let Some(&id) = self.names.get(name) else { return };
        if !self.nodes[id.index()].present {
            return;
        }
        self.uncount_domains(id);
        self.clear_node(id);
        for (_, key) in self.topology.labels() {
            self.topology.set_domain(key, id, None);
        }
        self.nodes[id.index()].present = false;
        self.measure(id);
        self.order_is_stale = true;
        self.drop_if_unused(id);
    }

    /// Adds or updates an assigned pod, and confirms it if it was assumed. Pods without a node and finished pods use no
    /// resources.
    pub fn set_pod(&mut self, pod: &Pod) {
        self.remove_pod(pod.id());
        if !pod.node_name.is_empty() && !pod.finished {
            self.add_pod_to_node(pod, &pod.node_name, false);
        }
    }

    pub fn remove_pod(&mut self, id: PodId) {
        let Some(slot) = self.ids.remove(&id) else { return };
        let pod = self.pods[slot as usize].take().expect("a known pod has a record");
        self.free_pods.push(slot);
        let node = pod.node;
        self.usage[node.index()].remove(self.shapes.value(pod.shape));
        self.release_claims(pod.shape);
        let record = &mut self.nodes[node.index()];
        let at = record.pods.iter().position(|have| *have == slot).expect("an assigned pod is on its node");
        record.pods.remove(at);
        self.measure(node);
        self.muster(node);
        self.uncount(&pod);
        self.class_counts[pod.class as usize].by_node.decrease(node.0);
        if self.classes.release(pod.class) {
            self.class_counts[pod.class as usize] = ClassCounts::default();
        }
        if self.shapes.release(pod.shape) {
            for term in std::mem::take(&mut self.shape_terms[pod.shape as usize]) {
                self.terms.release(term);
            }
        }
        self.drop_if_unused(node);
    }

    /// Counts a pod on its chosen node before the watch reports the binding.
    pub fn assume(&mut self, pod: &Pod, node: &str) {
        self.remove_pod(pod.id());
        self.add_pod_to_node(pod, &Str::from(node), true);
    }

    /// Removes an assumed pod. A pod that was confirmed meanwhile stays.
    pub fn remove_assumed_pod(&mut self, id: PodId) {
        let assumed = self.ids.get(&id).and_then(|slot| self.pods[*slot as usize].as_ref()).is_some_and(|p| p.assumed);
        if assumed {
            self.remove_pod(id);
        }
    }

    pub fn set_namespace(&mut self, name: &str, labels: Labels) {
        self.namespaces.insert(name.into(), labels);
    }

    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Prepares a scheduling cycle for `pod`: registers its topology keys and updates the node order.
    pub fn prepare<'a>(&mut self, pod: &Pod, defaults: impl Iterator<Item = &'a Str>) {
        for term in &pod.shape.terms {
            self.topology_key(&term.topology_key);
        }
        for spread in &pod.spread {
            self.topology_key(&spread.topology_key);
        }
        for key in defaults {
            self.topology_key(key);
        }
        if self.order_is_stale {
            self.order = self.interleaved();
            self.order_is_stale = false;
        }
    }
}

/// Queries.
impl Snapshot {
    /// Returns the nodes in the order in which they are tried, alternating between zones. Valid only after
    /// [`Snapshot::prepare`].
    pub fn nodes(&self) -> &[NodeId] {
        &self.order
    }

    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied().filter(|id| self.nodes[id.index()].present)
    }

    pub fn node_name(&self, node: NodeId) -> &Str {
        &self.nodes[node.index()].name
    }

    pub fn offer(&self, node: NodeId) -> &Offer {
        &self.offers[node.index()]
    }

    pub fn usage(&self, node: NodeId) -> &Usage {
        &self.usage[node.index()]
    }

    /// Returns the interned taint sets of nodes.
    pub const fn taints(&self) -> &Arena<Box<[Taint]>> {
        &self.taints
    }

    /// Returns the symbol ID of a label key or value, if a node has it.
    pub fn symbol_of(&self, text: &str) -> Option<u32> {
        self.symbols.find(&Str::from(text))
    }

    /// Returns the text of a symbol.
    pub fn text(&self, symbol: u32) -> &str {
        self.symbols.value(symbol)
    }

    /// Returns the symbol of a label's value; `key` is a symbol, too.
    pub fn label(&self, node: NodeId, key: u32) -> Option<u32> {
        let labels = &self.nodes[node.index()].labels;
        labels.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| labels[at].1)
    }

    /// Returns the nodes that have an image with its size there, in node order.
    pub fn image_nodes(&self, image: &str) -> &[(NodeId, i64)] {
        self.images.find(&Str::from(image)).map_or(&[], |id| &self.image_nodes[id as usize])
    }

    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    pub fn namespace_labels(&self, name: &str) -> &[(Str, Str)] {
        self.namespaces.get(name).map_or(&[], |labels| labels)
    }

    /// Returns the names of all namespaces, sorted.
    pub fn namespaces(&self) -> impl Iterator<Item = &Str> {
        self.namespaces.keys()
    }

    /// Returns the classes of assigned pods.
    pub fn classes(&self) -> impl Iterator<Item = (u32, &Arc<Class>)> {
        self.classes.iter()
    }

    /// Returns the number of pods of a class per node, for nodes that have any.
    pub fn nodes_of_class(&self, class: u32) -> impl Iterator<Item = (NodeId, u32)> {
        self.class_counts[class as usize].by_node.iter().map(|(node, number)| (NodeId(node), number))
    }

    /// Returns the number of pods of a class per domain of a topology key.
    pub fn class_by_domain(&self, class: u32, key: u32) -> impl Iterator<Item = (u32, u32)> {
        self.class_counts[class as usize].by_domain.get(key as usize).into_iter().flat_map(Counts::iter)
    }

    /// Returns the affinity terms of assigned pods: each with its topology key and the number of pods per domain that
    /// have it.
    pub fn terms(&self) -> impl Iterator<Item = (&Term, u32, &Counts)> {
        self.terms.iter().map(|(id, term)| {
            let counts = &self.term_counts[id as usize];
            (&**term, counts.key, &counts.by_domain)
        })
    }

    pub fn pods(&self, node: NodeId) -> impl Iterator<Item = &AssignedPod> {
        self.nodes[node.index()].pods.iter().map(|slot| self.placed(*slot))
    }

    pub fn node_of(&self, id: PodId) -> Option<NodeId> {
        self.ids.get(&id).map(|slot| self.placed(*slot).node)
    }

    pub fn class(&self, pod: &AssignedPod) -> &Arc<Class> {
        self.classes.value(pod.class)
    }

    pub fn shape(&self, pod: &AssignedPod) -> &Arc<Shape> {
        self.shapes.value(pod.shape)
    }

    /// Returns the number of assigned pods that use a claim.
    pub fn claim_users(&self, claim: &Key) -> u32 {
        self.claim_users.get(claim).copied().unwrap_or_default()
    }

    /// Reconstructs an assigned pod from its record: name, class, shape, priority and node. Other fields are empty.
    pub fn pod(&self, id: PodId) -> Option<Pod> {
        let placed = self.placed(*self.ids.get(&id)?);
        Some(Pod {
            name: placed.name.clone(),
            class: self.class(placed).clone(),
            shape: self.shape(placed).clone(),
            priority: placed.priority,
            preempted: placed.preempted,
            node_name: self.node_name(placed.node).clone(),
            ..Pod::default()
        })
    }

    /// Returns the keys of all assigned pods.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let key = |pod: &AssignedPod| Key::new(self.class(pod).namespace.clone(), pod.name.clone());
        self.pods.iter().flatten().map(key)
    }

    /// Returns the number of assigned pods.
    pub fn pods_len(&self) -> usize {
        self.ids.len()
    }

    fn placed(&self, slot: u32) -> &AssignedPod {
        self.pods[slot as usize].as_ref().expect("a pod on a node has a record")
    }
}

#[cfg(test)]
mod tests;
