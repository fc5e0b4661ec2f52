//! NodeAffinity: restricts a pod to nodes that match its nodeSelector and node affinity, and scores preferences.

use api::view::{NodeSelectorOperator as Operator, NodeSelectorRequirement, NodeSelectorTerm};

use crate::framework::{Cycle, Direction, Event, Filter, Plugin, PreFilterResult, Rejection, Scorer, scale};
use crate::node::Node;
use crate::pod::{NodeAffinity, Pod};
use crate::snapshot::{NodeId, Snapshot, Usage};

const REASON: &str = "node(s) didn't match Pod's node affinity/selector";
const ADDED_REASON: &str = "node(s) didn't match scheduler-enforced node affinity";
const CONFLICT: &str = "pod affinity terms conflict";

/// The plugin with its arguments.
#[derive(Default)]
pub struct AffinityToNodes {
    /// `addedAffinity`: applies to every pod of the profile in addition to its own affinity.
    pub added: NodeAffinity,
}

/// The node affinity of one pod, with label keys resolved to IDs of a snapshot.
pub struct NodeMatcher<'a> {
    snapshot: &'a Snapshot,
    selector: Vec<Condition>,
    terms: Option<Vec<CompiledTerm>>,
}

struct CompiledTerm {
    conditions: Vec<Condition>,
    names: Vec<(Option<NodeId>, Operator)>,
    never: bool,
}

/// A requirement on a label; without key ID no node has the label.
struct Condition {
    key: Option<u32>,
    operator: Operator,
    values: Vec<u32>,
    bound: i64,
}

struct Matching<'a> {
    own: NodeMatcher<'a>,
    added: NodeMatcher<'a>,
}

struct Preferring<'a> {
    snapshot: &'a Snapshot,
    terms: Vec<(i64, CompiledTerm)>,
}

impl Plugin for AffinityToNodes {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let Cycle { snapshot, pod } = cycle;
        let own = NodeMatcher::new(snapshot, pod);
        let added = NodeMatcher::of(snapshot, &self.added);
        if own.matches_all() && added.matches_all() {
            return PreFilterResult::Skip;
        }
        let only = pod.node_affinity.named_nodes();
        if only.as_ref().is_some_and(Vec::is_empty) {
            return PreFilterResult::Reject(CONFLICT.to_owned());
        }
        let only = only.map(|names| names.into_iter().filter_map(|name| snapshot.node(name)).collect());
        PreFilterResult::Run(Box::new(Matching { own, added }), only)
    }

    fn scorer<'a>(&'a self, cycle: Cycle<'a>, _nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        let all = cycle.pod.node_affinity.preferred.iter().chain(&self.added.preferred);
        let all = all.filter(|weighted| weighted.weight != 0 && !weighted.term.is_empty());
        let terms: Vec<_> = all.map(|it| (i64::from(it.weight), CompiledTerm::new(cycle.snapshot, &it.term))).collect();
        (!terms.is_empty()).then(|| Box::new(Preferring { snapshot: cycle.snapshot, terms }) as Box<dyn Scorer>)
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        event.node_becomes(|node| matches(pod, node) && matches_required(&self.added, node))
    }
}

impl Filter for Matching<'_> {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        if !self.added.matches(node) {
            Some(Rejection::fixed(ADDED_REASON))
        } else if !self.own.matches(node) {
            Some(Rejection::fixed(REASON))
        } else {
            None
        }
    }
}

impl Scorer for Preferring<'_> {
    fn score(&self, node: NodeId) -> i64 {
        self.terms.iter().filter(|(_, term)| term.matches(self.snapshot, node)).map(|(weight, _)| weight).sum()
    }

    fn normalize(&self, _nodes: &[NodeId], scores: &mut [i64]) {
        scale(scores, Direction::HighIsGood);
    }
}

impl<'a> NodeMatcher<'a> {
    /// Creates a matcher for nodeSelector and required affinity of a pod.
    pub fn new(snapshot: &'a Snapshot, pod: &Pod) -> Self {
        let selector = pod.node_selector.iter().map(|(key, value)| Condition {
            key: snapshot.symbol_of(key),
            operator: Operator::In,
            values: snapshot.symbol_of(value).into_iter().collect(),
            bound: 0,
        });
        Self { snapshot, selector: selector.collect(), terms: required(snapshot, &pod.node_affinity) }
    }

    /// Creates a matcher for the required terms of an affinity.
    pub fn of(snapshot: &'a Snapshot, affinity: &NodeAffinity) -> Self {
        Self { snapshot, selector: Vec::new(), terms: required(snapshot, affinity) }
    }

    pub const fn matches_all(&self) -> bool {
        self.selector.is_empty() && self.terms.is_none()
    }

    pub fn matches(&self, node: NodeId) -> bool {
        self.selector.iter().all(|condition| condition.holds(self.snapshot, node))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(self.snapshot, node)))
    }
}

impl CompiledTerm {
    fn new(snapshot: &Snapshot, term: &NodeSelectorTerm) -> Self {
        let condition = |it: &NodeSelectorRequirement| Condition {
            key: snapshot.symbol_of(&it.key),
            operator: it.operator,
            values: it.values.iter().filter_map(|value| snapshot.symbol_of(value)).collect(),
            bound: it.values.first().and_then(|value| value.parse().ok()).unwrap_or_default(),
        };
        Self {
            conditions: term.labels.iter().map(condition).collect(),
            names: term.names.iter().map(|it| (snapshot.node(&it.values[0]), it.operator)).collect(),
            never: term.is_empty() || term.broken,
        }
    }

    fn matches(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        let named =
            |(name, operator): &(Option<NodeId>, Operator)| (*name == Some(node)) == (*operator == Operator::In);
        !self.never && self.conditions.iter().all(|it| it.holds(snapshot, node)) && self.names.iter().all(named)
    }
}

impl Condition {
    fn holds(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        let value = self.key.and_then(|key| snapshot.label(node, key));
        let number = |value: u32| snapshot.text(value).parse::<i64>().ok();
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(&value)),
            Operator::NotIn => !value.is_some_and(|value| self.values.contains(&value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => value.and_then(number).is_some_and(|number| number > self.bound),
            Operator::Lt => value.and_then(number).is_some_and(|number| number < self.bound),
        }
    }
}

/// Whether a node outside the snapshot matches nodeSelector and required affinity of a pod.
pub fn matches(pod: &Pod, node: &Node) -> bool {
    pod.node_selector.iter().all(|(key, value)| node.label(key) == Some(value))
        && matches_required(&pod.node_affinity, node)
}

fn matches_required(affinity: &NodeAffinity, node: &Node) -> bool {
    affinity
        .required
        .as_ref()
        .is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, |key| node.label(key))))
}

fn required(snapshot: &Snapshot, affinity: &NodeAffinity) -> Option<Vec<CompiledTerm>> {
    Some(affinity.required.as_ref()?.iter().map(|term| CompiledTerm::new(snapshot, term)).collect())
}
