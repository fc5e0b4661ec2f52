//! Reference preemption: determines the victims by trying every node.

use std::cmp::Reverse;
use std::rc::Rc;

use apimachinery::Value;

use super::matching::{is_everything, name, namespace, priority, selects, started};
use super::{AssignedPod, ReferenceCluster};

/// Cost of a preemption: PDB violations, highest priority, sum of priorities, number of victims, and latest start.
pub(crate) type Cost = (usize, i64, i64, usize, Reverse<String>);

/// Reasons that preemption cannot resolve.
const FINAL: &[&str] = &[
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod topology spread constraints (missing required label)",
];

impl ReferenceCluster {
    /// Returns the cost and the victims on a node, highest priority first; `None` if preemption does not help.
    pub(crate) fn eviction(&self, pod: &Value, node: &Value, budgets: &[Value]) -> Option<(Cost, Vec<String>)> {
        let among = self.is_affinity_evaluated(pod);
        if self.verdict(pod, node, among).iter().any(|reason| FINAL.contains(&reason.as_str())) {
            return None;
        }
        let is_potential = |(other, at): &&AssignedPod| at == name(node) && priority(other) < priority(pod);
        let mut potential: Vec<_> = self.pods.iter().filter(is_potential).map(|(other, _)| Rc::clone(other)).collect();
        if potential.is_empty() {
            return None;
        }
        let stays = |entry: &&AssignedPod| !is_potential(entry);
        let mut left = self.with_pods(self.pods.iter().filter(stays).cloned().collect());
        if !left.verdict(pod, node, among).is_empty() {
            return None;
        }
        potential.sort_by_key(|victim| importance(victim));
        let (violating, others) = violations(potential, budgets);
        let (mut victims, mut violated) = (Vec::new(), 0);
        for (at, other) in violating.iter().chain(&others).enumerate() {
            left.pods.push((Rc::clone(other), name(node).to_owned()));
            if !left.verdict(pod, node, among).is_empty() {
                left.pods.pop();
                violated += usize::from(at < violating.len());
                victims.push(other);
            }
        }
        victims.sort_by_key(|victim| importance(victim));
        let highest = victims.iter().map(|victim| priority(victim)).max().unwrap();
        let sum = victims.iter().map(|victim| priority(victim) + i64::from(i32::MAX) + 1).sum();
        let top = victims.iter().filter(|victim| priority(victim) == highest);
        let earliest = top.map(|victim| started(victim).to_owned()).min().unwrap();
        let cost = (violated, highest, sum, victims.len(), Reverse(earliest));
        Some((cost, victims.iter().map(|victim| name(victim).to_owned()).collect()))
    }
}

/// Splits pods into those whose eviction violates a PodDisruptionBudget and the others. An empty selector protects no
/// pod.
fn violations(potential: Vec<Rc<Value>>, budgets: &[Value]) -> (Vec<Rc<Value>>, Vec<Rc<Value>>) {
    let allows = |budget: &Value| budget.int_at(&["status", "disruptionsAllowed"]).unwrap();
    let mut allowed: Vec<i64> = budgets.iter().map(allows).collect();
    potential.into_iter().partition(|victim| {
        let mut violates = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let selector = budget.at(&["spec", "selector"]);
            let protects = !selector.is_some_and(is_everything) && selects(selector, victim);
            if namespace(budget) == namespace(victim) && protects {
                *allowed -= 1;
                violates |= *allowed < 0;
            }
        }
        violates
    })
}

fn importance(pod: &Value) -> (Reverse<i64>, String) {
    (Reverse(priority(pod)), started(pod).to_owned())
}
