//! Topology manager: aligns a container's CPUs, memory and devices on NUMA nodes, as far as the policy requires.
//!
//! ```text
//!   CPUs ────┐
//!   memory ──┼─ hints: sets of NUMA nodes that suffice ──> merge ──> one set, admitted or not ──> allocations
//!   devices ─┘
//! ```

mod merge;

use std::collections::BTreeMap;

use crate::admission::Rejection;
use crate::pod::{Container, Pod};
pub use merge::{Hint, Nodes, merge};

/// The topology manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    #[default]
    None,
    /// Prefers alignment and admits every pod.
    BestEffort,
    /// Rejects a pod if its resources are not optimally aligned.
    Restricted,
    /// Rejects a pod if its resources do not fit a single NUMA node.
    SingleNode,
}

/// The unit of alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Container,
    Pod,
}

/// Policy, scope and NUMA nodes of the topology manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub policy: Policy,
    pub scope: Scope,
    /// NUMA nodes of the host.
    pub nodes: Nodes,
}

/// Hints by resource: `None` for no preference, an empty list if the resource is unavailable. Providers without a
/// preference return an empty map.
pub type Hints = BTreeMap<String, Option<Vec<Hint>>>;

/// A resource manager that allocates NUMA-local resources to containers.
pub trait Provider {
    /// Returns the NUMA nodes that can provide a container's resources.
    fn hints(&self, pod: Pod<'_>, container: Container<'_>) -> Hints;
    /// Returns the NUMA nodes that can provide the resources of all containers of a pod together.
    fn pod_hints(&self, pod: Pod<'_>) -> Hints;
    /// Allocates a container's resources, preferring the given NUMA nodes. An existing allocation stays.
    fn allocate(&mut self, pod: Pod<'_>, container: Container<'_>, near: Option<Nodes>) -> Result<(), Rejection>;
}

impl Policy {
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
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "" | "container" => Some(Self::Container),
            "pod" => Some(Self::Pod),
            _ => None,
        }
    }
}

impl Topology {
    /// Allocates the resources of all containers of a pod. After a rejection some may be allocated: the caller rolls
    /// back.
    pub fn admit(&self, pod: Pod<'_>, providers: &mut [&mut dyn Provider]) -> Result<(), Rejection> {
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

    /// Returns the preferred NUMA nodes, or `None` for any. Fails if the policy rejects the best hint.
    fn decide(&self, hints: &[Hints]) -> Result<Option<Nodes>, Rejection> {
        let (best, admitted) = merge(self.policy, self.nodes, hints);
        if admitted {
            return Ok(best.nodes);
        }
        Err(Rejection {
            reason: "TopologyAffinityError".to_owned(),
            message: "Pod was rejected: Resources cannot be allocated with Topology locality".to_owned(),
        })
    }
}
