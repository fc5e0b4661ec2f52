//! NodePorts: rejects nodes on which a requested host port is in use.

use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection};
use crate::pod::{HostPort, Pod};
use crate::snapshot::{NodeId, Usage};

const REASON: &str = "node(s) didn't have free ports for the requested pod ports";

pub struct NodePorts;

struct HostPortFilter<'a>(&'a [HostPort]);

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let ports = &cycle.pod.shape.ports;
        if ports.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Run(Box::new(HostPortFilter(ports)), None)
        }
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::PodRemoved(removed_pod) => conflict(&pod.shape.ports, &removed_pod.shape.ports),
            _ => false,
        }
    }
}

impl Filter for HostPortFilter<'_> {
    fn check(&self, _node: NodeId, usage: &Usage) -> Option<Rejection> {
        conflict(self.0, &usage.ports).then_some(Rejection::resolvable(REASON))
    }
}

fn conflict(requested: &[HostPort], used: &[HostPort]) -> bool {
    requested.iter().any(|requested| used.iter().any(|used| requested.conflicts(used)))
}
