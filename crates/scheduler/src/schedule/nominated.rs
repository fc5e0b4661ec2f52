//! Pods that have made room on a node and wait for it: the room is kept from pods that are less important.

use std::sync::Arc;

use machinery::Str;

use crate::hash::Map;
use crate::pod::{Pod, PodId};

/// Who waits for which node.
#[derive(Clone, Debug, Default)]
pub struct Nominated {
    by_node: Map<Str, Vec<Arc<Pod>>>,
    node_of: Map<PodId, Str>,
}

impl Nominated {
    /// A pod waits for a node, and for no other.
    pub fn set(&mut self, pod: &Arc<Pod>, node: &str) {
        self.remove(pod.id());
        self.by_node.entry(node.into()).or_default().push(pod.clone());
        self.node_of.insert(pod.id(), node.into());
    }

    /// A pod waits for no node.
    pub fn remove(&mut self, id: PodId) {
        let Some(node) = self.node_of.remove(&id) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| pod.id() != id);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// The node that a pod waits for.
    pub fn node_of(&self, id: PodId) -> Option<&Str> {
        self.node_of.get(&id)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// Those who wait for a node.
    pub fn on(&self, node: &str) -> &[Arc<Pod>] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }
}
