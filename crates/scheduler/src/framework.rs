//! The scheduling framework: extension points of plugins, and the events that requeue rejected pods.

use std::sync::Arc;

use apimachinery::Key;

use crate::devices::Devices;
use crate::node::Node;
use crate::pod::{Class, Pod, Shape};
use crate::snapshot::{NodeId, Snapshot, Usage};

/// Maximum score of a node.
pub const SCORE_MAX: i64 = 100;

/// A scheduling cycle: the pod and the cluster snapshot.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    /// Must be prepared for the pod.
    pub snapshot: &'a Snapshot,
    pub pod: &'a Pod,
}

/// Rejection of a node by a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Whether preemption could make the node feasible.
    pub resolvable: bool,
    /// The reason, if it is a single constant one.
    pub text: &'static str,
    /// Further reasons, as bits that only [`Filter::reasons`] of the same filter can decode.
    pub mask: u64,
}

/// Result of PreFilter.
pub enum PreFilterResult<'a> {
    /// The plugin does not filter this pod.
    Skip,
    /// The pod is unschedulable on every node.
    Reject(String),
    /// The filter to run on nodes. If nodes are given, only these are candidates.
    Run(Box<dyn Filter + 'a>, Option<Vec<NodeId>>),
}

/// A filter prepared for one pod.
pub trait Filter {
    /// Returns why `node` with this `usage` cannot run the pod; `None` if it can.
    fn check(&self, node: NodeId, usage: &Usage) -> Option<Rejection>;

    /// Returns the messages of a rejection.
    fn reasons(&self, rejection: Rejection) -> Vec<String> {
        vec![rejection.text.to_owned()]
    }

    /// Simulates the addition of a pod to `node` (upstream: AddPod).
    fn add(&mut self, _node: NodeId, _class: &Class, _shape: &Shape) {}

    /// Simulates the removal of a pod from `node` (upstream: RemovePod).
    fn remove(&mut self, _node: NodeId, _class: &Class, _shape: &Shape) {}

    /// Returns an error that occurred during checks and makes their results invalid.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Called when no node is feasible: returns a claim to release, if any, with the message. `None` if the plugin has
    /// no PostFilter for this pod.
    fn post_filter(&self) -> Option<(&'static str, Option<Release>)> {
        None
    }
}

/// A claim to release because no node is feasible with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Clear the allocation of a ResourceClaim.
    Deallocate(Key),
    /// Delete the claim created for the pod's extended resources.
    Delete(Key),
}

/// A score function prepared for one pod.
pub trait Scorer {
    /// Returns the raw score of a node, on a plugin-specific scale.
    fn score(&self, node: NodeId) -> i64;

    /// Normalizes scores to 0..=[`SCORE_MAX`]; `nodes` and `scores` have the same order.
    fn normalize(&self, _nodes: &[NodeId], _scores: &mut [i64]) {}
}

/// A scheduling plugin.
pub trait Plugin: Send + Sync {
    /// Returns the name used in configurations.
    fn name(&self) -> &'static str;

    /// PreEnqueue: returns why the pod must not enter the active queue.
    fn gate(&self, _pod: &Pod, _devices: &Devices) -> Option<String> {
        None
    }

    /// PreFilter: evaluates the pod before any node.
    fn prepare<'a>(&'a self, _cycle: Cycle<'a>) -> PreFilterResult<'a> {
        PreFilterResult::Skip
    }

    /// PreScore: prepares the scoring of `nodes`; `None` if all get the same score.
    fn scorer<'a>(&'a self, _cycle: Cycle<'a>, _nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        None
    }

    /// Queueing hint: whether the event may make a pod schedulable that this plugin rejected.
    fn wakes(&self, _pod: &Pod, _event: &Event) -> bool {
        false
    }

    /// Returns node labels that the plugin needs as topology keys for every pod.
    fn topology_keys(&self) -> Vec<&apimachinery::Str> {
        Vec::new()
    }
}

/// A cluster event that may make pods schedulable.
#[derive(Clone, Debug)]
pub enum Event {
    NodeAdded(Arc<Node>),
    /// Old and new state.
    NodeUpdated(Arc<Node>, Arc<Node>),
    NodeRemoved(Arc<Node>),
    /// A pod was assigned to a node.
    PodAdded(Arc<Pod>),
    /// An assigned pod changed: old and new state.
    PodUpdated(Arc<Pod>, Arc<Pod>),
    /// An assigned pod was deleted.
    PodRemoved(Arc<Pod>),
    /// The labels of a namespace changed.
    NamespaceChanged,
    /// A PersistentVolumeClaim was added, changed or deleted.
    ClaimChanged(Key),
    /// PersistentVolumes, StorageClasses or the CSI limits of nodes changed.
    StorageChanged,
    /// A ResourceClaim was added or changed.
    DeviceClaimChanged(Key),
    /// Devices were released, or ResourceSlices or DeviceClasses changed.
    DevicesChanged,
}

impl Rejection {
    /// Creates a rejection that preemption cannot resolve.
    pub const fn fixed(text: &'static str) -> Self {
        Self { resolvable: false, text, mask: 0 }
    }

    /// Whether both are equal. Texts are compared by address: equal text at another address is different.
    pub fn is(self, other: Self) -> bool {
        self.mask == other.mask && self.resolvable == other.resolvable && std::ptr::eq(self.text, other.text)
    }

    /// Creates a rejection that preemption may resolve.
    pub const fn resolvable(text: &'static str) -> Self {
        Self { resolvable: true, text, mask: 0 }
    }
}

impl Event {
    /// Whether the event adds a node that satisfies `predicate`, or changes a node so that it now does.
    pub fn node_becomes(&self, predicate: impl Fn(&Node) -> bool) -> bool {
        match self {
            Self::NodeAdded(node) => predicate(node),
            Self::NodeUpdated(old, new) => predicate(new) && !predicate(old),
            _ => false,
        }
    }
}

/// Scales scores so that the highest raw score becomes [`SCORE_MAX`], or 0 with [`Direction::LowIsGood`] (upstream:
/// DefaultNormalizeScore).
pub fn scale(scores: &mut [i64], reverse: Direction) {
    let most = scores.iter().copied().max().unwrap_or_default();
    for score in scores {
        let scaled = if most == 0 { 0 } else { SCORE_MAX * *score / most };
        *score = match reverse {
            Direction::HighIsGood => scaled,
            Direction::LowIsGood => SCORE_MAX - scaled,
        };
    }
}

/// Whether high or low raw scores are best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    HighIsGood,
    LowIsGood,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_scaled_to_the_highest() {
        let check = |mut scores: Vec<i64>, direction, expect: &[i64]| {
            scale(&mut scores, direction);
            assert_eq!(scores, expect);
        };
        check(vec![1, 2, 4], Direction::HighIsGood, &[25, 50, 100]);
        check(vec![1, 2, 4], Direction::LowIsGood, &[75, 50, 0]);
        check(vec![0, 0], Direction::HighIsGood, &[0, 0]);
        check(vec![0, 0], Direction::LowIsGood, &[100, 100]);
    }
}
