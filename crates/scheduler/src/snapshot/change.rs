//! Updates of the snapshot's columns and counts.

use std::sync::Arc;

use apimachinery::Str;

use super::{
    AssignedPod, ClassCounts, Counts, FreeCapacity, NOWHERE, NodeId, Offer, Record, Snapshot, TermCounts, Usage,
};
use crate::pod::{Pod, VolumeUse};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

impl Snapshot {
    pub(super) fn node_slot(&mut self, name: &Str) -> NodeId {
        if let Some(&id) = self.names.get(name) {
            return id;
        }
        let id = self.free_nodes.pop().unwrap_or_else(|| {
            self.nodes.push(Record::default());
            self.offers.push(Offer::default());
            self.usage.push(Usage::default());
            self.rooms.push(FreeCapacity::default());
            NodeId(u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes"))
        });
        self.nodes[id.index()].name = name.clone();
        self.names.insert(name.clone(), id);
        id
    }

    /// Releases the interned values of a node that exists.
    pub(super) fn clear_node(&mut self, id: NodeId) {
        let record = &mut self.nodes[id.index()];
        if !record.present {
            return;
        }
        for (key, value) in std::mem::take(&mut record.labels) {
            self.symbols.release(key);
            self.symbols.release(value);
        }
        for image in std::mem::take(&mut record.images) {
            self.image_nodes[image as usize].retain(|(node, _)| *node != id);
            self.images.release(image);
        }
        self.taints.release(self.offers[id.index()].taints);
        self.closed -= usize::from(self.offers[id.index()].unschedulable);
        self.offers[id.index()] = Offer::default();
    }

    /// Frees the slot of a node that does not exist and has no pods.
    pub(super) fn drop_if_unused(&mut self, id: NodeId) {
        let record = &mut self.nodes[id.index()];
        if !record.present && record.pods.is_empty() {
            self.names.remove(&record.name);
            *record = Record::default();
            self.free_nodes.push(id);
        }
    }

    pub(super) fn symbol(&mut self, text: &Str) -> u32 {
        self.symbols.acquire(&Arc::new(text.clone()))
    }

    pub(super) fn add_image(&mut self, node: NodeId, name: &Str, size: i64) -> u32 {
        let id = self.images.acquire(&Arc::new(name.clone()));
        if self.image_nodes.len() < self.images.end() {
            self.image_nodes.resize_with(self.images.end(), Vec::new);
        }
        let nodes = &mut self.image_nodes[id as usize];
        let at = nodes.partition_point(|(have, _)| *have < node);
        nodes.insert(at, (node, size));
        id
    }

    pub(super) fn add_pod_to_node(&mut self, pod: &Pod, node: &Str, assumed: bool) {
        let node = self.node_slot(node);
        let class = self.classes.acquire(&pod.class);
        if self.class_counts.len() < self.classes.end() {
            self.class_counts.resize_with(self.classes.end(), ClassCounts::default);
        }
        let shape = self.acquire_shape(pod);
        let placed = AssignedPod {
            name: pod.name.clone(),
            started_seconds: pod.started_seconds.unwrap_or(i64::MAX),
            priority: pod.priority,
            class,
            shape,
            node,
            preempted: pod.preempted,
            assumed,
        };
        self.class_counts[class as usize].by_node.increase(node.0);
        self.count(&placed);
        self.usage[node.index()].add(&pod.shape);
        for volume in &pod.shape.volumes {
            if let VolumeUse::Claim(key) = volume {
                *self.claim_users.entry(key.clone()).or_default() += 1;
            }
        }
        let slot = if let Some(slot) = self.free_pods.pop() {
            self.pods[slot as usize] = Some(placed);
            slot
        } else {
            // Grows by an eighth: doubling would waste more memory than anything else stored per pod.
            if self.pods.len() == self.pods.capacity() {
                self.pods.reserve_exact(self.pods.len() / 8 + 64);
            }
            self.pods.push(Some(placed));
            u32::try_from(self.pods.len() - 1).expect("fewer than 2^32 pods")
        };
        self.nodes[node.index()].pods.push(slot);
        self.measure(node);
        let free_space = &mut self.rooms[node.index()];
        free_space.weakest = free_space.weakest.min(pod.priority);
        free_space.latest_seconds = free_space.latest_seconds.max(pod.started_seconds.unwrap_or(i64::MAX));
        self.ids.insert(pod.id(), slot);
    }

    /// Removes a user from the claims of this shape.
    pub(super) fn release_claims(&mut self, shape: u32) {
        for volume in &self.shapes.value(shape).volumes {
            if let VolumeUse::Claim(key) = volume
                && let Some(users) = self.claim_users.get_mut(key)
            {
                *users -= 1;
                if *users == 0 {
                    self.claim_users.remove(key);
                }
            }
        }
    }

    /// Returns the ID of a topology key; registers it if necessary.
    pub(super) fn topology_key(&mut self, label: &Str) -> u32 {
        if let Some(key) = self.topology.find(label) {
            return key;
        }
        let key = self.topology.register(label);
        if let Some(symbol) = self.symbol_of(label) {
            for index in 0..self.nodes.len() {
                let node = NodeId(u32::try_from(index).expect("fewer than 2^32 nodes"));
                let value = self.label(node, symbol).map(|value| self.symbols.value(value).clone());
                self.topology.set_domain(key, node, value.as_deref());
            }
        }
        let domains = self.topology.key(key);
        for counts in &mut self.class_counts {
            let mut by_domain = Counts::default();
            for (node, number) in counts.by_node.iter() {
                let domain = domains.domain(NodeId(node));
                if domain != NOWHERE {
                    by_domain.add(domain, number);
                }
            }
            counts.by_domain.resize_with(key as usize, Counts::default);
            counts.by_domain.push(by_domain);
        }
        key
    }

    fn acquire_shape(&mut self, pod: &Pod) -> u32 {
        let known = self.shapes.find(&*pod.shape).is_some();
        let shape = self.shapes.acquire(&pod.shape);
        if known {
            return shape;
        }
        let mut terms = Vec::with_capacity(pod.shape.terms.len());
        for term in &pod.shape.terms {
            let key = self.topology_key(&term.topology_key);
            let id = self.terms.acquire(term);
            if self.term_counts.len() < self.terms.end() {
                self.term_counts.resize_with(self.terms.end(), TermCounts::default);
            }
            self.term_counts[id as usize].key = key;
            terms.push(id);
        }
        if self.shape_terms.len() < self.shapes.end() {
            self.shape_terms.resize_with(self.shapes.end(), Box::default);
        }
        self.shape_terms[shape as usize] = terms.into();
        shape
    }

    /// Adds a pod to the counts of its node's domains.
    fn count(&mut self, pod: &AssignedPod) {
        let counts = &mut self.class_counts[pod.class as usize].by_domain;
        counts.resize_with(self.topology.end(), Counts::default);
        for (key, counts) in (0..).zip(counts) {
            let domain = self.topology.key(key).domain(pod.node);
            if domain != NOWHERE {
                counts.increase(domain);
            }
        }
        for term in &self.shape_terms[pod.shape as usize] {
            let counts = &mut self.term_counts[*term as usize];
            let domain = self.topology.key(counts.key).domain(pod.node);
            if domain != NOWHERE {
                counts.by_domain.increase(domain);
            }
        }
    }

    /// Removes a pod from the counts of its node's domains.
    pub(super) fn uncount(&mut self, pod: &AssignedPod) {
        for (key, counts) in (0..).zip(&mut self.class_counts[pod.class as usize].by_domain) {
            let domain = self.topology.key(key).domain(pod.node);
            if domain != NOWHERE {
                counts.decrease(domain);
            }
        }
        for term in &self.shape_terms[pod.shape as usize] {
            let counts = &mut self.term_counts[*term as usize];
            let domain = self.topology.key(counts.key).domain(pod.node);
            if domain != NOWHERE {
                counts.by_domain.decrease(domain);
            }
        }
    }

    pub(super) fn count_domains(&mut self, node: NodeId) {
        for slot in self.nodes[node.index()].pods.clone() {
            let pod = self.placed(slot).clone();
            self.count(&pod);
        }
    }

    pub(super) fn uncount_domains(&mut self, node: NodeId) {
        for slot in self.nodes[node.index()].pods.clone() {
            let pod = self.placed(slot).clone();
            self.uncount(&pod);
        }
    }

    /// Returns the nodes, alternating between zones, so that a sample contains nodes of every zone.
    pub(super) fn interleaved(&self) -> Vec<NodeId> {
        let symbols = [REGION, ZONE].map(|label| self.symbol_of(label));
        let mut zones: Vec<Vec<NodeId>> = Vec::new();
        let mut places = std::collections::BTreeMap::new();
        for (index, record) in (0..).zip(&self.nodes) {
            if !record.present {
                continue;
            }
            let node = NodeId(index);
            let zone = symbols.map(|symbol| symbol.and_then(|symbol| self.label(node, symbol)));
            let zone_index = *places.entry(zone).or_insert_with(|| {
                zones.push(Vec::new());
                zones.len() - 1
            });
            zones[zone_index].push(node);
        }
        let longest = zones.iter().map(Vec::len).max().unwrap_or_default();
        let turns = (0..longest).flat_map(|turn| zones.iter().filter_map(move |zone| zone.get(turn).copied()));
        turns.collect()
    }
}
