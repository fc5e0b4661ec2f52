//! Who must go so that a pod fits, by trying it on every node.

use std::cmp::Reverse;

use machinery::labels::Selector;
use scheduler::plugins::default_preemption::Budget;
use scheduler::{Node, Pod};

use super::{World, selects};

/// What evicting costs: budgets violated, the highest priority, the sum of them, how many, and who started last.
pub type Cost = (usize, i32, i64, usize, Reverse<i64>);

/// Reasons that stay whoever goes.
const FINAL: &[&str] = &[
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod topology spread constraints (missing required label)",
];

impl World {
    /// The victims on a node and what they cost; none if it does not help.
    pub fn eviction(&self, pod: &Pod, node: &Node, budgets: &[Budget]) -> Option<(Cost, Vec<String>)> {
        if self.reasons(pod, node).iter().any(|reason| FINAL.contains(&reason.as_str())) {
            return None;
        }
        let is_potential = |(other, at): &&(Pod, String)| *at == node.name.as_str() && other.priority < pod.priority;
        let mut potential: Vec<Pod> = self.pods.iter().filter(is_potential).map(|(other, _)| other.clone()).collect();
        if potential.is_empty() {
            return None;
        }
        let stays = |entry: &&(Pod, String)| !is_potential(entry);
        let mut left = World { pods: self.pods.iter().filter(stays).cloned().collect(), ..self.without_pods() };
        if !left.reasons(pod, node).is_empty() {
            return None;
        }
        potential.sort_by_key(importance);
        let mut allowed: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
        let (violating, others): (Vec<_>, Vec<_>) = potential.into_iter().partition(|victim| {
            let mut violates = false;
            for (budget, allowed) in budgets.iter().zip(&mut allowed) {
                if budget.namespace == victim.class.namespace && concerns(&budget.selector, victim) {
                    *allowed -= 1;
                    violates |= *allowed < 0;
                }
            }
            violates
        });
        let (mut victims, mut violations) = (Vec::new(), 0);
        for (at, other) in violating.iter().chain(&others).enumerate() {
            left.pods.push((other.clone(), node.name.to_string()));
            if !left.reasons(pod, node).is_empty() {
                left.pods.pop();
                violations += usize::from(at < violating.len());
                victims.push(other);
            }
        }
        victims.sort_by_key(|victim| importance(victim));
        let highest = victims.iter().map(|victim| victim.priority).max().unwrap();
        let sum = victims.iter().map(|victim| i64::from(victim.priority) + i64::from(i32::MAX) + 1).sum();
        let top = victims.iter().filter(|victim| victim.priority == highest);
        let earliest = top.map(|victim| started(victim)).min().unwrap();
        let cost = (violations, highest, sum, victims.len(), Reverse(earliest));
        Some((cost, victims.iter().map(|victim| victim.name.to_string()).collect()))
    }

    /// The same cluster, empty.
    pub fn without_pods(&self) -> World {
        World {
            nodes: self.nodes.clone(),
            pods: Vec::new(),
            written: self.written.clone(),
            strategy: self.strategy.clone(),
        }
    }
}

fn importance(pod: &Pod) -> (Reverse<i32>, i64) {
    (Reverse(pod.priority), started(pod))
}

fn started(pod: &Pod) -> i64 {
    pod.started_seconds.unwrap_or(i64::MAX)
}

fn concerns(selector: &Selector, pod: &Pod) -> bool {
    selects(selector, &pod.class)
}
