//! InterPodAffinity: pod affinity and anti-affinity by topology domain.

use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection, SCORE_MAX, Scorer};
use crate::pod::{Class, Pod, Shape, Term, TermKind};
use crate::snapshot::{NOWHERE, NodeId, Snapshot, Usage};

const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// The plugin with its arguments.
pub struct InterPodAffinity {
    /// `hardPodAffinityWeight`: score of an existing pod's required affinity term that matches the new pod.
    pub hard_weight: i32,
    /// `ignorePreferredTermsOfExistingPods`.
    pub ignores_preferences_of_others: bool,
}

struct Rules<'a> {
    cycle: Cycle<'a>,
    affinity: Vec<Domains<'a>>,
    /// Whether the pod matches all its own affinity terms: then it may be the first of its group.
    meets_itself: bool,
    anti_affinity: Vec<Domains<'a>>,
    /// By topology key: number of existing pods per domain whose anti-affinity excludes the pod.
    existing: Vec<Option<Vec<u32>>>,
}

/// A term of the pod, with the number of matching pods per domain.
struct Domains<'a> {
    term: &'a Term,
    key: u32,
    counts: Vec<u32>,
    total: u32,
}

struct Preferences<'a> {
    snapshot: &'a Snapshot,
    /// By topology key: the sum of weights per domain.
    sums: Vec<(u32, Vec<i64>)>,
}

impl Default for InterPodAffinity {
    fn default() -> Self {
        Self { hard_weight: 1, ignores_preferences_of_others: false }
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let rules = Rules::new(cycle);
        let free = rules.affinity.is_empty() && rules.anti_affinity.is_empty();
        if free && rules.existing.iter().all(Option::is_none) {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Run(Box::new(rules), None)
        }
    }

    fn scorer<'a>(&'a self, cycle: Cycle<'a>, _nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        let preferences = Preferences::new(cycle, self);
        (!preferences.sums.is_empty()).then(|| Box::new(preferences) as Box<dyn Scorer>)
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        let meets = |other: &Pod, kind: TermKind| {
            let of_kind = |term: &&std::sync::Arc<Term>| term.kind == kind;
            // Namespace labels are not available here: assume that a term with a namespace selector may match.
            let about = |term: &Term, class: &Class| {
                let selects = !matches!(term.namespace_selector, apimachinery::labels::Selector::Nothing);
                class.matches(&term.selector) && (selects || term.namespaces.contains(&class.namespace))
            };
            pod.shape.terms.iter().filter(of_kind).any(|term| about(term, &other.class))
                || kind == TermKind::AntiAffinity
                    && other.shape.terms.iter().filter(of_kind).any(|term| about(term, &pod.class))
        };
        match event {
            Event::PodAdded(added) => meets(added, TermKind::Affinity),
            // A pod that matches its own affinity may go anywhere once no other matching pod exists.
            Event::PodRemoved(removed_pod) => {
                meets(removed_pod, TermKind::AntiAffinity)
                    || meets(removed_pod, TermKind::Affinity) && meets(pod, TermKind::Affinity)
            }
            Event::PodUpdated(old, new) => {
                old.class.labels != new.class.labels
                    && (meets(new, TermKind::Affinity)
                        || meets(old, TermKind::AntiAffinity)
                        || meets(old, TermKind::Affinity) && meets(pod, TermKind::Affinity))
            }
            Event::NodeAdded(node) => !pod
                .shape
                .terms
                .iter()
                .any(|term| term.kind == TermKind::Affinity && node.label(&term.topology_key).is_none()),
            // The relevant topology keys also depend on the terms of existing pods, which are not available here.
            Event::NodeUpdated(old, new) => old.labels != new.labels,
            Event::ClaimChanged(_) | Event::StorageChanged | Event::DeviceClaimChanged(_) | Event::DevicesChanged => {
                false
            }
            // Pods of a deleted node do not count any more.
            Event::NodeRemoved(_) | Event::NamespaceChanged => true,
        }
    }
}

impl<'a> Rules<'a> {
    fn new(cycle: Cycle<'a>) -> Self {
        let Cycle { snapshot, pod } = cycle;
        let of_kind = |kind: TermKind| {
            let terms = pod.shape.terms.iter().filter(move |term| term.kind == kind);
            terms.map(|term| Domains::new(snapshot, term)).collect::<Vec<_>>()
        };
        let (mut affinity, mut anti_affinity) = (of_kind(TermKind::Affinity), of_kind(TermKind::AntiAffinity));
        if !affinity.is_empty() || !anti_affinity.is_empty() {
            for (id, class) in snapshot.classes() {
                let labels = snapshot.namespace_labels(&class.namespace);
                if affinity.iter().all(|it| it.term.matches(class, labels)) {
                    affinity.iter_mut().for_each(|it| it.count(snapshot, id));
                }
                let apart = anti_affinity.iter_mut().filter(|it| it.term.matches(class, labels));
                apart.for_each(|it| it.count(snapshot, id));
            }
        }
        let own_labels = snapshot.namespace_labels(&pod.class.namespace);
        let meets_itself = affinity.iter().all(|it| it.term.matches(&pod.class, own_labels));
        let mut rules = Self { cycle, affinity, meets_itself, anti_affinity, existing: Vec::new() };
        for (term, key, counts) in snapshot.terms() {
            if term.kind == TermKind::AntiAffinity && !counts.is_empty() && term.matches(&pod.class, own_labels) {
                let sums = rules.existing_of(key);
                counts.iter().for_each(|(domain, number)| sums[domain as usize] += number);
            }
        }
        rules
    }

    fn existing_of(&mut self, key: u32) -> &mut Vec<u32> {
        let topology = self.cycle.snapshot.topology();
        if self.existing.len() < topology.end() {
            self.existing.resize(topology.end(), None);
        }
        self.existing[key as usize].get_or_insert_with(|| vec![0; topology.key(key).end()])
    }

    fn affinity_holds(&self, node: NodeId) -> bool {
        let topology = self.cycle.snapshot.topology();
        let mut exists = true;
        for it in &self.affinity {
            let domain = topology.key(it.key).domain(node);
            if domain == NOWHERE {
                return false;
            }
            exists &= it.counts[domain as usize] > 0;
        }
        exists || self.meets_itself && self.affinity.iter().all(|it| it.total == 0)
    }

    fn change(&mut self, node: NodeId, class: &Class, shape: &Shape, by: fn(&mut u32)) {
        let Cycle { snapshot, pod } = self.cycle;
        let labels = snapshot.namespace_labels(&class.namespace);
        if self.affinity.iter().all(|it| it.term.matches(class, labels)) {
            self.affinity.iter_mut().for_each(|it| it.change(snapshot, node, by));
        }
        let apart = self.anti_affinity.iter_mut().filter(|it| it.term.matches(class, labels));
        apart.for_each(|it| it.change(snapshot, node, by));
        let own_labels = snapshot.namespace_labels(&pod.class.namespace);
        for term in shape.terms.iter().filter(|term| term.kind == TermKind::AntiAffinity) {
            let Some(key) = snapshot.topology().find(&term.topology_key) else { continue };
            let domain = snapshot.topology().key(key).domain(node);
            if domain != NOWHERE && term.matches(&pod.class, own_labels) {
                by(&mut self.existing_of(key)[domain as usize]);
            }
        }
    }
}

impl Filter for Rules<'_> {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        let topology = self.cycle.snapshot.topology();
        let any = |key: u32, counts: &[u32]| {
            let domain = topology.key(key).domain(node);
            domain != NOWHERE && counts[domain as usize] > 0
        };
        if !self.affinity_holds(node) {
            Some(Rejection::fixed(AFFINITY))
        } else if self.anti_affinity.iter().any(|it| any(it.key, &it.counts)) {
            Some(Rejection::resolvable(ANTI_AFFINITY))
        } else if (0..).zip(&self.existing).any(|(key, it)| it.as_ref().is_some_and(|it| any(key, it))) {
            Some(Rejection::resolvable(EXISTING))
        } else {
            None
        }
    }

    fn add(&mut self, node: NodeId, class: &Class, shape: &Shape) {
        self.change(node, class, shape, |count| *count += 1);
    }

    fn remove(&mut self, node: NodeId, class: &Class, shape: &Shape) {
        self.change(node, class, shape, |count| *count -= 1);
    }
}

impl<'a> Domains<'a> {
    fn new(snapshot: &Snapshot, term: &'a Term) -> Self {
        let key = snapshot.topology().find(&term.topology_key).expect("a snapshot is prepared for its pod");
        Self { term, key, counts: vec![0; snapshot.topology().key(key).end()], total: 0 }
    }

    fn count(&mut self, snapshot: &Snapshot, class: u32) {
        for (domain, number) in snapshot.class_by_domain(class, self.key) {
            self.counts[domain as usize] += number;
            self.total += number;
        }
    }

    fn change(&mut self, snapshot: &Snapshot, node: NodeId, by: fn(&mut u32)) {
        let domain = snapshot.topology().key(self.key).domain(node);
        if domain != NOWHERE {
            by(&mut self.counts[domain as usize]);
            by(&mut self.total);
        }
    }
}

impl<'a> Preferences<'a> {
    fn new(cycle: Cycle<'a>, plugin: &InterPodAffinity) -> Self {
        let Cycle { snapshot, pod } = cycle;
        let mut this = Self { snapshot, sums: Vec::new() };
        let own = || pod.shape.terms.iter().filter(|term| matches!(term.kind, TermKind::Preferred(_)));
        if plugin.ignores_preferences_of_others && own().next().is_none() {
            return this;
        }
        let own_labels = snapshot.namespace_labels(&pod.class.namespace);
        for (term, key, counts) in snapshot.terms() {
            let weight = match term.kind {
                TermKind::Affinity => plugin.hard_weight,
                TermKind::AntiAffinity => 0,
                TermKind::Preferred(_) if plugin.ignores_preferences_of_others => 0,
                TermKind::Preferred(weight) => weight,
            };
            if weight != 0 && !counts.is_empty() && term.matches(&pod.class, own_labels) {
                this.add(key, weight, counts.iter());
            }
        }
        for term in own() {
            let key = snapshot.topology().find(&term.topology_key).expect("a snapshot is prepared for its pod");
            let TermKind::Preferred(weight) = term.kind else { continue };
            for (id, class) in snapshot.classes() {
                if term.matches(class, snapshot.namespace_labels(&class.namespace)) {
                    this.add(key, weight, snapshot.class_by_domain(id, key));
                }
            }
        }
        this
    }

    fn add(&mut self, key: u32, weight: i32, counts: impl Iterator<Item = (u32, u32)>) {
        let at = self.sums.iter().position(|(have, _)| *have == key).unwrap_or_else(|| {
            self.sums.push((key, vec![0; self.snapshot.topology().key(key).end()]));
            self.sums.len() - 1
        });
        for (domain, number) in counts {
            self.sums[at].1[domain as usize] += i64::from(weight) * i64::from(number);
        }
    }
}

impl Scorer for Preferences<'_> {
    fn score(&self, node: NodeId) -> i64 {
        let of_key = |(key, sums): &(u32, Vec<i64>)| {
            let domain = self.snapshot.topology().key(*key).domain(node);
            if domain == NOWHERE { 0 } else { sums[domain as usize] }
        };
        self.sums.iter().map(of_key).sum()
    }

    #[expect(clippy::cast_possible_truncation, reason = "between 0 and 100, truncated as upstream does")]
    #[expect(clippy::cast_precision_loss, reason = "sums of weights are far below 2^53")]
    fn normalize(&self, _nodes: &[NodeId], scores: &mut [i64]) {
        let most = scores.iter().copied().max().unwrap_or_default();
        let least = scores.iter().copied().min().unwrap_or_default();
        for score in scores {
            let range = most - least;
            let share = if range > 0 { (*score - least) as f64 / range as f64 } else { 0.0 };
            *score = (SCORE_MAX as f64 * share) as i64;
        }
    }
}
