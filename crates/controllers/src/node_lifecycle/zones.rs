//! How fast the nodes of a zone may be emptied, depending on how much of the zone is well.

use machinery::Value;
use machinery::meta::Meta;
use machinery::time::{Duration, Time};

use super::ready;
use super::taints::{MayEmpty, emptied_at};

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

/// How fast nodes are emptied.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Nodes a second in a zone that is well.
    pub normal: f64,
    /// Nodes a second in a large zone that is partly not.
    pub secondary: f64,
    /// The share of nodes that are not well that makes a zone so.
    pub unhealthy_share: f64,
    /// More nodes than this make a zone large.
    pub large_size: usize,
}

/// What a zone allows for one of its nodes.
pub struct Judgement {
    /// Whether its pods may be sent away.
    pub may_empty: MayEmpty,
    /// When to look again.
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

/// Judges about a node by the state of its zone and of all others.
pub fn judge(node: &Value, all: &[&Value], rates: &Rates, now: Time) -> Judgement {
    if ready(node) == "True" {
        return Judgement { may_empty: MayEmpty::NotNow, wake_at: None };
    }
    let mine: Vec<&Value> = all.iter().copied().filter(|it| zone(it) == zone(node)).collect();
    let mut zones: Vec<(&str, &str)> = all.iter().map(|it| zone(it)).collect();
    zones.sort_unstable();
    zones.dedup();
    let of_zone = |wanted: (&str, &str)| {
        let nodes: Vec<&Value> = all.iter().copied().filter(|it| zone(it) == wanted).collect();
        state(&nodes, rates)
    };
    // If nothing is well anywhere, it is us who cannot see.
    if zones.iter().all(|zone| of_zone(*zone) == State::Full) {
        return Judgement { may_empty: MayEmpty::Never, wake_at: None };
    }
    let rate = match state(&mine, rates) {
        State::Normal | State::Full => rates.normal,
        State::Partial if mine.len() > rates.large_size => rates.secondary,
        State::Partial => 0.0,
    };
    if rate <= 0.0 {
        return Judgement { may_empty: MayEmpty::NotNow, wake_at: None };
    }
    let last = mine.iter().filter_map(|it| emptied_at(it).flatten()).max();
    // A millionth of a node a second is as slow as it gets.
    let pause = Duration::from_nanos((1e9 / rate.max(1e-6)) as i64);
    let next = last.map(|last| last.plus(pause)).filter(|next| *next > now);
    if emptied_at(node).is_some() || next.is_none() {
        return Judgement { may_empty: MayEmpty::Yes, wake_at: None };
    }
    Judgement { may_empty: MayEmpty::NotNow, wake_at: next }
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
