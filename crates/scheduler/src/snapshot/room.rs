//! What most decisions ask of a node, in one line of memory: what is free, and who is there to make room.

use super::{NodeId, Snapshot};

/// What is left of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Thousandths of a processor, bytes of memory and pods that are free; less than none if too much was given away.
    pub free: [i64; 3],
    /// Processor and memory of the empty node.
    pub whole: [i64; 2],
    /// The priority of the least important pod; the highest there is if there are no pods.
    pub weakest: i32,
    /// When the pod that started last did.
    pub latest_seconds: i64,
}

impl Default for Room {
    fn default() -> Self {
        Self { free: [0; 3], whole: [0; 2], weakest: i32::MAX, latest_seconds: i64::MIN }
    }
}

impl Snapshot {
    /// What is left of a node.
    pub fn room(&self, node: NodeId) -> &Room {
        &self.rooms[node.index()]
    }

    /// Whether an administrator closed any node.
    pub const fn any_is_closed(&self) -> bool {
        self.closed > 0
    }

    /// Takes over what a node offers and what is taken from it; who is there stays as it was.
    pub(super) fn measure(&mut self, node: NodeId) {
        let (offer, usage) = (&self.offers[node.index()], &self.usage[node.index()]);
        let (has, taken) = (&offer.allocatable, &usage.requested);
        let less = |a: i64, b: i64| a.saturating_sub(b);
        let room = &mut self.rooms[node.index()];
        *room = Room {
            free: [
                less(has.cpu_milli, taken.cpu_milli),
                less(has.memory, taken.memory),
                less(offer.pods_max, usage.pods),
            ],
            whole: [has.cpu_milli, has.memory],
            ..*room
        };
    }

    /// Takes over who is on a node, after one has gone.
    pub(super) fn muster(&mut self, node: NodeId) {
        let (mut weakest, mut latest_seconds) = (i32::MAX, i64::MIN);
        for pod in self.pods(node) {
            weakest = weakest.min(pod.priority);
            latest_seconds = latest_seconds.max(pod.started_seconds);
        }
        let room = &mut self.rooms[node.index()];
        (room.weakest, room.latest_seconds) = (weakest, latest_seconds);
    }
}
