//! PodTopologySpread: spreads matching pods evenly over topology domains.

mod count;
mod score;

use std::borrow::Cow;

use apimachinery::Str;
use apimachinery::labels::Selector;

use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection, Scorer};
use crate::pod::{Class, Pod, Policy, Shape, Spread, WhenUnsatisfiable};
use crate::snapshot::{NOWHERE, NodeId, Usage};
use count::{Eligible, Levels};

const REASON: &str = "node(s) didn't match pod topology spread constraints";
const LABEL_REASON: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Constraints for pods that specify none (`defaultingType`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultConstraints {
    /// Upstream's soft constraints over zones and nodes.
    System,
    /// `defaultConstraints`; label selectors are ignored.
    List(Vec<Spread>),
}

pub struct TopologySpread {
    defaults: Vec<Spread>,
    system_defaulted: bool,
}

/// A constraint with the pod counts of its domains.
struct Constraint<'a> {
    spread: Cow<'a, Spread>,
    key: u32,
    meets_itself: bool,
    levels: Levels,
}

struct SpreadFilter<'a> {
    cycle: Cycle<'a>,
    eligible: Eligible<'a>,
    constraints: Vec<Constraint<'a>>,
}

impl TopologySpread {
    /// Creates the plugin with the default constraints.
    pub fn new(defaults: DefaultConstraints) -> Self {
        let system = |key: &str, max_skew| Spread {
            max_skew,
            topology_key: key.into(),
            when: WhenUnsatisfiable::ScheduleAnyway,
            selector: Selector::Nothing,
            min_domains: 1,
            node_affinity: Policy::Honor,
            node_taints: Policy::Ignore,
        };
        match defaults {
            DefaultConstraints::List(defaults) => Self { defaults, system_defaulted: false },
            DefaultConstraints::System => Self {
                defaults: vec![system(HOSTNAME, 3), system("topology.kubernetes.io/zone", 5)],
                system_defaulted: true,
            },
        }
    }

    fn rules<'a>(&self, pod: &'a Pod, when: WhenUnsatisfiable) -> Vec<Cow<'a, Spread>> {
        self.constraints(&pod.spread, pod.default_selector.as_ref(), when)
    }

    /// Returns the constraints of a pod with this `whenUnsatisfiable`, or the default constraints with the given
    /// selector.
    fn constraints<'a>(
        &self,
        own: &'a [Spread],
        selector: Option<&Selector>,
        when: WhenUnsatisfiable,
    ) -> Vec<Cow<'a, Spread>> {
        if !own.is_empty() {
            return own.iter().filter(|it| it.when == when).map(Cow::Borrowed).collect();
        }
        let Some(selector) = selector else { return Vec::new() };
        let selected = |it: &Spread| Cow::Owned(Spread { selector: selector.clone(), ..it.clone() });
        self.defaults.iter().filter(|it| it.when == when).map(selected).collect()
    }
}

impl Plugin for TopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let spreads = self.rules(cycle.pod, WhenUnsatisfiable::DoNotSchedule);
        if spreads.is_empty() {
            return PreFilterResult::Skip;
        }
        let eligible = Eligible::new(cycle, spreads.iter().map(|it| &it.topology_key), true);
        let constraints = spreads.into_iter().zip(eligible.keys.clone()).map(|(spread, key)| Constraint {
            levels: Levels::new(eligible.counts(cycle, &spread, key)),
            meets_itself: cycle.pod.class.matches(&spread.selector),
            spread,
            key,
        });
        let constraints = constraints.collect();
        PreFilterResult::Run(Box::new(SpreadFilter { cycle, eligible, constraints }), None)
    }

    fn scorer<'a>(&'a self, cycle: Cycle<'a>, nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        let spreads = self.rules(cycle.pod, WhenUnsatisfiable::ScheduleAnyway);
        if spreads.is_empty() {
            return None;
        }
        let needs_all_labels = !cycle.pod.spread.is_empty() || !self.system_defaulted;
        Some(Box::new(score::Evenness::new(cycle, &spreads, nodes, needs_all_labels)))
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        // The selector of the default constraints is not available here: any pod of the namespace may count.
        let any_pod = Some(Selector::EVERYTHING).filter(|_| pod.spread.is_empty());
        let constraints = self.constraints(&pod.spread, any_pod.as_ref(), WhenUnsatisfiable::DoNotSchedule);
        let counted = |other: &Pod| {
            other.class.namespace == pod.class.namespace
                && constraints.iter().any(|it| other.class.matches(&it.selector))
        };
        let has_labels = |node: &crate::node::Node| constraints.iter().all(|it| node.label(&it.topology_key).is_some());
        match event {
            Event::PodAdded(other) | Event::PodRemoved(other) => counted(other),
            Event::PodUpdated(old, new) => {
                (old.class.labels != new.class.labels || old.class.terminating != new.class.terminating)
                    && (counted(old) || counted(new))
            }
            Event::NodeAdded(node) | Event::NodeRemoved(node) => has_labels(node),
            Event::NodeUpdated(old, new) => {
                (old.labels != new.labels || old.taints != new.taints || old.unschedulable != new.unschedulable)
                    && (has_labels(old) || has_labels(new))
            }
            Event::NamespaceChanged
            | Event::ClaimChanged(_)
            | Event::StorageChanged
            | Event::DeviceClaimChanged(_)
            | Event::DevicesChanged => false,
        }
    }

    fn topology_keys(&self) -> Vec<&Str> {
        self.defaults.iter().map(|it| &it.topology_key).collect()
    }
}

impl SpreadFilter<'_> {
    fn change(&mut self, node: NodeId, class: &Class, by: fn(&mut Levels, u32)) {
        let Cycle { snapshot, pod } = self.cycle;
        if class.namespace != pod.class.namespace || class.terminating || !self.eligible.has_labels(snapshot, node) {
            return;
        }
        // DEVIATION: a selector that matches everything counts no pods, neither existing pods nor those added or
        // removed in a simulation: upstream counts the latter.
        for it in self.constraints.iter_mut().filter(|it| !it.spread.selector.is_everything()) {
            if class.matches(&it.spread.selector) && self.eligible.counts_node(snapshot, &it.spread, node) {
                by(&mut it.levels, snapshot.topology().key(it.key).domain(node));
            }
        }
    }
}

impl Filter for SpreadFilter<'_> {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        for it in &self.constraints {
            let domain = self.cycle.snapshot.topology().key(it.key).domain(node);
            if domain == NOWHERE {
                return Some(Rejection::fixed(LABEL_REASON));
            }
            let enough = it.levels.domains() >= i64::from(it.spread.min_domains);
            let least = if enough { it.levels.least() } else { 0 };
            let skew = it.levels.at(domain) + i64::from(it.meets_itself) - least;
            if skew > i64::from(it.spread.max_skew) {
                return Some(Rejection::resolvable(REASON));
            }
        }
        None
    }

    fn add(&mut self, node: NodeId, class: &Class, _shape: &Shape) {
        self.change(node, class, Levels::increase);
    }

    fn remove(&mut self, node: NodeId, class: &Class, _shape: &Shape) {
        self.change(node, class, Levels::decrease);
    }
}
