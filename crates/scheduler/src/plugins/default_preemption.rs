//! DefaultPreemption: room is made by evicting pods that are less important, as few and as unimportant as will do.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use machinery::labels::{self, Selector};
use machinery::meta::Meta;
use machinery::{Str, Value};

use crate::extender::Eviction;
use crate::pod::Pod;
use crate::schedule::{Context, Diagnosis, Evaluation, histogram};
use crate::snapshot::{NodeId, Placed, Snapshot, Usage};

/// The plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultPreemption {
    /// Of how many nodes in a hundred it is enough to know what evicting would take.
    pub candidates_percentage: usize,
    /// Of how many nodes it is enough at least.
    pub candidates_min: usize,
}

/// A pod that is to be evicted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
}

/// A disruption budget: how many of some pods may still be evicted.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The namespace of the pods.
    pub namespace: Str,
    /// Its own name.
    pub name: Str,
    /// Which pods.
    pub selector: Selector,
    /// How many may go.
    pub allowed: i64,
    /// Names of pods that are about to go and are counted already.
    pub disrupted: Vec<Str>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// These pods should go from this node.
    Evict {
        /// The node.
        node: Str,
        /// The pods, the most important first.
        victims: Vec<Victim>,
    },
    /// Extenders must be asked whether these would be right.
    Ask(Vec<Eviction>),
    /// They do not answer.
    Failed(String),
    /// The pod must not evict any, for now or ever.
    Ineligible(&'static str),
    /// Nowhere would it help.
    Nobody(String),
}

/// What evicting would take on one node.
struct Candidate<'a> {
    node: NodeId,
    victims: Vec<&'a Placed>,
    violations: usize,
}

impl Default for DefaultPreemption {
    fn default() -> Self {
        Self { candidates_percentage: 10, candidates_min: 100 }
    }
}

impl Budget {
    /// Condenses an object of kind `PodDisruptionBudget`. A selector that is none selects nothing.
    pub fn new(object: &Value) -> Self {
        let selector = labels::from_object(object.at(&["spec", "selector"]));
        let disrupted = object.at(&["status", "disruptedPods"]).and_then(Value::as_object);
        let meta = Meta::of(object);
        Self {
            namespace: meta.namespace().into(),
            name: meta.name().into(),
            selector: selector.unwrap_or(Selector::Nothing),
            allowed: object.at(&["status", "disruptionsAllowed"]).and_then(Value::as_int).unwrap_or_default(),
            disrupted: disrupted.into_iter().flat_map(machinery::Object::keys).map(Str::from).collect(),
        }
    }
}

impl DefaultPreemption {
    /// Sees what evicting would take on the nodes that could take the pod without others.
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
        let begin = if potential.is_empty() { 0 } else { context.chance.preemption_start % potential.len() };
        let asks = context.extenders.iter().any(|it| !it.preempt_verb.is_empty() && it.is_interested(pod));
        let mut offers = Vec::new();
        let (mut found, mut failed, mut reasons) = (0, 0, BTreeMap::new());
        let mut best: Option<(Cost, Candidate<'_>)> = None;
        for &node in potential[begin..].iter().chain(&potential[..begin]) {
            let hopeless =
                !asks && best.as_ref().is_some_and(|(cost, _)| cheapest(snapshot, node, pod.priority) >= Some(*cost));
            // A node that cannot beat the best counts as one that was looked at, whether or not it would do.
            let candidate = if hopeless { None } else { Some(dry_run(evaluation, node, context.budgets)) };
            match candidate {
                None => found += 1,
                Some(Ok(candidate)) => {
                    found += 1;
                    if asks {
                        offers.push(candidate.offer(snapshot));
                    }
                    let cost = candidate.cost();
                    if best.as_ref().is_none_or(|(have, _)| cost < *have) {
                        best = Some((cost, candidate));
                    }
                }
                Some(Err(why)) => {
                    failed += 1;
                    for reason in why {
                        *reasons.entry(reason).or_default() += 1;
                    }
                }
            }
            if found >= enough && best.as_ref().is_some_and(|(cost, _)| cost.0 == 0) {
                break;
            }
        }
        let Some((_, best)) = best else {
            return Attempt::Nobody(explain(diagnosis.nodes(), failed, reasons));
        };
        if asks {
            return ask(snapshot, pod, offers, context);
        }
        let Eviction { node, victims, .. } = best.offer(snapshot);
        Attempt::Evict { node, victims }
    }
}

/// The cheapest of what extenders leave of the offers, once they were asked.
fn ask(snapshot: &Snapshot, pod: &Pod, offers: Vec<Eviction>, context: Context<'_>) -> Attempt {
    let answers = context.answers;
    if let Some(message) = answers.and_then(|answers| answers.error.clone()) {
        return Attempt::Failed(message);
    }
    let Some(left) = answers.and_then(|answers| answers.evictions.as_ref()) else { return Attempt::Ask(offers) };
    let candidate = |offer: &Eviction| {
        let node = snapshot.node(&offer.node)?;
        let named = |it: &&Placed| {
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
        None => Attempt::Nobody(explain(snapshot.nodes().len(), 0, BTreeMap::new())),
    }
}

/// What evicting costs, the lower, the better: budgets violated, the highest priority, the sum of priorities, the number
/// of victims, and of equals the one whose most important victims started last.
type Cost = (usize, i32, i64, usize, Reverse<i64>);

impl Candidate<'_> {
    fn offer(&self, snapshot: &Snapshot) -> Eviction {
        let victim =
            |pod: &&Placed| Victim { namespace: snapshot.class(pod).namespace.clone(), name: pod.name.clone() };
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

/// Priorities may be negative: shifted, so that more victims never cost less.
fn shifted(priority: i32) -> i64 {
    i64::from(priority) + i64::from(i32::MAX) + 1
}

/// What evicting on a node costs at least: one pod, the least important there, the one that started last. `None` if
/// nobody there is less important.
fn cheapest(snapshot: &Snapshot, node: NodeId, priority: i32) -> Option<Cost> {
    let room = snapshot.room(node);
    let bound = (0, room.weakest, shifted(room.weakest), 1, Reverse(room.latest_seconds));
    (room.weakest < priority).then_some(bound)
}

/// Whether pods that were evicted for this one are still going: nobody else has to, as long as their node will do.
fn waits_for_victims(evaluation: &Evaluation<'_>, diagnosis: &Diagnosis) -> bool {
    let (snapshot, pod) = (evaluation.cycle.snapshot, evaluation.cycle.pod);
    let Some(node) = snapshot.node(&pod.nominated_node) else { return false };
    let status = diagnosis.rejected().iter().find(|(rejected, _)| *rejected == node);
    let may_do = status.is_some_and(|(_, resolvable)| *resolvable);
    may_do && snapshot.pods(node).any(|victim| victim.preempted && victim.priority < pod.priority)
}

/// Takes all pods off a node that are less important, then lets stay whom it can, the most important first.
fn dry_run<'a>(
    evaluation: &mut Evaluation<'a>,
    node: NodeId,
    budgets: &[Budget],
) -> Result<Candidate<'a>, Vec<String>> {
    let (snapshot, pod) = (evaluation.cycle.snapshot, evaluation.cycle.pod);
    if snapshot.room(node).weakest >= pod.priority {
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

/// Sorts the most important first: by priority, then by how long it runs.
fn importance(pod: &Placed) -> (Reverse<i32>, i64) {
    (Reverse(pod.priority), pod.started_seconds)
}

fn take_off(evaluation: &mut Evaluation<'_>, node: NodeId, usage: &mut Usage, pod: &Placed) {
    let snapshot = evaluation.cycle.snapshot;
    usage.remove(snapshot.shape(pod));
    evaluation.filters().for_each(|filter| filter.remove(node, snapshot.class(pod), snapshot.shape(pod)));
}

fn put_back(evaluation: &mut Evaluation<'_>, node: NodeId, usage: &mut Usage, pod: &Placed) {
    let snapshot = evaluation.cycle.snapshot;
    usage.add(snapshot.shape(pod));
    evaluation.filters().for_each(|filter| filter.add(node, snapshot.class(pod), snapshot.shape(pod)));
}

/// Those whose going would violate a budget, and those whose would not.
fn split<'a>(snapshot: &Snapshot, pods: &[&'a Placed], budgets: &[Budget]) -> (Vec<&'a Placed>, Vec<&'a Placed>) {
    let mut allowed: Vec<_> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.iter().partition(|pod| {
        let class = snapshot.class(pod);
        let mut violated = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let concerns = budget.namespace == class.namespace
                && !class.labels.is_empty()
                && !budget.selector.is_everything()
                && class.matches(&budget.selector)
                && !budget.disrupted.contains(&pod.name);
            if concerns {
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
