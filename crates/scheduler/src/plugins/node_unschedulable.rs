//! NodeUnschedulable: rejects nodes with `spec.unschedulable`, unless the pod tolerates the corresponding taint.

use api::view::Taint;

use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection};
use crate::pod::Pod;
use crate::snapshot::{NodeId, Snapshot, Usage};

const REASON: &str = "node(s) were unschedulable";

pub struct NodeUnschedulable;

struct SchedulableFilter<'a>(&'a Snapshot);

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        if !cycle.snapshot.any_is_closed() || tolerates(cycle.pod) {
            return PreFilterResult::Skip;
        }
        PreFilterResult::Run(Box::new(SchedulableFilter(cycle.snapshot)), None)
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        tolerates(pod) || event.node_becomes(|node| !node.unschedulable)
    }
}

impl Filter for SchedulableFilter<'_> {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        self.0.offer(node).unschedulable.then_some(Rejection::fixed(REASON))
    }
}

fn tolerates(pod: &Pod) -> bool {
    const TAINT: Taint<'_> = Taint { key: "node.kubernetes.io/unschedulable", value: "", effect: "NoSchedule" };
    pod.tolerations.iter().any(|toleration| toleration.tolerates(TAINT))
}
