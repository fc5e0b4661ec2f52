//! Topology domains: for each topology key in use, the nodes that share a label value.

use apimachinery::Str;

use super::NodeId;
use crate::hash::Map;

/// Domain of a node that lacks the label.
pub const NOWHERE: u32 = u32::MAX;

/// All topology keys used so far. A key is never removed.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    keys: Vec<Key>,
    ids: Map<Str, u32>,
}

/// The domains of one topology key.
#[derive(Clone, Debug, Default)]
pub struct Key {
    label: Str,
    /// Domain ID by node index.
    domains: Vec<u32>,
    ids: Map<Str, u32>,
    /// Label value and number of nodes of each domain; 0 nodes means that the ID is free.
    members: Vec<(Str, u32)>,
    free: Vec<u32>,
    /// Number of nodes with the label.
    nodes: usize,
}

impl Topology {
    /// Returns the ID of a topology key, if it is registered.
    pub fn find(&self, label: &str) -> Option<u32> {
        self.ids.get(label).copied()
    }

    pub fn key(&self, id: u32) -> &Key {
        &self.keys[id as usize]
    }

    /// Returns an upper bound (exclusive) of the key IDs.
    pub const fn end(&self) -> usize {
        self.keys.len()
    }

    /// Registers a topology key, without nodes.
    pub fn register(&mut self, label: &Str) -> u32 {
        let id = u32::try_from(self.keys.len()).expect("fewer than 2^32 labels");
        self.keys.push(Key { label: label.clone(), ..Key::default() });
        self.ids.insert(label.clone(), id);
        id
    }

    /// Sets the domain of a node for one key; `None` if the node lacks the label.
    pub fn set_domain(&mut self, key: u32, node: NodeId, value: Option<&Str>) {
        self.keys[key as usize].set_domain(node, value);
    }

    /// Returns all topology keys with their IDs.
    pub fn labels(&self) -> Vec<(Str, u32)> {
        self.keys.iter().map(|key| key.label.clone()).zip(0..).collect()
    }
}

impl Key {
    /// Returns the domain of a node; [`NOWHERE`] if the node lacks the label.
    pub fn domain(&self, node: NodeId) -> u32 {
        self.domains.get(node.index()).copied().unwrap_or(NOWHERE)
    }

    /// Returns an upper bound (exclusive) of the domain IDs.
    pub const fn end(&self) -> usize {
        self.members.len()
    }

    /// Returns the number of nodes in a domain.
    pub fn members(&self, domain: u32) -> u32 {
        self.members[domain as usize].1
    }

    /// Returns the number of nodes with the label.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    fn set_domain(&mut self, node: NodeId, value: Option<&Str>) {
        if self.domains.len() <= node.index() {
            self.domains.resize(node.index() + 1, NOWHERE);
        }
        let old = self.domains[node.index()];
        let new = value.map_or(NOWHERE, |value| self.enter(value));
        self.domains[node.index()] = new;
        if old != NOWHERE {
            self.leave(old);
        }
    }

    fn enter(&mut self, value: &Str) -> u32 {
        self.nodes += 1;
        if let Some(&id) = self.ids.get(value) {
            self.members[id as usize].1 += 1;
            return id;
        }
        let member = (value.clone(), 1);
        let id = if let Some(id) = self.free.pop() {
            self.members[id as usize] = member;
            id
        } else {
            self.members.push(member);
            u32::try_from(self.members.len() - 1).expect("fewer than 2^32 domains")
        };
        self.ids.insert(value.clone(), id);
        id
    }

    fn leave(&mut self, domain: u32) {
        self.nodes -= 1;
        let (value, members) = &mut self.members[domain as usize];
        *members -= 1;
        if *members == 0 {
            self.ids.remove(value);
            self.free.push(domain);
        }
    }
}
