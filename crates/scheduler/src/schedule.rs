//! The scheduling cycle: chooses a node, preempts pods, or reports why the pod is unschedulable.

mod diagnosis;
mod evaluation;
mod nominated;

use apimachinery::Str;

pub use diagnosis::{Diagnosis, histogram};
pub use evaluation::Evaluation;
pub use nominated::NominatedPods;

use crate::extender::{Extender, ExtenderRequest, ExtenderResults};
use crate::framework::{Cycle, Rejection, Release};
use crate::plugins::default_preemption::{Attempt, Budget, Victim};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::snapshot::{NodeId, Snapshot};

/// Result of a scheduling cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Bind the pod to this node.
    Bind {
        /// Name of the chosen node.
        node: Str,
    },
    /// Evict the victims and nominate the pod to this node.
    Preempt {
        node: Str,
        /// Highest priority first.
        victims: Vec<Victim>,
        /// Reason why no node is feasible now.
        message: String,
        /// Rejecting plugins, sorted.
        plugins: Vec<&'static str>,
        /// A claim to release in addition.
        release: Option<Release>,
    },
    /// No node is feasible and preemption does not help.
    Unschedulable {
        message: String,
        /// Rejecting plugins, sorted: only events that wake pods rejected by them can change the decision.
        plugins: Vec<&'static str>,
        /// Whether the pod's nomination, if any, must be cleared.
        clears_nomination: bool,
        /// A claim to release, because no node is feasible with it.
        release: Option<Release>,
    },
    /// Call the extenders first.
    CallExtenders(ExtenderRequest),
    /// No decision; the pod must be retried.
    Failed {
        /// The error to report.
        message: String,
    },
}

/// Replaces randomness by data, so that equal input gives equal decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RandomSource {
    /// Index of the first node to check, in node order: where the last cycle stopped.
    pub start: usize,
    /// Selects among nodes with equal score, modulo their number.
    pub tie: u64,
    /// Index of the first node of a preemption, modulo the number of nodes.
    pub preemption_start: usize,
}

/// A decision, and the start of the next cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub decision: Decision,
    /// The [`RandomSource::start`] of the next decision.
    pub next_start: usize,
}

/// Input of a scheduling cycle other than nodes and pods.
#[derive(Clone, Copy, Default)]
pub struct Context<'a> {
    /// Pods nominated to nodes after preemption.
    pub nominated: Option<&'a NominatedPods>,
    /// PodDisruptionBudgets.
    pub budgets: &'a [Budget],
    pub extenders: &'a [Extender],
    /// Results of extenders in this cycle.
    pub responses: Option<&'a ExtenderResults>,
    pub random_source: RandomSource,
}

/// Schedules one pod. Changes the snapshot only by [`Snapshot::prepare`].
pub fn schedule(snapshot: &mut Snapshot, pod: &Pod, profile: &Profile, context: Context<'_>) -> Outcome {
    let defaults = profile.plugins.iter().flat_map(|enabled| enabled.plugin.topology_keys());
    snapshot.prepare(pod, defaults);
    let (snapshot, start) = (&*snapshot, context.random_source.start);
    if snapshot.nodes().is_empty() {
        let message = "no nodes available to schedule pods".to_owned();
        // DEVIATION: a pod in a cluster without nodes waits for a node event instead of being retried every few
        // seconds.
        let plugins = vec!["NodeUnschedulable"];
        let decision = Decision::Unschedulable { message, plugins, clears_nomination: true, release: None };
        return Outcome { decision, next_start: start };
    }
    let mut diagnosis = Diagnosis::new(snapshot.nodes().len());
    let evaluation = Evaluation::new(Cycle { snapshot, pod }, profile, context.nominated, &mut diagnosis);
    let Some(mut evaluation) = evaluation else {
        let decision = post_filter(None, profile, diagnosis);
        return Outcome { decision, next_start: start };
    };
    let mut feasible = evaluation.feasible(start, &mut diagnosis);
    let next_start = (start + feasible.len() + diagnosis.nodes_seen()) % snapshot.nodes().len();
    if let Some(message) = evaluation.failure() {
        return Outcome { decision: Decision::Failed { message }, next_start };
    }
    if context.extenders.iter().any(|it| it.filters_nodes() && it.is_interested(pod)) && !feasible.is_empty() {
        let Some(responses) = context.responses.filter(|it| it.passed.is_some() || it.error.is_some()) else {
            let names = feasible.iter().map(|node| snapshot.node_name(*node).clone()).collect();
            return Outcome { decision: Decision::CallExtenders(ExtenderRequest::Nodes(names)), next_start: start };
        };
        if let Some(message) = responses.error.clone() {
            return Outcome { decision: Decision::Failed { message }, next_start };
        }
        apply_responses(snapshot, responses, &mut feasible, &mut diagnosis);
    }
    let decision = match feasible.as_slice() {
        [] => {
            evaluation.explain(&mut diagnosis);
            post_filter(Some((&mut evaluation, context)), profile, diagnosis)
        }
        [one] => Decision::Bind { node: snapshot.node_name(*one).clone() },
        several => {
            let mut totals = evaluation.totals(several);
            for (total, node) in totals.iter_mut().zip(several) {
                let score = context.responses.and_then(|it| it.scores.get(snapshot.node_name(*node)));
                *total = total.saturating_add(score.copied().unwrap_or_default());
            }
            let best = choose(&totals, several, context.random_source.tie);
            Decision::Bind { node: snapshot.node_name(best).clone() }
        }
    };
    Outcome { decision, next_start }
}

/// Keeps only nodes that passed the extenders and records the reasons of the others.
fn apply_responses(
    snapshot: &Snapshot,
    responses: &ExtenderResults,
    feasible: &mut Vec<NodeId>,
    diagnosis: &mut Diagnosis,
) {
    let passed = responses.passed.as_deref().unwrap_or_default();
    feasible.retain(|node| {
        let name = snapshot.node_name(*node);
        if passed.contains(name) {
            return true;
        }
        let failed = responses.failed.get(name);
        let (reason, resolvable) = failed.cloned().unwrap_or_else(|| (String::new(), true));
        diagnosis.reject(*node, Rejection { resolvable, ..Rejection::fixed("") });
        let reasons = if failed.is_some() { vec![reason] } else { Vec::new() };
        diagnosis.explain(Extender::NAME, reasons, 1);
        false
    });
}

/// Returns one of the nodes with the highest score.
fn choose(totals: &[i64], nodes: &[NodeId], tie: u64) -> NodeId {
    let most = totals.iter().max().expect("several nodes are ranked");
    let ties = || totals.iter().zip(nodes).filter(|(total, _)| *total == most).map(|(_, node)| *node);
    let number = ties().count() as u64;
    let at = usize::try_from(tie % number).expect("the index is below the number of nodes");
    ties().nth(at).expect("one of the ties")
}

/// Runs PostFilter: tries preemption, or reports why it does not help. Without evaluated nodes preemption is skipped.
fn post_filter(
    evaluation: Option<(&mut Evaluation<'_>, Context<'_>)>,
    profile: &Profile,
    mut diagnosis: Diagnosis,
) -> Decision {
    let Some((evaluation, context)) = evaluation else {
        let (plugins, message) = (diagnosis.plugins(), diagnosis.to_string());
        return Decision::Unschedulable { message, plugins, clears_nomination: false, release: None };
    };
    let release = evaluation.post_filter().and_then(|(plugin, plugin_message, release)| {
        diagnosis.gives_up(plugin, plugin_message);
        release
    });
    let plugins = diagnosis.plugins();
    let attempt = profile.preemption.as_ref().map(|preemption| preemption.attempt(evaluation, &diagnosis, context));
    let clears_nomination = match attempt {
        Some(Attempt::Evict { node, victims }) => {
            return Decision::Preempt { node, victims, message: diagnosis.to_string(), plugins, release };
        }
        Some(Attempt::CallExtenders(evictions)) => return Decision::CallExtenders(ExtenderRequest::Victims(evictions)),
        Some(Attempt::Failed(message)) => return Decision::Failed { message },
        Some(Attempt::Ineligible(reason)) => {
            diagnosis.add_after(&format!("preemption: {reason}"));
            false
        }
        Some(Attempt::NoCandidates(reason)) => {
            diagnosis.add_after(&format!("preemption: {reason}"));
            true
        }
        None => true,
    };
    Decision::Unschedulable { message: diagnosis.to_string(), plugins, clears_nomination, release }
}

#[cfg(test)]
mod tests;
