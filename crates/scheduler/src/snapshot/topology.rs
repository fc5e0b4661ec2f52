//! The domains of nodes: for each label that rules speak of, which nodes share a value.

use machinery::Str;

use super::NodeId;
use crate::hash::Map;

/// No domain: the node lacks the label.
pub const NOWHERE: u32 = u32::MAX;

/// All labels that rules have spoken of. A label stays once it was asked for.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    keys: Vec<Key>,
    ids: Map<Str, u32>,
}

/// The domains of one label.
#[derive(Clone, Debug, Default)]
pub struct Key {
    label: Str,
    /// Which domain each node is in, by the node's number.
    domains: Vec<u32>,
    ids: Map<Str, u32>,
    /// The value and number of nodes of each domain; no node means that the number is free.
    members: Vec<(Str, u32)>,
    free: Vec<u32>,
    /// How many nodes have the label.
    nodes: usize,
}

impl Topology {
    /// The number of a label, if it is known.
    pub fn find(&self, label: &str) -> Option<u32> {
        self.ids.get(label).copied()
    }

    /// The domains of a label by its number.
    pub fn key(&self, id: u32) -> &Key {
        &self.keys[id as usize]
    }

    /// One more than the highest number of a label.
    pub const fn end(&self) -> usize {
        self.keys.len()
    }

    /// Makes a label known, without nodes.
    pub fn register(&mut self, label: &Str) -> u32 {
        let id = u32::try_from(self.keys.len()).expect("fewer than 2^32 labels");
        self.keys.push(Key { label: label.clone(), ..Key::default() });
        self.ids.insert(label.clone(), id);
        id
    }

    /// Puts a node into the domain of its value of one label.
    pub fn place(&mut self, key: u32, node: NodeId, value: Option<&Str>) {
        self.keys[key as usize].place(node, value);
    }

    /// The labels with their numbers.
    pub fn labels(&self) -> Vec<(Str, u32)> {
        self.keys.iter().map(|key| key.label.clone()).zip(0..).collect()
    }
}

impl Key {
    /// The domain of a node, [`NOWHERE`] if it has none.
    pub fn domain(&self, node: NodeId) -> u32 {
        self.domains.get(node.index()).copied().unwrap_or(NOWHERE)
    }

    /// One more than the highest number of a domain.
    pub const fn end(&self) -> usize {
        self.members.len()
    }

    /// How many nodes are in a domain.
    pub fn members(&self, domain: u32) -> u32 {
        self.members[domain as usize].1
    }

    /// How many nodes have the label.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    fn place(&mut self, node: NodeId, value: Option<&Str>) {
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
