//! PodTopologySpread scores: prefers nodes whose domains have few matching pods.

use std::borrow::Cow;

use super::HOSTNAME;
use super::count::Eligible;
use crate::framework::{Cycle, SCORE_MAX, Scorer};
use crate::pod::Spread;
use crate::snapshot::{NOWHERE, NodeId, Snapshot};

/// Scorer with the counts of all `ScheduleAnyway` constraints of a pod.
pub(super) struct Evenness<'a> {
    snapshot: &'a Snapshot,
    eligible: Eligible<'a>,
    rules: Vec<Rule>,
}

struct Rule {
    key: u32,
    counts: PodCounts,
    /// Normalizes for the number of domains: the more domains, the fewer pods each has.
    weight: f64,
    max_skew: i32,
}

enum PodCounts {
    ByNode(Vec<u32>),
    ByDomain(Vec<Option<u32>>),
}

impl<'a> Evenness<'a> {
    /// Prepares the scores of `nodes`.
    pub(super) fn new(cycle: Cycle<'a>, spreads: &[Cow<'_, Spread>], nodes: &[NodeId], needs_all_labels: bool) -> Self {
        let snapshot = cycle.snapshot;
        let eligible = Eligible::new(cycle, spreads.iter().map(|it| &it.topology_key), needs_all_labels);
        let ranked: Vec<_> = nodes.iter().copied().filter(|node| eligible.has_labels(snapshot, *node)).collect();
        let rules = spreads.iter().zip(&eligible.keys).map(|(spread, key)| {
            let by_node = spread.topology_key == HOSTNAME;
            let size = if by_node { ranked.len() } else { domains(snapshot, *key, &ranked) };
            let counts = if by_node {
                PodCounts::ByNode(by_nodes(cycle, spread))
            } else {
                PodCounts::ByDomain(eligible.counts(cycle, spread, *key))
            };
            Rule { key: *key, counts, weight: weight(size), max_skew: spread.max_skew }
        });
        let rules = rules.collect();
        Self { snapshot, eligible, rules }
    }
}

impl Scorer for Evenness<'_> {
    #[expect(clippy::cast_possible_truncation, reason = "rounded before")]
    fn score(&self, node: NodeId) -> i64 {
        if !self.eligible.has_labels(self.snapshot, node) {
            return 0;
        }
        let mut score = 0.0;
        for rule in &self.rules {
            let domain = self.snapshot.topology().key(rule.key).domain(node);
            if domain == NOWHERE {
                continue;
            }
            let count = match &rule.counts {
                PodCounts::ByNode(counts) => counts[node.index()],
                PodCounts::ByDomain(counts) => counts[domain as usize].unwrap_or_default(),
            };
            score += f64::from(count) * rule.weight + f64::from(rule.max_skew - 1);
        }
        score.round() as i64
    }

    fn normalize(&self, nodes: &[NodeId], scores: &mut [i64]) {
        let ranked = |node: &NodeId| self.eligible.has_labels(self.snapshot, *node);
        let known = || nodes.iter().zip(&*scores).filter(|(node, _)| ranked(node)).map(|(_, score)| *score);
        let (least, most) = (known().min().unwrap_or_default(), known().max().unwrap_or_default().max(0));
        for (node, score) in nodes.iter().zip(scores) {
            *score = match most {
                _ if !ranked(node) => 0,
                0 => SCORE_MAX,
                _ => SCORE_MAX * (most + least - *score) / most,
            };
        }
    }
}

/// Returns the number of domains of the nodes; nodes without the label form one more.
fn domains(snapshot: &Snapshot, key: u32, nodes: &[NodeId]) -> usize {
    let key = snapshot.topology().key(key);
    let mut seen = vec![false; key.end() + 1];
    for node in nodes {
        let domain = key.domain(*node);
        seen[if domain == NOWHERE { key.end() } else { domain as usize }] = true;
    }
    seen.into_iter().filter(|seen| *seen).count()
}

fn by_nodes(cycle: Cycle<'_>, spread: &Spread) -> Vec<u32> {
    let Cycle { snapshot, pod } = cycle;
    let mut counts = vec![0; snapshot.nodes().iter().map(|node| node.index() + 1).max().unwrap_or_default()];
    for (id, class) in snapshot.classes() {
        if class.namespace != pod.class.namespace
            || class.terminating
            || spread.selector.is_everything()
            || !class.matches(&spread.selector)
        {
            continue;
        }
        for (node, number) in snapshot.nodes_of_class(id) {
            if let Some(count) = counts.get_mut(node.index()) {
                *count += number;
            }
        }
    }
    counts
}

#[expect(clippy::cast_precision_loss, reason = "a number of domains")]
fn weight(domains: usize) -> f64 {
    f64::ln(domains as f64 + 2.0)
}
