//! Pod counts per topology domain over the eligible nodes.

use apimachinery::Str;

use crate::framework::Cycle;
use crate::plugins::node_affinity::NodeMatcher;
use crate::plugins::taint_toleration::repels;
use crate::pod::{Policy, Spread};
use crate::snapshot::{NOWHERE, NodeId, Snapshot};

/// Determines which nodes are eligible.
pub(super) struct Eligible<'a> {
    /// Topology keys of the constraints.
    pub keys: Vec<u32>,
    matcher: NodeMatcher<'a>,
    /// By taint set: whether the pod does not tolerate it.
    repelled: Vec<bool>,
    needs_all_labels: bool,
}

/// Pod counts per domain, with an incrementally maintained minimum.
pub(super) struct Levels {
    /// By domain; `None` if the domain has no eligible node.
    counts: Vec<Option<u32>>,
    /// Number of domains, indexed by their pod count.
    domains_at: Vec<u32>,
    least: u32,
    domains: i64,
}

impl<'a> Eligible<'a> {
    /// Evaluates the pod's node affinity and tolerations for constraints over these labels.
    pub(super) fn new<'k>(cycle: Cycle<'a>, labels: impl Iterator<Item = &'k Str>, needs_all_labels: bool) -> Self {
        let Cycle { snapshot, pod } = cycle;
        let key = |label: &Str| snapshot.topology().find(label).expect("a snapshot is prepared for its pod");
        let mut repelled = vec![false; snapshot.taints().end()];
        for (id, taints) in snapshot.taints().iter() {
            repelled[id as usize] = repels(taints, pod);
        }
        Self { keys: labels.map(key).collect(), matcher: NodeMatcher::new(snapshot, pod), repelled, needs_all_labels }
    }

    /// Whether a node has the labels of all constraints, or `needs_all_labels` is false.
    pub(super) fn has_labels(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        let has = |key: &u32| snapshot.topology().key(*key).domain(node) != NOWHERE;
        !self.needs_all_labels || self.keys.iter().all(has)
    }

    /// Whether `nodeAffinityPolicy` and `nodeTaintsPolicy` of a constraint include a node.
    pub(super) fn counts_node(&self, snapshot: &Snapshot, spread: &Spread, node: NodeId) -> bool {
        (spread.node_affinity == Policy::Ignore || self.matcher.matches(node))
            && (spread.node_taints == Policy::Ignore || !self.repelled[snapshot.offer(node).taints as usize])
    }

    /// Returns the number of matching pods per domain over the eligible nodes.
    pub(super) fn counts(&self, cycle: Cycle<'_>, spread: &Spread, key: u32) -> Vec<Option<u32>> {
        let Cycle { snapshot, pod } = cycle;
        let domains = snapshot.topology().key(key);
        let mut counts = vec![None; domains.end()];
        // A selector that matches everything counts no pods.
        let classes = snapshot.classes().filter(|(_, class)| {
            class.namespace == pod.class.namespace
                && !class.terminating
                && !spread.selector.is_everything()
                && class.matches(&spread.selector)
        });
        if self.matches_all(snapshot, spread) {
            for (domain, count) in (0..).zip(&mut counts) {
                *count = (domains.members(domain) > 0).then_some(0);
            }
            for (class, _) in classes {
                for (domain, number) in snapshot.class_by_domain(class, key) {
                    *counts[domain as usize].get_or_insert(0) += number;
                }
            }
            return counts;
        }
        let mut counted = vec![false; snapshot.nodes().iter().map(|node| node.index() + 1).max().unwrap_or_default()];
        for node in snapshot.nodes() {
            let domain = domains.domain(*node);
            if domain != NOWHERE && self.has_labels(snapshot, *node) && self.counts_node(snapshot, spread, *node) {
                counted[node.index()] = true;
                counts[domain as usize].get_or_insert(0);
            }
        }
        for (class, _) in classes {
            for (node, number) in snapshot.nodes_of_class(class) {
                if counted.get(node.index()) == Some(&true) {
                    *counts[domains.domain(node) as usize].get_or_insert(0) += number;
                }
            }
        }
        counts
    }

    /// Whether all nodes with the label are eligible, so that the snapshot's counts per domain can be used.
    fn matches_all(&self, snapshot: &Snapshot, spread: &Spread) -> bool {
        let all = snapshot.nodes().len();
        let by_labels =
            !self.needs_all_labels || self.keys.iter().all(|key| snapshot.topology().key(*key).nodes() == all);
        let by_affinity = spread.node_affinity == Policy::Ignore || self.matcher.matches_all();
        let by_taints = spread.node_taints == Policy::Ignore || !self.repelled.contains(&true);
        by_labels && by_affinity && by_taints
    }
}

impl Levels {
    pub(super) fn new(counts: Vec<Option<u32>>) -> Self {
        let most = counts.iter().flatten().max().copied().unwrap_or_default();
        let mut domains_at = vec![0; most as usize + 1];
        for count in counts.iter().flatten() {
            domains_at[*count as usize] += 1;
        }
        let least = counts.iter().flatten().min().copied().unwrap_or_default();
        let domains = domains_at.iter().map(|number| i64::from(*number)).sum();
        Self { counts, domains_at, least, domains }
    }

    /// Returns the number of domains with eligible nodes.
    pub(super) const fn domains(&self) -> i64 {
        self.domains
    }

    /// Returns the minimum pod count over all domains. Without domains it is `i32::MAX`, as upstream: then no node
    /// violates the constraint.
    pub(super) fn least(&self) -> i64 {
        if self.domains == 0 { i64::from(i32::MAX) } else { i64::from(self.least) }
    }

    /// Returns the pod count of a domain; 0 if the domain has no eligible node.
    pub(super) fn at(&self, domain: u32) -> i64 {
        self.counts[domain as usize].map_or(0, i64::from)
    }

    /// Adds a pod to a domain; no effect if the domain has no eligible node.
    pub(super) fn increase(&mut self, domain: u32) {
        let Some(count) = &mut self.counts[domain as usize] else { return };
        self.domains_at[*count as usize] -= 1;
        *count += 1;
        if self.domains_at.len() <= *count as usize {
            self.domains_at.push(0);
        }
        self.domains_at[*count as usize] += 1;
        while self.domains_at[self.least as usize] == 0 {
            self.least += 1;
        }
    }

    /// Removes a pod from a domain; no effect if the domain has no eligible node.
    pub(super) fn decrease(&mut self, domain: u32) {
        let Some(count) = &mut self.counts[domain as usize] else { return };
        self.domains_at[*count as usize] -= 1;
        *count -= 1;
        self.domains_at[*count as usize] += 1;
        self.least = self.least.min(*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_follows_every_change() {
        let mut levels = Levels::new(vec![Some(1), None, Some(2), Some(1)]);
        assert_eq!((levels.domains(), levels.least(), levels.at(1)), (3, 1, 0));
        levels.increase(0);
        levels.increase(3);
        levels.increase(3);
        assert_eq!(levels.least(), 2);
        levels.decrease(2);
        levels.decrease(2);
        assert_eq!((levels.least(), levels.at(2), levels.at(3)), (0, 0, 3));
    }
}
