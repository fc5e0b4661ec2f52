//! TaintToleration: rejects nodes with taints that the pod does not tolerate, and scores `PreferNoSchedule` taints.

use crate::framework::{Cycle, Direction, Event, Filter, Plugin, PreFilterResult, Rejection, Scorer, scale};
use crate::pod::{Effect, Pod, Taint};
use crate::snapshot::{NodeId, Snapshot, Usage};

const REASON: &str = "node(s) had untolerated taint(s)";

pub struct TaintToleration;

/// Results per distinct set of taints, of which there are far fewer than nodes.
struct PerSet<'a, T> {
    snapshot: &'a Snapshot,
    by_set: Vec<T>,
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let repelled = PerSet::new(cycle.snapshot, |taints| repels(taints, cycle.pod));
        if repelled.by_set.iter().any(|repelled| *repelled) {
            PreFilterResult::Run(Box::new(repelled), None)
        } else {
            PreFilterResult::Skip
        }
    }

    fn scorer<'a>(&'a self, cycle: Cycle<'a>, _nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        Some(Box::new(PerSet::new(cycle.snapshot, |taints| disliked(taints, cycle.pod))))
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        event.node_becomes(|node| !repels(&node.taints, pod))
    }
}

impl<'a, T: Clone + Default> PerSet<'a, T> {
    fn new(snapshot: &'a Snapshot, evaluate: impl Fn(&[Taint]) -> T) -> Self {
        let mut by_set = vec![T::default(); snapshot.taints().end()];
        for (id, taints) in snapshot.taints().iter() {
            by_set[id as usize] = evaluate(taints);
        }
        Self { snapshot, by_set }
    }
}

impl Filter for PerSet<'_, bool> {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        self.by_set[self.snapshot.offer(node).taints as usize].then_some(Rejection::fixed(REASON))
    }
}

impl Scorer for PerSet<'_, i64> {
    fn score(&self, node: NodeId) -> i64 {
        self.by_set[self.snapshot.offer(node).taints as usize]
    }

    fn normalize(&self, _nodes: &[NodeId], scores: &mut [i64]) {
        scale(scores, Direction::LowIsGood);
    }
}

/// Whether a `NoSchedule` or `NoExecute` taint is not tolerated.
pub fn repels(taints: &[Taint], pod: &Pod) -> bool {
    taints.iter().any(|taint| taint.repels() && !pod.tolerations.iter().any(|it| it.tolerates(taint.view())))
}

/// Returns the number of `PreferNoSchedule` taints that the pod does not tolerate.
fn disliked(taints: &[Taint], pod: &Pod) -> i64 {
    let soft = taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
    let borne = |taint: &Taint| pod.tolerations.iter().any(|it| it.is_about_preference() && it.tolerates(taint.view()));
    soft.filter(|taint| !borne(taint)).count().try_into().unwrap_or(i64::MAX)
}
