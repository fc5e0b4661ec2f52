//! NodeName: restricts a pod with `spec.nodeName` to that node.

use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection};
use crate::pod::Pod;
use crate::snapshot::{NodeId, Usage};

const REASON: &str = "node(s) didn't match the requested node name";

pub struct NodeName;

struct NodeNameFilter(Option<NodeId>);

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let name = &cycle.pod.node_name;
        if name.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Run(Box::new(NodeNameFilter(cycle.snapshot.node(name))), None)
        }
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        matches!(event, Event::NodeAdded(node) if node.name == pod.node_name)
    }
}

impl Filter for NodeNameFilter {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        (self.0 != Some(node)).then_some(Rejection::fixed(REASON))
    }
}
