//! The extension points: what a plug-in may say about a pod and a node, and what may change its mind.

use std::sync::Arc;

use machinery::Key;

use crate::devices::Devices;
use crate::node::Node;
use crate::pod::{Class, Pod, Shape};
use crate::snapshot::{NodeId, Snapshot, Usage};

/// The best that a plug-in can say of a node.
pub const SCORE_MAX: i64 = 100;

/// One decision: the pod to be placed in the cluster as it is.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    /// The cluster, prepared for the pod.
    pub snapshot: &'a Snapshot,
    /// The pod.
    pub pod: &'a Pod,
}

/// Why a node cannot take the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Whether the node could take it if other pods went.
    pub resolvable: bool,
    /// The reason, if it is a single one that is always the same.
    pub text: &'static str,
    /// More reasons, which the filter that gave them can tell: see [`Filter::reasons`].
    pub mask: u64,
}

/// What a plug-in has to say before any node is looked at.
pub enum Prepared<'a> {
    /// Nothing: no node is rejected.
    Skip,
    /// No node can take the pod, for this reason.
    Reject(String),
    /// Nodes must pass this; if names of nodes are given, no other comes into question.
    Run(Box<dyn Filter + 'a>, Option<Vec<NodeId>>),
}

/// Judges nodes one by one.
pub trait Filter {
    /// Why `node`, of which `usage` is taken, cannot take the pod; `None` if it can.
    fn check(&self, node: NodeId, usage: &Usage) -> Option<Rejection>;

    /// The reasons of a rejection as people read them.
    fn reasons(&self, rejection: Rejection) -> Vec<String> {
        vec![rejection.text.to_owned()]
    }

    /// Judges from now on as if a pod of this kind had come to `node`.
    fn add(&mut self, _node: NodeId, _class: &Class, _shape: &Shape) {}

    /// Judges from now on as if a pod of this kind had left `node`.
    fn remove(&mut self, _node: NodeId, _class: &Class, _shape: &Shape) {}

    /// What went wrong while nodes were judged, so that there is no verdict.
    fn failure(&self) -> Option<String> {
        None
    }

    /// What the pod can do without, once no node has passed, and the words for it; `None` if it is not asked.
    fn give_up(&self) -> Option<(&'static str, Option<Release>)> {
        None
    }
}

/// Something that a pod has and gives back, since no node can take it with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// The devices of a claim.
    Deallocate(Key),
    /// A claim that was made for the pod's extended resources.
    Delete(Key),
}

/// Ranks nodes that can take the pod.
pub trait Scorer {
    /// How good a node is, on a scale of its own.
    fn score(&self, node: NodeId) -> i64;

    /// Brings scores onto the scale from 0 to [`SCORE_MAX`]. `nodes` are those that the scores belong to.
    fn normalize(&self, _nodes: &[NodeId], _scores: &mut [i64]) {}
}

/// A rule of placing pods.
pub trait Plugin: Send + Sync {
    /// Its name in configurations.
    fn name(&self) -> &'static str;

    /// Why the pod must not even wait for its turn.
    fn gate(&self, _pod: &Pod, _devices: &Devices) -> Option<String> {
        None
    }

    /// Looks at the pod before any node is looked at.
    fn prepare<'a>(&'a self, _cycle: Cycle<'a>) -> Prepared<'a> {
        Prepared::Skip
    }

    /// Makes ready to rank `nodes`; `None` if it makes no difference between them.
    fn scorer<'a>(&'a self, _cycle: Cycle<'a>, _nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        None
    }

    /// Whether a change may make a pod fit that this plug-in rejected.
    fn wakes(&self, _pod: &Pod, _event: &Event) -> bool {
        false
    }

    /// The labels of nodes that it needs as topology domains whatever the pod says.
    fn topology_keys(&self) -> Vec<&machinery::Str> {
        Vec::new()
    }
}

/// A change of the cluster.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node came.
    NodeAdded(Arc<Node>),
    /// A node changed: before and after.
    NodeUpdated(Arc<Node>, Arc<Node>),
    /// A node went.
    NodeRemoved(Arc<Node>),
    /// A pod got a node.
    PodAdded(Arc<Pod>),
    /// A pod with a node changed: before and after.
    PodUpdated(Arc<Pod>, Arc<Pod>),
    /// A pod with a node went.
    PodRemoved(Arc<Pod>),
    /// The labels of a namespace changed.
    NamespaceChanged,
    /// A claim of storage came, changed or went.
    ClaimChanged(Key),
    /// Volumes, classes of storage or what nodes take of them changed.
    StorageChanged,
    /// A claim of devices came or changed.
    DeviceClaimChanged(Key),
    /// Devices are free that were not before, or there are others, or other classes of them.
    DevicesChanged,
}

impl Rejection {
    /// A reason that stays whatever pods go.
    pub const fn fixed(text: &'static str) -> Self {
        Self { resolvable: false, text, mask: 0 }
    }

    /// Whether both are the same, without reading their texts: the same text elsewhere in memory counts as another.
    pub fn is(self, other: Self) -> bool {
        self.mask == other.mask && self.resolvable == other.resolvable && std::ptr::eq(self.text, other.text)
    }

    /// A reason that may go with other pods.
    pub const fn resolvable(text: &'static str) -> Self {
        Self { resolvable: true, text, mask: 0 }
    }
}

impl Event {
    /// The node that came or changed, if it is `wanted` now and was not before.
    pub fn node_becomes(&self, wanted: impl Fn(&Node) -> bool) -> bool {
        match self {
            Self::NodeAdded(node) => wanted(node),
            Self::NodeUpdated(old, new) => wanted(new) && !wanted(old),
            _ => false,
        }
    }
}

/// Scales scores so that the highest becomes the best; `reverse` makes the lowest the best.
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

/// Which end of a scale is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The high one.
    HighIsGood,
    /// The low one.
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
