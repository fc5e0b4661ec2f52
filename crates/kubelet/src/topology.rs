//! Where on the machine a container's processors, memory and devices are to be: near each other, as far as the policy asks.
//!
//! ```text
//!   processors ─┐
//!   memory ─────┼─ hints: sets of NUMA nodes that would do ──> merge ──> one set, good enough or not ──> each gives from it
//!   devices ────┘
//! ```

mod merge;

use std::collections::BTreeMap;

use crate::admission::Refusal;
use crate::pod::{Container, Pod};
pub use merge::{Hint, Nodes, merge};

/// How much it matters that everything is near.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Not at all.
    #[default]
    None,
    /// It is tried.
    BestEffort,
    /// A container that could be as near as possible must be.
    Restricted,
    /// Everything is on one node, or the pod is refused.
    SingleNode,
}

/// What is to be near each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// What one container has.
    #[default]
    Container,
    /// What all containers of a pod have.
    Pod,
}

/// How things are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// How much it matters.
    pub policy: Policy,
    /// Of what.
    pub scope: Scope,
    /// The machine's NUMA nodes.
    pub nodes: Nodes,
}

/// Hints by resource: `None` if the resource may be anywhere, no hints if it cannot be had. Empty from those who do not care.
pub type Hints = BTreeMap<String, Option<Vec<Hint>>>;

/// Who gives something of the machine to containers.
pub trait Provider {
    /// Where a container's share could be.
    fn hints(&self, pod: Pod<'_>, container: Container<'_>) -> Hints;
    /// Where the shares of all of a pod's containers together could be.
    fn pod_hints(&self, pod: Pod<'_>) -> Hints;
    /// Gives a container its share, from these nodes first if any are named. Whoever has its share already keeps it.
    fn allocate(&mut self, pod: Pod<'_>, container: Container<'_>, near: Option<Nodes>) -> Result<(), Refusal>;
}

impl Policy {
    /// The policy of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "" | "none" => Some(Self::None),
            "best-effort" => Some(Self::BestEffort),
            "restricted" => Some(Self::Restricted),
            "single-numa-node" => Some(Self::SingleNode),
            _ => None,
        }
    }
}

impl Scope {
    /// The scope of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "" | "container" => Some(Self::Container),
            "pod" => Some(Self::Pod),
            _ => None,
        }
    }
}

impl Topology {
    /// Gives all containers of a pod their shares. After a refusal some may have theirs: the caller forgets all of it.
    pub fn admit(&self, pod: Pod<'_>, providers: &mut [&mut dyn Provider]) -> Result<(), Refusal> {
        let of_pod = match (self.policy, self.scope) {
            (Policy::None, _) | (_, Scope::Container) => None,
            (_, Scope::Pod) => {
                let hints: Vec<Hints> = providers.iter().map(|provider| provider.pod_hints(pod)).collect();
                Some(self.decide(&hints)?)
            }
        };
        for container in pod.init_containers().chain(pod.app_containers()) {
            let near = match (self.policy, of_pod) {
                (Policy::None, _) => None,
                (_, Some(near)) => near,
                (_, None) => {
                    let hints: Vec<Hints> = providers.iter().map(|one| one.hints(pod, container)).collect();
                    self.decide(&hints)?
                }
            };
            for provider in &mut *providers {
                provider.allocate(pod, container, near)?;
            }
        }
        Ok(())
    }

    /// The nodes to take from, or anywhere; refused if the policy does not have what is left.
    fn decide(&self, hints: &[Hints]) -> Result<Option<Nodes>, Refusal> {
        let (best, admitted) = merge(self.policy, self.nodes, hints);
        if admitted {
            return Ok(best.nodes);
        }
        Err(Refusal {
            reason: "TopologyAffinityError".to_owned(),
            message: "Pod was rejected: Resources cannot be allocated with Topology locality".to_owned(),
        })
    }
}
