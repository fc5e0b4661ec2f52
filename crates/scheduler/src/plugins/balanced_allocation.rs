//! NodeResourcesBalancedAllocation: prefers nodes whose resources are used evenly.

use apimachinery::Str;

use crate::framework::{Cycle, Plugin, SCORE_MAX, Scorer};
use crate::resources::is_extended;
use crate::snapshot::{NodeId, Snapshot};

pub struct BalancedAllocation {
    /// Names of the compared resources.
    pub resources: Vec<Str>,
}

struct Balance<'a> {
    snapshot: &'a Snapshot,
    requested: Vec<(&'a str, i64)>,
}

impl Default for BalancedAllocation {
    fn default() -> Self {
        Self { resources: vec!["cpu".into(), "memory".into()] }
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn scorer<'a>(&'a self, cycle: Cycle<'a>, _nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        let requests = &cycle.pod.shape.requests;
        let requested: Vec<_> = self.resources.iter().map(|name| (name.as_str(), requests.amount(name))).collect();
        // Pods without requests would all go to the most balanced node, since they do not change its balance.
        if requested.iter().all(|(_, amount)| *amount == 0) {
            return None;
        }
        let requested = requested.into_iter().filter(|(name, amount)| *amount != 0 || !is_extended(name)).collect();
        Some(Box::new(Balance { snapshot: cycle.snapshot, requested }))
    }
}

impl Scorer for Balance<'_> {
    /// Scores the change of balance. The score is 75 if the pod does not change it, and 100 if the pod turns the worst
    /// balance into the best. The opposite scores 50.
    fn score(&self, node: NodeId) -> i64 {
        let (with, without) = (self.evenness(node, |requested| requested), self.evenness(node, |_| 0));
        SCORE_MAX / 2 + (SCORE_MAX / 2 + with - without) / 2
    }
}

impl Balance<'_> {
    /// Returns the balance of a node's utilization, from 50 to 100. `added` maps a pod's request to the amount added to
    /// the usage.
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and 100, truncated as upstream does")]
    #[expect(clippy::cast_precision_loss, reason = "fractions are compared, not amounts")]
    fn evenness(&self, node: NodeId, added: fn(i64) -> i64) -> i64 {
        let (offer, usage) = (self.snapshot.offer(node), self.snapshot.usage(node));
        let (mut number, mut sum, mut squares) = (0.0, 0.0, 0.0);
        let fraction = |(name, requested): &(&str, i64)| {
            let has = offer.allocatable.amount(name);
            (has != 0).then(|| ((usage.requested.amount(name) + added(*requested)) as f64 / has as f64).min(1.0))
        };
        let (mut first, mut last) = (0.0, 0.0);
        for fraction in self.requested.iter().filter_map(fraction) {
            first = if number == 0.0 { fraction } else { first };
            last = fraction;
            number += 1.0;
            sum += fraction;
        }
        let deviation = if number == 2.0 {
            f64::abs((first - last) / 2.0)
        } else if number > 2.0 {
            let mean = sum / number;
            for fraction in self.requested.iter().filter_map(fraction) {
                squares += (fraction - mean) * (fraction - mean);
            }
            f64::sqrt(squares / number)
        } else {
            0.0
        };
        ((1.0 - deviation) * SCORE_MAX as f64) as i64
    }
}
