//! NodePorts: rejects nodes on which a requested host port is in use.

use crate::framework::{Cycle, Event, Filter, Plugin, Prepared, Rejection};
use crate::pod::{HostPort, Pod};
use crate::snapshot::{NodeId, Usage};

const REASON: &str = "node(s) didn't have free ports for the requested pod ports";

pub struct NodePorts;

struct Wanted<'a>(&'a [HostPort]);

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> Prepared<'a> {
        let ports = &cycle.pod.shape.ports;
        if ports.is_empty() { Prepared::Skip } else { Prepared::Run(Box::new(Wanted(ports)), None) }
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::PodRemoved(gone) => conflict(&pod.shape.ports, &gone.shape.ports),
            _ => false,
        }
    }
}

impl Filter for Wanted<'_> {
    fn check(&self, _node: NodeId, usage: &Usage) -> Option<Rejection> {
        conflict(self.0, &usage.ports).then_some(Rejection::resolvable(REASON))
    }
}

fn conflict(wanted: &[HostPort], held: &[HostPort]) -> bool {
    wanted.iter().any(|wanted| held.iter().any(|held| wanted.conflicts(held)))
}
