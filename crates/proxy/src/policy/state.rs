//! What the kernel has of policies, by numbers, and what a decision changes in it.
//!
//! Lists of peers and chains have numbers that they keep as long as they are used. So a pod that comes or goes is a few elements
//! of the set of peers, whatever else there is; chains change with policies alone. [`State::change_to`] is pure: applied to what is
//! there it gives what is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Decision, Direction, PeersId, Ports, Range};

/// All that the rules hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// What is allowed, by number.
    pub chains: BTreeMap<u32, Chain>,
    /// Which chain judges the packets of which pod.
    pub pods: BTreeSet<(Direction, IpAddr, u32)>,
    /// Who is meant by the number of a list.
    pub peers: BTreeSet<(u32, Range)>,
}

/// A list of what is allowed, which pods with the same list share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chain {
    /// Which side of the packet the peer is on.
    pub direction: Direction,
    /// What passes; everything else is dropped.
    pub passes: Vec<Pass>,
}

/// Something that passes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pass {
    /// With the peers of a list; with everyone if there is none.
    pub peers: Option<u32>,
    /// At these ports; at all if there is nothing.
    pub ports: Option<Vec<Ports>>,
}

/// What has to be done to get from a state to another, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Chains that are new, or another than before.
    pub chains: BTreeMap<u32, Chain>,
    /// Which pods lead elsewhere.
    pub pods: Difference<(Direction, IpAddr, u32)>,
    /// Which peers are others.
    pub peers: Difference<(u32, Range)>,
    /// Chains that nothing leads into any more.
    pub chains_gone: BTreeSet<u32>,
}

/// What goes, and then what comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference<T> {
    /// No longer there.
    pub gone: Vec<T>,
    /// New.
    pub new: Vec<T>,
}

/// Numbers for lists and chains, for as long as they are used.
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
    /// What has to be done for another state to be true.
    pub fn change_to(&self, wanted: &Self) -> Change {
        let new = wanted.chains.iter().filter(|(number, chain)| self.chains.get(number) != Some(chain));
        Change {
            chains: new.map(|(number, chain)| (*number, chain.clone())).collect(),
            pods: Difference::between(&self.pods, &wanted.pods),
            peers: Difference::between(&self.peers, &wanted.peers),
            chains_gone: self.chains.keys().filter(|number| !wanted.chains.contains_key(number)).copied().collect(),
        }
    }
}

impl Change {
    /// Whether nothing has to be done.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl<T: Ord + Clone> Difference<T> {
    fn between(old: &BTreeSet<T>, new: &BTreeSet<T>) -> Self {
        Self { gone: old.difference(new).cloned().collect(), new: new.difference(old).cloned().collect() }
    }
}

impl<T> Default for Difference<T> {
    fn default() -> Self {
        Self { gone: Vec::new(), new: Vec::new() }
    }
}

impl Numbers {
    /// A decision as a state. What an earlier one had keeps its number, and what this one does not have gives it back.
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
        let next = || u32::try_from(self.numbers.len()).expect("more lists than memory holds");
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
