//! Eviction rates of a zone, depending on the share of unhealthy nodes.

use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};

use super::ready;
use super::taints::{NoExecutePolicy, emptied_at};

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The eviction rate flags.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Nodes per second in a healthy zone.
    pub normal: f64,
    /// Nodes per second in a large, partially unhealthy zone.
    pub secondary: f64,
    /// The share of not ready nodes from which a zone counts as unhealthy.
    pub unhealthy_share: f64,
    /// Number of nodes above which a zone is large.
    pub large_size: usize,
}

/// The eviction decision for one node.
pub(super) struct EvictionDecision {
    pub may_empty: NoExecutePolicy,
    /// The time at which the rate allows the next node.
    pub wake_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Normal,
    Partial,
    Full,
}

impl Default for Rates {
    fn default() -> Self {
        Self { normal: 0.1, secondary: 0.01, unhealthy_share: 0.55, large_size: 50 }
    }
}

/// Decides on a node from the state of its zone and of all other zones.
pub(super) fn evaluate(node: &Value, all: &[&Value], rates: &Rates, now: Time) -> EvictionDecision {
    if ready(node) == "True" {
        return EvictionDecision { may_empty: NoExecutePolicy::Keep, wake_at: None };
    }
    let mine: Vec<&Value> = all.iter().copied().filter(|it| zone(it) == zone(node)).collect();
    let mut zones: Vec<(&str, &str)> = all.iter().map(|it| zone(it)).collect();
    zones.sort_unstable();
    zones.dedup();
    let of_zone = |zone_key: (&str, &str)| {
        let nodes: Vec<&Value> = all.iter().copied().filter(|it| zone(it) == zone_key).collect();
        state(&nodes, rates)
    };
    // If all zones are unhealthy, the fault is probably on the control plane's side.
    if zones.iter().all(|zone| of_zone(*zone) == State::Full) {
        return EvictionDecision { may_empty: NoExecutePolicy::Remove, wake_at: None };
    }
    let rate = match state(&mine, rates) {
        State::Normal | State::Full => rates.normal,
        State::Partial if mine.len() > rates.large_size => rates.secondary,
        State::Partial => 0.0,
    };
    if rate <= 0.0 {
        return EvictionDecision { may_empty: NoExecutePolicy::Keep, wake_at: None };
    }
    let last = mine.iter().filter_map(|it| emptied_at(it).flatten()).max();
    // The rate has a minimum of 1e-6 nodes per second, so that the pause fits into nanoseconds.
    let pause = Duration::from_nanos((1e9 / rate.max(1e-6)) as i64);
    let next = last.map(|last| last.plus(pause)).filter(|next| *next > now);
    if emptied_at(node).is_some() || next.is_none() {
        return EvictionDecision { may_empty: NoExecutePolicy::Add, wake_at: None };
    }
    EvictionDecision { may_empty: NoExecutePolicy::Keep, wake_at: next }
}

fn state(nodes: &[&Value], rates: &Rates) -> State {
    let ill = nodes.iter().filter(|node| ready(node) != "True").count();
    let share = ill as f64 / nodes.len().max(1) as f64;
    if ill == nodes.len() && ill > 0 {
        State::Full
    } else if ill > 2 && share >= rates.unhealthy_share {
        State::Partial
    } else {
        State::Normal
    }
}

fn zone(node: &Value) -> (&str, &str) {
    let meta = Meta::of(node);
    (meta.label(REGION).unwrap_or_default(), meta.label(ZONE).unwrap_or_default())
}
