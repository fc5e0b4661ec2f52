//! The decision: which node takes a pod, whom it evicts, or why it waits.

mod diagnosis;
mod evaluation;
mod nominated;

use machinery::Str;

pub use diagnosis::{Diagnosis, histogram};
pub use evaluation::Evaluation;
pub use nominated::Nominated;

use crate::extender::{Answers, Extender, Question};
use crate::framework::{Cycle, Rejection, Release};
use crate::plugins::default_preemption::{Attempt, Budget, Victim};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::snapshot::{NodeId, Snapshot};

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes to this node.
    Bind {
        /// The node's name.
        node: Str,
    },
    /// It will go to this node once these pods have gone.
    Preempt {
        /// The node's name.
        node: Str,
        /// The pods, the most important first.
        victims: Vec<Victim>,
        /// Why it cannot go anywhere now.
        message: String,
        /// The plug-ins that say so, sorted.
        plugins: Vec<&'static str>,
        /// What it gives back all the same.
        release: Option<Release>,
    },
    /// It waits.
    Unschedulable {
        /// Why.
        message: String,
        /// The plug-ins that say so, sorted: only what interests them can change the decision.
        plugins: Vec<&'static str>,
        /// Whether the node whose pods it evicted, if any, will not be its node after all.
        clears_nomination: bool,
        /// What it gives back, since no node can take it with it.
        release: Option<Release>,
    },
    /// Extenders must be asked first.
    Ask(Question),
    /// Nothing was decided: it is tried again.
    Failed {
        /// What went wrong.
        message: String,
    },
}

/// What would be left to chance, as data: the same input gives the same decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance {
    /// The node to try first, by its place in the order: where the last decision ended.
    pub start: usize,
    /// Which of several best nodes, counted round and round.
    pub tie: u64,
    /// The node to try first when evicting, counted round and round.
    pub preemption_start: usize,
}

/// A decision and where the next one starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What becomes of the pod.
    pub decision: Decision,
    /// The [`Chance::start`] of the next decision.
    pub next_start: usize,
}

/// What decisions depend on besides nodes and pods.
#[derive(Clone, Copy, Default)]
pub struct Context<'a> {
    /// Pods that wait for room that they have made.
    pub nominated: Option<&'a Nominated>,
    /// Limits on evicting.
    pub budgets: &'a [Budget],
    /// Programs that have a say.
    pub extenders: &'a [Extender],
    /// What they have said already.
    pub answers: Option<&'a Answers>,
    /// What would be left to chance.
    pub chance: Chance,
}

/// Decides about one pod. The snapshot only learns which labels the pod's rules speak of.
pub fn schedule(snapshot: &mut Snapshot, pod: &Pod, profile: &Profile, context: Context<'_>) -> Outcome {
    let defaults = profile.plugins.iter().flat_map(|enabled| enabled.plugin.topology_keys());
    snapshot.prepare(pod, defaults);
    let (snapshot, start) = (&*snapshot, context.chance.start);
    if snapshot.nodes().is_empty() {
        let message = "no nodes available to schedule pods".to_owned();
        // DEVIATION: a pod in a cluster without nodes waits for one, rather than trying again every few seconds.
        let plugins = vec!["NodeUnschedulable"];
        let decision = Decision::Unschedulable { message, plugins, clears_nomination: true, release: None };
        return Outcome { decision, next_start: start };
    }
    let mut diagnosis = Diagnosis::new(snapshot.nodes().len());
    let evaluation = Evaluation::new(Cycle { snapshot, pod }, profile, context.nominated, &mut diagnosis);
    let Some(mut evaluation) = evaluation else {
        let decision = give_up(None, profile, diagnosis);
        return Outcome { decision, next_start: start };
    };
    let mut feasible = evaluation.feasible(start, &mut diagnosis);
    let next_start = (start + feasible.len() + diagnosis.nodes_seen()) % snapshot.nodes().len();
    if let Some(message) = evaluation.failure() {
        return Outcome { decision: Decision::Failed { message }, next_start };
    }
    if context.extenders.iter().any(|it| it.judges_nodes() && it.is_interested(pod)) && !feasible.is_empty() {
        let Some(answers) = context.answers.filter(|it| it.passed.is_some() || it.error.is_some()) else {
            let names = feasible.iter().map(|node| snapshot.node_name(*node).clone()).collect();
            return Outcome { decision: Decision::Ask(Question::Nodes(names)), next_start: start };
        };
        if let Some(message) = answers.error.clone() {
            return Outcome { decision: Decision::Failed { message }, next_start };
        }
        take_answers(snapshot, answers, &mut feasible, &mut diagnosis);
    }
    let decision = match feasible.as_slice() {
        [] => {
            evaluation.explain(&mut diagnosis);
            give_up(Some((&mut evaluation, context)), profile, diagnosis)
        }
        [one] => Decision::Bind { node: snapshot.node_name(*one).clone() },
        several => {
            let mut totals = evaluation.totals(several);
            for (total, node) in totals.iter_mut().zip(several) {
                let score = context.answers.and_then(|it| it.scores.get(snapshot.node_name(*node)));
                *total = total.saturating_add(score.copied().unwrap_or_default());
            }
            let best = choose(&totals, several, context.chance.tie);
            Decision::Bind { node: snapshot.node_name(best).clone() }
        }
    };
    Outcome { decision, next_start }
}

/// Leaves the nodes that extenders let pass, and remembers why others did not.
fn take_answers(snapshot: &Snapshot, answers: &Answers, feasible: &mut Vec<NodeId>, diagnosis: &mut Diagnosis) {
    let passed = answers.passed.as_deref().unwrap_or_default();
    feasible.retain(|node| {
        let name = snapshot.node_name(*node);
        if passed.contains(name) {
            return true;
        }
        let failed = answers.failed.get(name);
        let (reason, resolvable) = failed.cloned().unwrap_or_else(|| (String::new(), true));
        diagnosis.reject(*node, Rejection { resolvable, ..Rejection::fixed("") });
        let reasons = if failed.is_some() { vec![reason] } else { Vec::new() };
        diagnosis.explain(Extender::NAME, reasons, 1);
        false
    });
}

/// One of the nodes with the highest score.
fn choose(totals: &[i64], nodes: &[NodeId], tie: u64) -> NodeId {
    let most = totals.iter().max().expect("several nodes are ranked");
    let ties = || totals.iter().zip(nodes).filter(|(total, _)| *total == most).map(|(_, node)| *node);
    let number = ties().count() as u64;
    let at = usize::try_from(tie % number).expect("fewer than there are nodes");
    ties().nth(at).expect("one of the ties")
}

/// Sees whether evicting pods would help, and says why not. Where no node was looked at, it would not.
fn give_up(
    evaluation: Option<(&mut Evaluation<'_>, Context<'_>)>,
    profile: &Profile,
    mut diagnosis: Diagnosis,
) -> Decision {
    let Some((evaluation, context)) = evaluation else {
        let (plugins, message) = (diagnosis.plugins(), diagnosis.to_string());
        return Decision::Unschedulable { message, plugins, clears_nomination: false, release: None };
    };
    let release = evaluation.give_up().and_then(|(plugin, words, release)| {
        diagnosis.gives_up(plugin, words);
        release
    });
    let plugins = diagnosis.plugins();
    let attempt = profile.preemption.as_ref().map(|preemption| preemption.attempt(evaluation, &diagnosis, context));
    let clears_nomination = match attempt {
        Some(Attempt::Evict { node, victims }) => {
            return Decision::Preempt { node, victims, message: diagnosis.to_string(), plugins, release };
        }
        Some(Attempt::Ask(evictions)) => return Decision::Ask(Question::Victims(evictions)),
        Some(Attempt::Failed(message)) => return Decision::Failed { message },
        Some(Attempt::Ineligible(reason)) => {
            diagnosis.add_after(&format!("preemption: {reason}"));
            false
        }
        Some(Attempt::Nobody(reason)) => {
            diagnosis.add_after(&format!("preemption: {reason}"));
            true
        }
        None => true,
    };
    Decision::Unschedulable { message: diagnosis.to_string(), plugins, clears_nomination, release }
}

#[cfg(test)]
mod tests;
