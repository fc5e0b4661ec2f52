//! State of NetworkPolicy rules in the kernel, and the difference to a decision.
//!
//! Peer lists and chains have IDs that stay the same while they are used. A new or deleted pod therefore changes only a
//! few elements of the peer set; chains change only with policies. [`State::change_to`] is pure: its result applied to
//! the current state gives the desired state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Decision, Direction, PeersId, Ports, Range};

/// Content of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Chains by ID.
    pub chains: BTreeMap<u32, Chain>,
    /// Pods with the chain that filters their packets.
    pub pods: BTreeSet<(Direction, IpAddr, u32)>,
    /// Members of peer lists, by list ID.
    pub peers: BTreeSet<(u32, Range)>,
}

/// A list of allowed traffic, shared by all pods with the same list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chain {
    /// Selects whether the peer is the source or the destination.
    pub direction: Direction,
    /// Allowed traffic; everything else is dropped.
    pub passes: Vec<Pass>,
}

/// An entry of allowed traffic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pass {
    /// Peer list ID; `None` allows all peers.
    pub peers: Option<u32>,
    /// `None` allows all ports.
    pub ports: Option<Vec<Ports>>,
}

/// The changes from one state to another, in order of application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// New and changed chains.
    pub chains: BTreeMap<u32, Chain>,
    pub pods: Difference<(Direction, IpAddr, u32)>,
    pub peers: Difference<(u32, Range)>,
    /// Chains without references.
    pub removed_chains: BTreeSet<u32>,
}

/// Elements to remove, then elements to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference<T> {
    pub removed: Vec<T>,
    pub new: Vec<T>,
}

/// Allocates IDs of peer lists and chains while they are used.
#[derive(Debug, Default)]
pub struct Numbers {
    peers: Numbering<PeersId>,
    chains: Numbering<Chain>,
}

#[derive(Debug)]
struct Numbering<T> {
    numbers: BTreeMap<T, u32>,
    free: BTreeSet<u32>,
}

impl State {
    /// Returns the changes that lead to another state.
    pub fn change_to(&self, desired: &Self) -> Change {
        let new = desired.chains.iter().filter(|(number, chain)| self.chains.get(number) != Some(chain));
        Change {
            chains: new.map(|(number, chain)| (*number, chain.clone())).collect(),
            pods: Difference::between(&self.pods, &desired.pods),
            peers: Difference::between(&self.peers, &desired.peers),
            removed_chains: self.chains.keys().filter(|number| !desired.chains.contains_key(number)).copied().collect(),
        }
    }
}

impl Change {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl<T: Ord + Clone> Difference<T> {
    fn between(old: &BTreeSet<T>, new: &BTreeSet<T>) -> Self {
        Self { removed: old.difference(new).cloned().collect(), new: new.difference(old).cloned().collect() }
    }
}

impl<T> Default for Difference<T> {
    fn default() -> Self {
        Self { removed: Vec::new(), new: Vec::new() }
    }
}

impl Numbers {
    /// Converts a decision to a state. Lists and chains of the previous decision keep their IDs; unused IDs are
    /// released.
    pub fn state_of(&mut self, decision: &Decision) -> State {
        let mut state = State::default();
        for (id, ranges) in &decision.peers {
            let number = self.peers.number(id);
            state.peers.extend(ranges.iter().map(|range| (number, *range)));
        }
        for (ip, limits) in &decision.pods {
            let sides = [(Direction::Ingress, &limits.ingress), (Direction::Egress, &limits.egress)];
            for (direction, allows) in sides.into_iter().filter_map(|(side, allows)| Some((side, allows.as_ref()?))) {
                let passes = allows.iter().map(|allow| Pass {
                    peers: allow.peers.as_ref().map(|id| self.peers.number(id)),
                    ports: allow.ports.clone(),
                });
                let chain = Chain { direction, passes: passes.collect() };
                let number = self.chains.number(&chain);
                state.pods.insert((direction, *ip, number));
                state.chains.insert(number, chain);
            }
        }
        self.peers.retain(|id, _| decision.peers.contains_key(id));
        self.chains.retain(|_, number| state.chains.contains_key(&number));
        state
    }
}

impl<T: Ord + Clone> Numbering<T> {
    fn number(&mut self, of: &T) -> u32 {
        if let Some(number) = self.numbers.get(of) {
            return *number;
        }
        let next = || u32::try_from(self.numbers.len()).expect("list numbers fit into u32");
        let number = self.free.pop_first().unwrap_or_else(next);
        self.numbers.insert(of.clone(), number);
        number
    }

    fn retain(&mut self, keep: impl Fn(&T, u32) -> bool) {
        let unused: BTreeMap<T, u32> = self.numbers.extract_if(.., |of, number| !keep(of, *number)).collect();
        self.free.extend(unused.into_values());
    }
}

impl<T> Default for Numbering<T> {
    fn default() -> Self {
        Self { numbers: BTreeMap::new(), free: BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests;
