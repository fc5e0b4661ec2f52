//! The cluster as the scheduler sees it: columns of nodes for scanning, pods as counts per place, changed in place.
//!
//! A pod is a record of a few words: what it shares with its like (labels; requests, ports and rules) is interned, and
//! the pods of each class are counted per node and per topology domain, so that rules about pods cost as much as there
//! are domains, however many pods there are.

mod arena;
mod change;
mod counts;
mod room;
mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;

use machinery::{Key, Str};

pub use arena::Arena;
pub use counts::Counts;
pub use room::Room;
pub use topology::{Key as TopologyKey, NOWHERE, Topology};

use crate::devices::Devices;
use crate::hash::Map;
use crate::node::Node;
use crate::pod::{Class, HostPort, Labels, Pod, PodId, Shape, Taint, Term, VolumeUse};
use crate::resources::Resources;
use crate::storage::Storage;

/// A node by its place in the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

/// What the pods of a node take from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The sum of what they ask for.
    pub requested: Resources,
    /// The sums of processor and memory with guesses for what is not asked for.
    pub non_zero: [i64; 2],
    /// How many they are.
    pub pods: i64,
    /// The ports they hold.
    pub ports: Vec<HostPort>,
    /// The claims and disks they hold.
    pub volumes: Vec<VolumeUse>,
}

/// What a node offers: one entry of a column.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// What its pods may ask for in all.
    pub allocatable: Resources,
    /// How many pods it takes.
    pub pods_max: i64,
    /// Which set of taints it has.
    pub taints: u32,
    /// Whether an administrator closed it.
    pub unschedulable: bool,
    /// What its kubelet says that it can do.
    pub features: Box<[Str]>,
}

/// A pod that has a node.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its name; the namespace is that of its class.
    pub name: Str,
    /// When it started; `i64::MAX` if it has not.
    pub started_seconds: i64,
    /// How important it is.
    pub priority: i32,
    class: u32,
    shape: u32,
    node: NodeId,
    /// Whether it goes to make room for another pod.
    pub preempted: bool,
    assumed: bool,
}

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    names: Map<Str, NodeId>,
    nodes: Vec<Record>,
    free_nodes: Vec<NodeId>,
    offers: Vec<Offer>,
    usage: Vec<Usage>,
    rooms: Vec<Room>,
    /// How many nodes an administrator closed.
    closed: usize,
    symbols: Arena<Str>,
    taints: Arena<Box<[Taint]>>,
    images: Arena<Str>,
    image_nodes: Vec<Vec<(NodeId, i64)>>,
    topology: Topology,
    pods: Vec<Option<Placed>>,
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
    /// How many pods use each claim.
    claim_users: BTreeMap<Key, u32>,
    /// Claims, volumes and classes of storage.
    pub storage: Storage,
    /// Claims, slices and classes of devices.
    pub devices: Devices,
}

/// Facts of a node that are not scanned.
#[derive(Clone, Debug, Default)]
struct Record {
    name: Str,
    /// Whether there is such a node: pods may be known before their node is, and after.
    present: bool,
    labels: Box<[(u32, u32)]>,
    images: Box<[u32]>,
    pods: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct ClassCounts {
    by_node: Counts,
    /// By the number of the topology key.
    by_domain: Vec<Counts>,
}

#[derive(Clone, Debug, Default)]
struct TermCounts {
    key: u32,
    by_domain: Counts,
}

impl NodeId {
    /// The place in the columns.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Usage {
    /// Adds a pod.
    pub fn add(&mut self, shape: &Shape) {
        self.requested.increase(&shape.requests);
        self.non_zero = [0, 1].map(|at| self.non_zero[at].saturating_add(shape.non_zero[at]));
        self.pods += 1;
        self.ports.extend_from_slice(&shape.ports);
        self.volumes.extend_from_slice(&shape.volumes);
    }

    /// Takes off a pod that was added.
    pub fn remove(&mut self, shape: &Shape) {
        self.requested.decrease(&shape.requests);
        self.non_zero = [0, 1].map(|at| self.non_zero[at].saturating_sub(shape.non_zero[at]));
        self.pods -= 1;
        for port in &shape.ports {
            let at = self.ports.iter().position(|held| held == port).expect("a pod's ports are held by it");
            self.ports.swap_remove(at);
        }
        for volume in &shape.volumes {
            let at = self.volumes.iter().position(|held| held == volume).expect("a pod's volumes are held by it");
            self.volumes.swap_remove(at);
        }
    }
}

/// Changes, as they come from watches and from decisions.
impl Snapshot {
    /// Adds a node or takes over its new state.
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
            self.topology.place(key, id, value.as_ref());
        }
        self.count_domains(id);
        self.order_is_stale = true;
    }

    /// Takes a node away. Pods that are still on it are remembered until they go.
    pub fn remove_node(&mut self, name: &str) {
        let Some(&id) = self.names.get(name) else { return };
        if !self.nodes[id.index()].present {
            return;
        }
        self.uncount_domains(id);
        self.clear_node(id);
        for (_, key) in self.topology.labels() {
            self.topology.place(key, id, None);
        }
        self.nodes[id.index()].present = false;
        self.measure(id);
        self.order_is_stale = true;
        self.drop_if_unused(id);
    }

    /// Adds a pod that has a node or takes over its new state; this confirms it if it was assumed. A pod that has no
    /// node, or that has finished, weighs on none.
    pub fn set_pod(&mut self, pod: &Pod) {
        self.remove_pod(pod.id());
        if !pod.node_name.is_empty() && !pod.finished {
            self.place(pod, &pod.node_name, false);
        }
    }

    /// Takes a pod away.
    pub fn remove_pod(&mut self, id: PodId) {
        let Some(slot) = self.ids.remove(&id) else { return };
        let pod = self.pods[slot as usize].take().expect("a known pod has a record");
        self.free_pods.push(slot);
        let node = pod.node;
        self.usage[node.index()].remove(self.shapes.value(pod.shape));
        self.release_claims(pod.shape);
        let record = &mut self.nodes[node.index()];
        let at = record.pods.iter().position(|have| *have == slot).expect("a placed pod is on its node");
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

    /// Counts a pod on the node that was chosen for it, before anybody else knows.
    pub fn assume(&mut self, pod: &Pod, node: &str) {
        self.remove_pod(pod.id());
        self.place(pod, &Str::from(node), true);
    }

    /// Takes back an assumption that did not come true. A pod that was confirmed in the meantime stays.
    pub fn forget(&mut self, id: PodId) {
        let assumed = self.ids.get(&id).and_then(|slot| self.pods[*slot as usize].as_ref()).is_some_and(|p| p.assumed);
        if assumed {
            self.remove_pod(id);
        }
    }

    /// Takes over the labels of a namespace.
    pub fn set_namespace(&mut self, name: &str, labels: Labels) {
        self.namespaces.insert(name.into(), labels);
    }

    /// Takes a namespace away.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Makes ready for decisions about `pod`: knows the labels that its rules speak of and the order of nodes.
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

/// Questions.
impl Snapshot {
    /// The nodes in the order in which they are tried: zones take turns. Right after [`Snapshot::prepare`].
    pub fn nodes(&self) -> &[NodeId] {
        &self.order
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied().filter(|id| self.nodes[id.index()].present)
    }

    /// The name of a node.
    pub fn node_name(&self, node: NodeId) -> &Str {
        &self.nodes[node.index()].name
    }

    /// What a node offers.
    pub fn offer(&self, node: NodeId) -> &Offer {
        &self.offers[node.index()]
    }

    /// What is taken from a node.
    pub fn usage(&self, node: NodeId) -> &Usage {
        &self.usage[node.index()]
    }

    /// The sets of taints that nodes have.
    pub const fn taints(&self) -> &Arena<Box<[Taint]>> {
        &self.taints
    }

    /// The number of a label's key or value, if any node has it.
    pub fn symbol_of(&self, text: &str) -> Option<u32> {
        self.symbols.find(&Str::from(text))
    }

    /// The text of a number.
    pub fn text(&self, symbol: u32) -> &str {
        self.symbols.value(symbol)
    }

    /// The value of a node's label, both as numbers.
    pub fn label(&self, node: NodeId, key: u32) -> Option<u32> {
        let labels = &self.nodes[node.index()].labels;
        labels.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| labels[at].1)
    }

    /// The nodes that hold an image, each with the size there, in the order of the nodes.
    pub fn image_nodes(&self, image: &str) -> &[(NodeId, i64)] {
        self.images.find(&Str::from(image)).map_or(&[], |id| &self.image_nodes[id as usize])
    }

    /// The topology domains.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The labels of a namespace.
    pub fn namespace_labels(&self, name: &str) -> &[(Str, Str)] {
        self.namespaces.get(name).map_or(&[], |labels| labels)
    }

    /// The names of all namespaces, sorted.
    pub fn namespaces(&self) -> impl Iterator<Item = &Str> {
        self.namespaces.keys()
    }

    /// The classes of pods that are placed.
    pub fn classes(&self) -> impl Iterator<Item = (u32, &Arc<Class>)> {
        self.classes.iter()
    }

    /// How many pods of a class each node has that has any.
    pub fn nodes_of_class(&self, class: u32) -> impl Iterator<Item = (NodeId, u32)> {
        self.class_counts[class as usize].by_node.iter().map(|(node, number)| (NodeId(node), number))
    }

    /// How many pods of a class each domain has.
    pub fn class_by_domain(&self, class: u32, key: u32) -> impl Iterator<Item = (u32, u32)> {
        self.class_counts[class as usize].by_domain.get(key as usize).into_iter().flat_map(Counts::iter)
    }

    /// The rules of pods that are placed: each with its topology key and how many pods of each domain have it.
    pub fn terms(&self) -> impl Iterator<Item = (&Term, u32, &Counts)> {
        self.terms.iter().map(|(id, term)| {
            let counts = &self.term_counts[id as usize];
            (&**term, counts.key, &counts.by_domain)
        })
    }

    /// The pods on a node.
    pub fn pods(&self, node: NodeId) -> impl Iterator<Item = &Placed> {
        self.nodes[node.index()].pods.iter().map(|slot| self.placed(*slot))
    }

    /// The node of a pod.
    pub fn node_of(&self, id: PodId) -> Option<NodeId> {
        self.ids.get(&id).map(|slot| self.placed(*slot).node)
    }

    /// The class of a placed pod.
    pub fn class(&self, pod: &Placed) -> &Arc<Class> {
        self.classes.value(pod.class)
    }

    /// The shape of a placed pod.
    pub fn shape(&self, pod: &Placed) -> &Arc<Shape> {
        self.shapes.value(pod.shape)
    }

    /// How many pods that have a node use a claim.
    pub fn claim_users(&self, claim: &Key) -> u32 {
        self.claim_users.get(claim).copied().unwrap_or_default()
    }

    /// A placed pod, as far as it is remembered: name, labels, weight and rules, priority and node.
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

    /// The keys of all placed pods.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let key = |pod: &Placed| Key::new(self.class(pod).namespace.clone(), pod.name.clone());
        self.pods.iter().flatten().map(key)
    }

    /// How many pods are placed.
    pub fn pods_len(&self) -> usize {
        self.ids.len()
    }

    fn placed(&self, slot: u32) -> &Placed {
        self.pods[slot as usize].as_ref().expect("a pod on a node has a record")
    }
}

#[cfg(test)]
mod tests;
