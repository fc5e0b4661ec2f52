//! Asking the plug-ins about nodes.

use crate::framework::{Cycle, Filter, Prepared, Rejection, Release};
use crate::pod::Pod;
use crate::profile::{Enabled, Profile};
use crate::schedule::{Diagnosis, Nominated};
use crate::snapshot::{NodeId, Usage};

/// The filters of one decision.
pub struct Evaluation<'a> {
    /// The pod and the cluster.
    pub cycle: Cycle<'a>,
    profile: &'a Profile,
    filters: Vec<(&'static str, Box<dyn Filter + 'a>)>,
    /// The only nodes that come into question, if plug-ins say so.
    only: Option<Vec<NodeId>>,
    /// Pods that wait for room on nodes, if there are any.
    nominated: Option<&'a Nominated>,
    /// Which filter rejected how many nodes in which way: those that differ are few, and each is put into words once.
    kinds: Vec<(usize, Rejection, usize)>,
}

/// Which filter rejects a node, and how.
type Verdict = Option<(usize, Rejection)>;

impl<'a> Evaluation<'a> {
    /// Lets plug-ins look at the pod; `None` if one of them rejects it on every node.
    pub fn new(
        cycle: Cycle<'a>,
        profile: &'a Profile,
        nominated: Option<&'a Nominated>,
        diagnosis: &mut Diagnosis,
    ) -> Option<Self> {
        let nominated = nominated.filter(|nominated| !nominated.is_empty());
        let mut this = Self { cycle, profile, filters: Vec::new(), only: None, nominated, kinds: Vec::new() };
        let mut restricting = Vec::new();
        // DEVIATION: a plug-in that judges nodes looks at the pod before, also where that is disabled: upstream's then
        // fail every pod.
        for enabled in profile.plugins.iter().filter(|enabled| enabled.pre_filters || enabled.filters) {
            let plugin = &enabled.plugin;
            match plugin.prepare(cycle) {
                Prepared::Skip => {}
                Prepared::Reject(reason) => {
                    diagnosis.reject_all(plugin.name(), reason);
                    return None;
                }
                Prepared::Run(filter, only) => {
                    if enabled.filters {
                        this.filters.push((plugin.name(), filter));
                    }
                    if let Some(only) = only {
                        restricting.push(plugin.name());
                        let also = |node: &NodeId| this.only.as_ref().is_none_or(|before| before.contains(node));
                        this.only = Some(only.into_iter().filter(also).collect());
                    }
                }
            }
        }
        if !restricting.is_empty() {
            diagnosis.restrict(&restricting);
        }
        Some(this)
    }

    /// Nodes that can take the pod, as many as are enough, beginning at `start` of the order; the node that the pod
    /// waits for alone, if it can.
    pub fn feasible(&mut self, start: usize, diagnosis: &mut Diagnosis) -> Vec<NodeId> {
        let Cycle { snapshot, pod } = self.cycle;
        let awaited = snapshot.node(&pod.nominated_node).filter(|_| !pod.nominated_node.is_empty());
        if let Some(node) = awaited.filter(|node| self.only.as_ref().is_none_or(|only| only.contains(node)))
            && self.verdict(node, snapshot.usage(node)).is_none()
        {
            return vec![node];
        }
        let only = self.only.take();
        let nodes = only.as_deref().unwrap_or(snapshot.nodes());
        let enough = self.profile.nodes_enough(nodes.len());
        let mut feasible = Vec::new();
        let mut kinds: Vec<(usize, Rejection, usize)> = Vec::new();
        let begin = if nodes.is_empty() { 0 } else { start % nodes.len() };
        for &node in nodes[begin..].iter().chain(&nodes[..begin]) {
            let Some((filter, rejection)) = self.verdict(node, snapshot.usage(node)) else {
                feasible.push(node);
                if feasible.len() == enough {
                    break;
                }
                continue;
            };
            diagnosis.reject(node, rejection);
            match kinds.iter_mut().find(|(at, kind, _)| *at == filter && kind.is(rejection)) {
                Some((_, _, number)) => *number += 1,
                None => kinds.push((filter, rejection, 1)),
            }
        }
        self.only = only;
        self.kinds = kinds;
        feasible
    }

    /// Puts into words why nodes were rejected.
    pub fn explain(&self, diagnosis: &mut Diagnosis) {
        for &(filter, rejection, number) in &self.kinds {
            diagnosis.explain(self.filters[filter].0, self.reasons(filter, rejection), number);
        }
    }

    /// Whether a node of which `usage` is taken can take the pod, also once those have come that wait for it.
    pub fn verdict(&mut self, node: NodeId, usage: &Usage) -> Verdict {
        let awaiting = self.awaiting(node);
        if awaiting.clone().next().is_some() {
            let mut fuller = usage.clone();
            for pod in awaiting.clone() {
                fuller.add(&pod.shape);
                self.filters.iter_mut().for_each(|(_, filter)| filter.add(node, &pod.class, &pod.shape));
            }
            let verdict = check(&self.filters, node, &fuller);
            for pod in awaiting {
                self.filters.iter_mut().for_each(|(_, filter)| filter.remove(node, &pod.class, &pod.shape));
            }
            if verdict.is_some() {
                return verdict;
            }
        }
        check(&self.filters, node, usage)
    }

    /// The pods that wait for room on a node and are at least as important as this one.
    fn awaiting(&self, node: NodeId) -> impl Iterator<Item = &'a Pod> + Clone + use<'a> {
        let Cycle { snapshot, pod } = self.cycle;
        let pods = self.nominated.map_or(&[][..], |nominated| nominated.on(snapshot.node_name(node)));
        pods.iter().map(|other| &**other).filter(move |other| other.priority >= pod.priority && !other.is(pod))
    }

    /// What went wrong while nodes were judged, if anything did.
    pub fn failure(&self) -> Option<String> {
        let failed = |(name, filter): &(&'static str, Box<dyn Filter + 'a>)| {
            filter.failure().map(|why| format!("running {name:?} filter plugin: {why}"))
        };
        self.filters.iter().find_map(failed)
    }

    /// What the pod can do without, since no node has passed: who says so, the words, and what it is.
    pub fn give_up(&self) -> Option<(&'static str, &'static str, Option<Release>)> {
        self.filters.iter().find_map(|(name, filter)| filter.give_up().map(|(words, what)| (*name, words, what)))
    }

    /// A rejection in words.
    pub fn reasons(&self, filter: usize, rejection: Rejection) -> Vec<String> {
        self.filters[filter].1.reasons(rejection)
    }

    /// The filters, for judging as if pods had gone.
    pub fn filters(&mut self) -> impl Iterator<Item = &mut Box<dyn Filter + 'a>> {
        self.filters.iter_mut().map(|(_, filter)| filter)
    }

    /// The weighted sum of what plug-ins say of each node.
    pub fn totals(&self, nodes: &[NodeId]) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        let mut scores = Vec::with_capacity(nodes.len());
        for Enabled { plugin, weight, .. } in self.profile.plugins.iter().filter(|enabled| enabled.weight != 0) {
            let Some(scorer) = plugin.scorer(self.cycle, nodes) else { continue };
            scores.clear();
            scores.extend(nodes.iter().map(|node| scorer.score(*node)));
            scorer.normalize(nodes, &mut scores);
            for (total, score) in totals.iter_mut().zip(&scores) {
                *total += weight * score;
            }
        }
        totals
    }
}

fn check(filters: &[(&'static str, Box<dyn Filter + '_>)], node: NodeId, usage: &Usage) -> Verdict {
    filters.iter().enumerate().find_map(|(at, (_, filter))| Some((at, filter.check(node, usage)?)))
}
