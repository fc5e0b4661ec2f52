//! Nominated pods: resources freed by preemption are reserved against pods of lower priority.

use std::sync::Arc;

use apimachinery::Str;

use crate::hash::Map;
use crate::pod::{Pod, PodId};

/// Nominations by pod and by node.
#[derive(Clone, Debug, Default)]
pub struct NominatedPods {
    by_node: Map<Str, Vec<Arc<Pod>>>,
    node_of: Map<PodId, Str>,
}

impl NominatedPods {
    /// Nominates a pod to a node, replacing an earlier nomination.
    pub fn set(&mut self, pod: &Arc<Pod>, node: &str) {
        self.remove(pod.id());
        self.by_node.entry(node.into()).or_default().push(pod.clone());
        self.node_of.insert(pod.id(), node.into());
    }

    pub fn remove(&mut self, id: PodId) {
        let Some(node) = self.node_of.remove(&id) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| pod.id() != id);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// Returns the nominated node of a pod.
    pub fn node_of(&self, id: PodId) -> Option<&Str> {
        self.node_of.get(&id)
    }

    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// Returns the pods nominated to a node.
    pub fn on(&self, node: &str) -> &[Arc<Pod>] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }
}
