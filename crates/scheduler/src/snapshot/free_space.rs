//! Free capacity of a node in one cache line: the data that most filter and preemption checks need.

use super::{NodeId, Snapshot};

/// Free capacity of a node and bounds for preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeCapacity {
    /// Free CPU in millicores, memory in bytes and pods; negative if overcommitted.
    pub free: [i64; 3],
    /// Allocatable CPU and memory.
    pub whole: [i64; 2],
    /// Lowest priority of its pods; `i32::MAX` without pods.
    pub weakest: i32,
    /// Latest start time of its pods.
    pub latest_seconds: i64,
}

impl Default for FreeCapacity {
    fn default() -> Self {
        Self { free: [0; 3], whole: [0; 2], weakest: i32::MAX, latest_seconds: i64::MIN }
    }
}

impl Snapshot {
    pub fn free_space(&self, node: NodeId) -> &FreeCapacity {
        &self.rooms[node.index()]
    }

    /// Whether any node is unschedulable (cordoned).
    pub const fn any_is_closed(&self) -> bool {
        self.closed > 0
    }

    /// Recomputes the free capacity of a node; the bounds for preemption stay.
    pub(super) fn measure(&mut self, node: NodeId) {
        let (offer, usage) = (&self.offers[node.index()], &self.usage[node.index()]);
        let (has, taken) = (&offer.allocatable, &usage.requested);
        let less = |a: i64, b: i64| a.saturating_sub(b);
        let free_space = &mut self.rooms[node.index()];
        *free_space = FreeCapacity {
            free: [
                less(has.cpu_milli, taken.cpu_milli),
                less(has.memory, taken.memory),
                less(offer.pods_max, usage.pods),
            ],
            whole: [has.cpu_milli, has.memory],
            ..*free_space
        };
    }

    /// Recomputes the bounds for preemption after a pod left the node.
    pub(super) fn muster(&mut self, node: NodeId) {
        let (mut weakest, mut latest_seconds) = (i32::MAX, i64::MIN);
        for pod in self.pods(node) {
            weakest = weakest.min(pod.priority);
            latest_seconds = latest_seconds.max(pod.started_seconds);
        }
        let free_space = &mut self.rooms[node.index()];
        (free_space.weakest, free_space.latest_seconds) = (weakest, latest_seconds);
    }
}
