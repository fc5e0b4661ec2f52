//! NodeName: restricts a pod with `spec.nodeName` to that node.

use crate::framework::{Cycle, Event, Filter, Plugin, Prepared, Rejection};
use crate::pod::Pod;
use crate::snapshot::{NodeId, Usage};

const REASON: &str = "node(s) didn't match the requested node name";

pub struct NodeName;

struct Named(Option<NodeId>);

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> Prepared<'a> {
        let name = &cycle.pod.node_name;
        if name.is_empty() { Prepared::Skip } else { Prepared::Run(Box::new(Named(cycle.snapshot.node(name))), None) }
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        matches!(event, Event::NodeAdded(node) if node.name == pod.node_name)
    }
}

impl Filter for Named {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        (self.0 != Some(node)).then_some(Rejection::fixed(REASON))
    }
}
