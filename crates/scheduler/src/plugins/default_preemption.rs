//! DefaultPreemption: evicts pods of lower priority, as few and as unimportant as possible.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use apimachinery::labels::{self, Selector};
use apimachinery::meta::Meta;
use apimachinery::{Str, Value};

use crate::extender::Eviction;
use crate::pod::Pod;
use crate::schedule::{Context, Diagnosis, Evaluation, histogram};
use crate::snapshot::{AssignedPod, NodeId, Snapshot, Usage};

/// The plugin with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultPreemption {
    /// `minCandidateNodesPercentage`: percentage of nodes after which the search for candidates stops.
    pub candidates_percentage: usize,
    /// `minCandidateNodesAbsolute`: minimum number of candidates before the search stops.
    pub candidates_min: usize,
}

/// A pod to evict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    pub namespace: Str,
    pub name: Str,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug)]
pub struct Budget {
    pub namespace: Str,
    pub name: Str,
    pub selector: Selector,
    /// `status.disruptionsAllowed`.
    pub allowed: i64,
    /// Names of pods in `status.disruptedPods`, which are already counted.
    pub disrupted: Vec<Str>,
}

/// Result of a preemption attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Evict the victims from the node.
    Evict {
        node: Str,
        /// Highest priority first.
        victims: Vec<Victim>,
    },
    /// The extenders must review these candidates.
    CallExtenders(Vec<Eviction>),
    /// An extender call failed.
    Failed(String),
    /// The pod must not preempt, now or ever.
    Ineligible(&'static str),
    /// Preemption does not help on any node.
    NoCandidates(String),
}

/// The victims on one node.
struct Candidate<'a> {
    node: NodeId,
    victims: Vec<&'a AssignedPod>,
    violations: usize,
}

impl Default for DefaultPreemption {
    fn default() -> Self {
        Self { candidates_percentage: 10, candidates_min: 100 }
    }
}

impl Budget {
    /// Condenses a PodDisruptionBudget. An invalid selector selects no pod.
    pub fn new(object: &Value) -> Self {
        let selector = labels::from_object(object.at(&["spec", "selector"]));
        let disrupted = object.at(&["status", "disruptedPods"]).and_then(Value::as_object);
        let meta = Meta::of(object);
        Self {
            namespace: meta.namespace().into(),
            name: meta.name().into(),
            selector: selector.unwrap_or(Selector::Nothing),
            allowed: object.int_at(&["status", "disruptionsAllowed"]).unwrap_or_default(),
            disrupted: disrupted.into_iter().flat_map(apimachinery::Object::keys).map(Str::from).collect(),
        }
    }
}

impl DefaultPreemption {
    /// Simulates preemption on the nodes that would be feasible without other pods.
    pub fn attempt(&self, evaluation: &mut Evaluation<'_>, diagnosis: &Diagnosis, context: Context<'_>) -> Attempt {
        let (snapshot, pod) = (evaluation.cycle.snapshot, evaluation.cycle.pod);
        if pod.never_preempts {
            return Attempt::Ineligible("not eligible due to preemptionPolicy=Never.");
        }
        if waits_for_victims(evaluation, diagnosis) {
            return Attempt::Ineligible("not eligible due to a terminating pod on the nominated node.");
        }
        let potential: Vec<_> =
            diagnosis.rejected().iter().filter(|(_, resolvable)| *resolvable).map(|(node, _)| *node).collect();
        let enough = (potential.len() * self.candidates_percentage / 100).max(self.candidates_min).min(potential.len());
        let offset = if potential.is_empty() { 0 } else { context.random_source.preemption_start % potential.len() };
        let has_extenders = context.extenders.iter().any(|it| !it.preempt_verb.is_empty() && it.is_interested(pod));
        let mut offers = Vec::new();
        let (mut found, mut failed, mut reasons) = (0, 0, BTreeMap::new());
        let mut best: Option<(Cost, Candidate<'_>)> = None;
        for &node in potential[offset..].iter().chain(&potential[..offset]) {
            let hopeless = !has_extenders
                && best.as_ref().is_some_and(|(cost, _)| cheapest(snapshot, node, pod.priority) >= Some(*cost));
            // A node that cannot be cheaper than the best counts as evaluated, whether or not it would be a candidate.
            let candidate = if hopeless { None } else { Some(dry_run(evaluation, node, context.budgets)) };
            match candidate {
                None => found += 1,
                Some(Ok(candidate)) => {
                    found += 1;
                    if has_extenders {
                        offers.push(candidate.offer(snapshot));
                    }
                    let cost = candidate.cost();
                    if best.as_ref().is_none_or(|(have, _)| cost < *have) {
                        best = Some((cost, candidate));
                    }
                }
                Some(Err(node_reasons)) => {
                    failed += 1;
                    for reason in node_reasons {
                        *reasons.entry(reason).or_default() += 1;
                    }
                }
            }
            if found >= enough && best.as_ref().is_some_and(|(cost, _)| cost.0 == 0) {
                break;
            }
        }
        let Some((_, best)) = best else {
            return Attempt::NoCandidates(explain(diagnosis.nodes(), failed, reasons));
        };
        if has_extenders {
            return consult_extenders(snapshot, pod, offers, context);
        }
        let Eviction { node, victims, .. } = best.offer(snapshot);
        Attempt::Evict { node, victims }
    }
}

/// Returns the cheapest candidate that the extenders accept, or the request to them.
fn consult_extenders(snapshot: &Snapshot, pod: &Pod, offers: Vec<Eviction>, context: Context<'_>) -> Attempt {
    let responses = context.responses;
    if let Some(message) = responses.and_then(|responses| responses.error.clone()) {
        return Attempt::Failed(message);
    }
    let Some(left) = responses.and_then(|responses| responses.evictions.as_ref()) else {
        return Attempt::CallExtenders(offers);
    };
    let candidate = |offer: &Eviction| {
        let node = snapshot.node(&offer.node)?;
        let named = |it: &&AssignedPod| {
            let namespace = &snapshot.class(it).namespace;
            offer.victims.iter().any(|victim| victim.name == it.name && victim.namespace == *namespace)
        };
        let mut victims: Vec<_> = snapshot.pods(node).filter(named).filter(|it| it.priority < pod.priority).collect();
        victims.sort_by_key(|victim| importance(victim));
        Some(Candidate { node, victims, violations: offer.violations })
    };
    match left.iter().filter_map(candidate).min_by_key(Candidate::cost) {
        Some(best) => {
            let Eviction { node, victims, .. } = best.offer(snapshot);
            Attempt::Evict { node, victims }
        }
        None => Attempt::NoCandidates(explain(snapshot.nodes().len(), 0, BTreeMap::new())),
    }
}

/// Cost of a candidate, lower is better: PDB violations, highest priority, sum of priorities, number of victims, and
/// finally the latest start of the most important victims.
type Cost = (usize, i32, i64, usize, Reverse<i64>);

impl Candidate<'_> {
    fn offer(&self, snapshot: &Snapshot) -> Eviction {
        let victim =
            |pod: &&AssignedPod| Victim { namespace: snapshot.class(pod).namespace.clone(), name: pod.name.clone() };
        Eviction {
            node: snapshot.node_name(self.node).clone(),
            victims: self.victims.iter().map(victim).collect(),
            violations: self.violations,
        }
    }

    fn cost(&self) -> Cost {
        let highest = self.victims.first().map_or(i32::MIN, |pod| pod.priority);
        let sum = self.victims.iter().map(|pod| shifted(pod.priority)).sum();
        let top = self.victims.iter().filter(|pod| pod.priority == highest);
        let earliest = top.map(|pod| pod.started_seconds).min().unwrap_or(i64::MAX);
        (self.violations, highest, sum, self.victims.len(), Reverse(earliest))
    }
}

/// Shifts priorities to non-negative values, so that more victims never cost less.
fn shifted(priority: i32) -> i64 {
    i64::from(priority) + i64::from(i32::MAX) + 1
}

/// Returns a lower bound of the cost on a node: one victim, the pod of lowest priority that started last. `None` if the
/// node has no pod of lower priority.
fn cheapest(snapshot: &Snapshot, node: NodeId, priority: i32) -> Option<Cost> {
    let free_space = snapshot.free_space(node);
    let bound = (0, free_space.weakest, shifted(free_space.weakest), 1, Reverse(free_space.latest_seconds));
    (free_space.weakest < priority).then_some(bound)
}

/// Whether victims of an earlier preemption for this pod are still terminating. No more pods are evicted while their
/// node remains suitable.
fn waits_for_victims(evaluation: &Evaluation<'_>, diagnosis: &Diagnosis) -> bool {
    let (snapshot, pod) = (evaluation.cycle.snapshot, evaluation.cycle.pod);
    let Some(node) = snapshot.node(&pod.nominated_node) else { return false };
    let status = diagnosis.rejected().iter().find(|(rejected, _)| *rejected == node);
    let may_do = status.is_some_and(|(_, resolvable)| *resolvable);
    may_do && snapshot.pods(node).any(|victim| victim.preempted && victim.priority < pod.priority)
}

/// Removes all pods of lower priority from a node, then reprieves as many as possible, most important first.
fn dry_run<'a>(
    evaluation: &mut Evaluation<'a>,
    node: NodeId,
    budgets: &[Budget],
) -> Result<Candidate<'a>, Vec<String>> {
    let (snapshot, pod) = (evaluation.cycle.snapshot, evaluation.cycle.pod);
    if snapshot.free_space(node).weakest >= pod.priority {
        return Err(vec!["No preemption victims found for incoming pod".to_owned()]);
    }
    let mut potential: Vec<_> = snapshot.pods(node).filter(|victim| victim.priority < pod.priority).collect();
    let mut usage = snapshot.usage(node).clone();
    for victim in &potential {
        take_off(evaluation, node, &mut usage, victim);
    }
    if let Some((filter, rejection)) = evaluation.verdict(node, &usage) {
        let reasons = evaluation.reasons(filter, rejection);
        for victim in &potential {
            put_back(evaluation, node, &mut usage, victim);
        }
        return Err(reasons);
    }
    potential.sort_by_key(|victim| importance(victim));
    let (violating, others) = split(snapshot, &potential, budgets);
    let (mut victims, mut violations) = (Vec::new(), 0);
    for (at, victim) in violating.iter().chain(&others).enumerate() {
        put_back(evaluation, node, &mut usage, victim);
        if evaluation.verdict(node, &usage).is_some() {
            take_off(evaluation, node, &mut usage, victim);
            violations += usize::from(at < violating.len());
            victims.push(*victim);
        }
    }
    for victim in &victims {
        put_back(evaluation, node, &mut usage, victim);
    }
    victims.sort_by_key(|victim| importance(victim));
    Ok(Candidate { node, victims, violations })
}

/// Sort key for most important first: by priority, then by start time.
fn importance(pod: &AssignedPod) -> (Reverse<i32>, i64) {
    (Reverse(pod.priority), pod.started_seconds)
}

fn take_off(evaluation: &mut Evaluation<'_>, node: NodeId, usage: &mut Usage, pod: &AssignedPod) {
    let snapshot = evaluation.cycle.snapshot;
    usage.remove(snapshot.shape(pod));
    evaluation.filters().for_each(|filter| filter.remove(node, snapshot.class(pod), snapshot.shape(pod)));
}

fn put_back(evaluation: &mut Evaluation<'_>, node: NodeId, usage: &mut Usage, pod: &AssignedPod) {
    let snapshot = evaluation.cycle.snapshot;
    usage.add(snapshot.shape(pod));
    evaluation.filters().for_each(|filter| filter.add(node, snapshot.class(pod), snapshot.shape(pod)));
}

/// Splits pods into those whose eviction violates a PodDisruptionBudget and the others.
fn split<'a>(
    snapshot: &Snapshot,
    pods: &[&'a AssignedPod],
    budgets: &[Budget],
) -> (Vec<&'a AssignedPod>, Vec<&'a AssignedPod>) {
    let mut allowed: Vec<_> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.iter().partition(|pod| {
        let class = snapshot.class(pod);
        let mut violated = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let applies = budget.namespace == class.namespace
                && !class.labels.is_empty()
                && !budget.selector.is_everything()
                && class.matches(&budget.selector)
                && !budget.disrupted.contains(&pod.name);
            if applies {
                *allowed -= 1;
                violated |= *allowed < 0;
            }
        }
        violated
    })
}

fn explain(nodes: usize, tried: usize, mut reasons: BTreeMap<String, usize>) -> String {
    if nodes > tried {
        *reasons.entry("Preemption is not helpful for scheduling".to_owned()).or_default() += nodes - tried;
    }
    histogram(nodes, &reasons)
}
