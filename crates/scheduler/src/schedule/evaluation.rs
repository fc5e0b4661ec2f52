//! Runs the filter and score plugins on nodes.

use crate::framework::{Cycle, Filter, PreFilterResult, Rejection, Release};
use crate::pod::Pod;
use crate::profile::{EnabledPlugin, Profile};
use crate::schedule::{Diagnosis, NominatedPods};
use crate::snapshot::{NodeId, Usage};

/// The prepared filters of one scheduling cycle.
pub struct Evaluation<'a> {
    pub cycle: Cycle<'a>,
    profile: &'a Profile,
    filters: Vec<(&'static str, Box<dyn Filter + 'a>)>,
    /// The only candidate nodes, if PreFilter restricts them.
    only: Option<Vec<NodeId>>,
    /// Pods nominated to nodes, if any.
    nominated: Option<&'a NominatedPods>,
    /// Distinct rejections by filter, with their number of nodes. They are few, and each is formatted once.
    kinds: Vec<(usize, Rejection, usize)>,
}

/// Index of the rejecting filter and the rejection; `None` if the node is feasible.
type FilterResult = Option<(usize, Rejection)>;

impl<'a> Evaluation<'a> {
    /// Runs PreFilter; `None` if a plugin rejects all nodes.
    pub fn new(
        cycle: Cycle<'a>,
        profile: &'a Profile,
        nominated: Option<&'a NominatedPods>,
        diagnosis: &mut Diagnosis,
    ) -> Option<Self> {
        let nominated = nominated.filter(|nominated| !nominated.is_empty());
        let mut this = Self { cycle, profile, filters: Vec::new(), only: None, nominated, kinds: Vec::new() };
        let mut restricting = Vec::new();
        // DEVIATION: PreFilter of a plugin with Filter always runs, even if it is disabled: upstream's plugins then
        // fail every pod.
        for enabled in profile.plugins.iter().filter(|enabled| enabled.pre_filters || enabled.filters) {
            let plugin = &enabled.plugin;
            match plugin.prepare(cycle) {
                PreFilterResult::Skip => {}
                PreFilterResult::Reject(reason) => {
                    diagnosis.reject_all(plugin.name(), reason);
                    return None;
                }
                PreFilterResult::Run(filter, only) => {
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

    /// Returns feasible nodes, up to the number that suffices, in node order from `start`. If the nominated node of the
    /// pod is feasible, returns only this node.
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
        let offset = if nodes.is_empty() { 0 } else { start % nodes.len() };
        for &node in nodes[offset..].iter().chain(&nodes[..offset]) {
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

    /// Adds the reasons of rejected nodes to the diagnosis.
    pub fn explain(&self, diagnosis: &mut Diagnosis) {
        for &(filter, rejection, number) in &self.kinds {
            diagnosis.explain(self.filters[filter].0, self.reasons(filter, rejection), number);
        }
    }

    /// Checks a node with this `usage`, both with and without the pods nominated to it.
    pub fn verdict(&mut self, node: NodeId, usage: &Usage) -> FilterResult {
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

    /// Returns the pods nominated to a node with at least the priority of this pod.
    fn awaiting(&self, node: NodeId) -> impl Iterator<Item = &'a Pod> + Clone + use<'a> {
        let Cycle { snapshot, pod } = self.cycle;
        let pods = self.nominated.map_or(&[][..], |nominated| nominated.on(snapshot.node_name(node)));
        pods.iter().map(|other| &**other).filter(move |other| other.priority >= pod.priority && !other.is(pod))
    }

    /// Returns an error that occurred in a filter.
    pub fn failure(&self) -> Option<String> {
        let failed = |(name, filter): &(&'static str, Box<dyn Filter + 'a>)| {
            filter.failure().map(|message| format!("running {name:?} filter plugin: {message}"))
        };
        self.filters.iter().find_map(failed)
    }

    /// Runs PostFilter of the filters: returns the plugin, its message and the claim to release.
    pub fn post_filter(&self) -> Option<(&'static str, &'static str, Option<Release>)> {
        self.filters
            .iter()
            .find_map(|(name, filter)| filter.post_filter().map(|(message, what)| (*name, message, what)))
    }

    /// Returns the messages of a rejection.
    pub fn reasons(&self, filter: usize, rejection: Rejection) -> Vec<String> {
        self.filters[filter].1.reasons(rejection)
    }

    /// Returns the filters, for simulating the removal of pods.
    pub fn filters(&mut self) -> impl Iterator<Item = &mut Box<dyn Filter + 'a>> {
        self.filters.iter_mut().map(|(_, filter)| filter)
    }

    /// Returns the weighted sum of scores of each node.
    pub fn totals(&self, nodes: &[NodeId]) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        let mut scores = Vec::with_capacity(nodes.len());
        for EnabledPlugin { plugin, weight, .. } in self.profile.plugins.iter().filter(|enabled| enabled.weight != 0) {
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

fn check(filters: &[(&'static str, Box<dyn Filter + '_>)], node: NodeId, usage: &Usage) -> FilterResult {
    filters.iter().enumerate().find_map(|(at, (_, filter))| Some((at, filter.check(node, usage)?)))
}
