//! Node-pressure eviction: sets the node's pressure conditions and evicts pods in upstream's order.
//!
//! ```text
//!   signals ──evaluate──> below a threshold ──> the node's pressure conditions
//!                             │ immediately, or after the threshold's grace period
//!                             v
//!                         short ──> victim: one pod at a time, until the threshold plus minimum reclaim is met
//! ```

pub mod local;
pub mod turns;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use apimachinery::quantity::{Format, Quantity};
use apimachinery::time::Time;

use crate::config::Config;
use crate::node::{Pressure, threshold};
use crate::pod::Pod;
use crate::usage::DiskUsage;

/// Accepted eviction signals; `allocatableMemory.available` and those of `containerfs` are never measured.
pub const SIGNALS: &[&str] = &[
    "allocatableMemory.available",
    "containerfs.available",
    "containerfs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
];

/// Available amount and capacity by signal.
pub type Signals = BTreeMap<&'static str, SignalObservation>;

/// The observed value of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalObservation {
    pub available: u64,
    pub capacity: u64,
}

/// A pod and its usage.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub pod: Pod<'a>,
    /// In bytes.
    pub memory: u64,
    /// Usage of container filesystems, logs and volumes.
    pub disk: DiskUsage,
    /// Number of PIDs.
    pub processes: u64,
}

/// A minimum value of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threshold {
    pub signal: String,
    /// A quantity, or a percentage of the capacity.
    pub limit: String,
    /// Grace period of a soft threshold; `None` for a hard one.
    pub grace: Option<Duration>,
    /// Amount above the limit that must be available before an exceeded threshold is considered met again.
    pub reclaim: Option<String>,
}

/// A signal below its threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    pub signal: String,
    pub threshold: Quantity,
    pub available: Quantity,
    /// Whether the threshold is soft, so that evicted pods get a grace period.
    pub soft: bool,
}

/// Start times of exceeded thresholds. If lost, all grace periods start again.
#[derive(Clone, Debug, Default)]
pub struct Memory(BTreeMap<(String, bool), Time>);

/// The result of comparing signals with thresholds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The node's pressure conditions.
    pub pressure: Pressure,
    /// Thresholds that require an eviction now, memory first: the kernel kills processes for it.
    pub due: Vec<Short>,
}

/// Returns the thresholds of a configuration.
pub fn thresholds(config: &Config) -> Vec<Threshold> {
    let make = |(signal, limit): (&String, &String), grace: Option<Duration>| Threshold {
        signal: signal.clone(),
        limit: limit.clone(),
        grace,
        reclaim: config.eviction_minimum_reclaim.get(signal).cloned(),
    };
    let hard = config.eviction_hard.iter().map(|pair| make(pair, None));
    let grace = |signal: &String| config.eviction_soft_grace.get(signal).copied().unwrap_or_default();
    hard.chain(config.eviction_soft.iter().map(|pair| make(pair, Some(grace(pair.0))))).collect()
}

impl Memory {
    /// Compares signals with thresholds. An exceeded threshold stays exceeded until its minimum reclaim is also
    /// available.
    pub fn evaluate(&mut self, thresholds: &[Threshold], signals: &Signals, now: Time) -> Evaluation {
        let (mut below, mut due) = (Vec::new(), Vec::new());
        for one in thresholds {
            let key = (one.signal.clone(), one.grace.is_some());
            let Some(short) = one.check_signal(signals, self.0.contains_key(&key)) else {
                self.0.remove(&key);
                continue;
            };
            let since = *self.0.entry(key).or_insert(now);
            let grace = one.grace.unwrap_or_default();
            if now.since(since).nanos() >= i64::try_from(grace.as_nanos()).unwrap_or(i64::MAX) {
                due.push(short.clone());
            }
            below.push(short);
        }
        due.sort_by_key(|short| (!short.signal.starts_with("memory"), short.soft));
        Evaluation { pressure: pressure(&below), due }
    }
}

impl Threshold {
    fn check_signal(&self, signals: &Signals, was_below: bool) -> Option<Short> {
        let left = signals.get(self.signal.as_str())?;
        let number = |value: u64| Quantity::new(i64::try_from(value).unwrap_or(i64::MAX), format_of(&self.signal));
        let (all, available) = (number(left.capacity), number(left.available));
        let level = threshold(&self.limit, all);
        let more = self.reclaim.as_ref().filter(|_| was_below).map(|more| threshold(more, all));
        let enough = more.map_or(level, |more| level.add(more));
        let soft = self.grace.is_some();
        (available < enough).then(|| Short { signal: self.signal.clone(), threshold: level, available, soft })
    }
}

fn format_of(signal: &str) -> Format {
    if signal.ends_with("available") && !signal.starts_with("pid") { Format::BinarySI } else { Format::DecimalSI }
}

/// Returns the pressure conditions that correspond to exceeded thresholds.
fn pressure(short: &[Short]) -> Pressure {
    let any = |beginnings: &[&str]| {
        short.iter().any(|one| beginnings.iter().any(|beginning| one.signal.starts_with(beginning)))
    };
    Pressure { memory: any(&["memory"]), disk: any(&["nodefs", "imagefs", "containerfs"]), pids: any(&["pid"]) }
}

/// Returns the resource of a signal.
pub fn resource(signal: &str) -> &'static str {
    match signal {
        "memory.available" => "memory",
        "pid.available" => "pids",
        "nodefs.inodesFree" | "imagefs.inodesFree" | "containerfs.inodesFree" => "inodes",
        _ => "ephemeral-storage",
    }
}

/// Position of a pod in the eviction order; the smallest is evicted first. Pods that exceed their request come first,
/// then lower priorities, then larger excess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    within_request: bool,
    priority: i64,
    excess: Reverse<i128>,
}

impl Rank {
    /// Ranks a pod by its usage of a resource.
    fn of(resource: &str, candidate: &Candidate<'_>) -> Self {
        let requested = i128::from(candidate.pod.request(resource).value());
        let excess = i128::from(candidate.used(resource)) - requested;
        // Pods cannot request PIDs, so no pod exceeds its request for them.
        let within_request = excess <= 0 || resource == "pids";
        Self {
            within_request,
            priority: candidate.pod.spec()["priority"].as_int().unwrap_or(0),
            excess: Reverse(excess),
        }
    }

    /// Parses the output of `Display`.
    fn parse<'a>(mut tokens: impl Iterator<Item = &'a str>) -> Option<Self> {
        Some(Self {
            within_request: tokens.next()?.parse().ok()?,
            priority: tokens.next()?.parse().ok()?,
            excess: Reverse(tokens.next()?.parse().ok()?),
        })
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {}", self.within_request, self.priority, self.excess.0)
    }
}

/// Returns the pod to evict first, and its rank. A pod without disk usage is not evicted for a disk signal.
// DEVIATION: upstream also evicts pods without disk usage for a full disk, which frees nothing.
pub fn victim<'a>(short: &Short, candidates: &[Candidate<'a>]) -> Option<(Candidate<'a>, Rank)> {
    let resource = resource(&short.signal);
    let evictable = |candidate: &&Candidate<'_>| {
        let pod = candidate.pod;
        let critical = pod.spec()["priority"].as_int().unwrap_or(0) >= 2_000_000_000;
        let frees = !is_of_disk(&short.signal) || candidate.used(resource) > 0;
        frees && !critical && !pod.is_static() && !pod.is_mirror() && pod.is_active()
    };
    let ranked = candidates.iter().filter(evictable).map(|candidate| (*candidate, Rank::of(resource, candidate)));
    ranked.min_by_key(|(_, rank)| *rank)
}

/// Whether a signal measures a disk.
pub fn is_of_disk(signal: &str) -> bool {
    ["ephemeral-storage", "inodes"].contains(&resource(signal))
}

impl Candidate<'_> {
    fn used(&self, resource: &str) -> u64 {
        match resource {
            "memory" => self.memory,
            "pids" => self.processes,
            "inodes" => self.disk.inodes,
            _ => self.disk.bytes,
        }
    }
}

/// Returns the termination grace period of an evicted pod.
pub fn grace_seconds(short: &Short, pod: Pod<'_>, config: &Config) -> i64 {
    if short.soft { pod.grace_seconds().min(config.eviction_max_pod_grace_seconds) } else { 1 }
}

/// Returns the status message of an evicted pod, as upstream formats it.
pub fn message(short: &Short, candidate: &Candidate<'_>) -> String {
    let resource = resource(&short.signal);
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        short.threshold, short.available
    );
    if !["memory", "ephemeral-storage"].contains(&resource) {
        return text;
    }
    let used = Quantity::new(i64::try_from(candidate.used(resource)).unwrap_or(i64::MAX), Format::BinarySI);
    let requested = candidate.pod.request(resource);
    if used > requested {
        text.push_str(&format!("Pod was using {used}, request is {requested}, has larger consumption of {resource}. "));
    }
    text
}

#[cfg(test)]
mod tests {
    use apimachinery::{Value, value};

    use super::*;

    fn evaluate(memory: &mut Memory, thresholds: &[Threshold], mib: [u64; 2], seconds: i64) -> (Pressure, Vec<String>) {
        let left = |mib: u64| SignalObservation { available: mib << 20, capacity: 1 << 30 };
        let signals = Signals::from([("memory.available", left(mib[0])), ("nodefs.available", left(mib[1]))]);
        let evaluation = memory.evaluate(thresholds, &signals, Time::from_unix(seconds, 0));
        (evaluation.pressure, evaluation.due.into_iter().map(|short| short.signal).collect())
    }

    #[test]
    fn thresholds_are_quantities_or_percentages_of_capacity() {
        let mut config = Config::new("n");
        config.eviction_hard = BTreeMap::from([
            ("memory.available".to_owned(), "100Mi".to_owned()),
            ("nodefs.available".to_owned(), "10%".to_owned()),
        ]);
        let check = |memory: u64, disk: u64, expect: &[&str]| {
            let (_, due) = evaluate(&mut Memory::default(), &thresholds(&config), [memory, disk], 0);
            assert_eq!(due, expect, "{memory} {disk}");
        };
        check(500, 500, &[]);
        check(99, 500, &["memory.available"]);
        check(99, 99, &["memory.available", "nodefs.available"]);
    }

    #[test]
    fn soft_threshold_sets_condition_immediately_and_evicts_after_grace_period() {
        let mut config = Config::new("n");
        config.eviction_hard.clear();
        config.eviction_soft.insert("memory.available".to_owned(), "100Mi".to_owned());
        config.eviction_soft_grace.insert("memory.available".to_owned(), Duration::from_secs(30));
        let (thresholds, mut memory) = (thresholds(&config), Memory::default());
        let mut check = |mib: u64, seconds: i64, pressing: bool, due: bool| {
            let (pressure, found) = evaluate(&mut memory, &thresholds, [mib, 500], seconds);
            assert_eq!((pressure.memory, !found.is_empty()), (pressing, due), "{mib} at {seconds}");
        };
        check(50, 0, true, false);
        check(50, 29, true, false);
        check(50, 30, true, true);
        check(200, 40, false, false);
        check(50, 50, true, false);
        check(50, 80, true, true);
    }

    #[test]
    fn threshold_is_met_again_only_with_minimum_reclaim() {
        let mut config = Config::new("n");
        config.eviction_hard = BTreeMap::from([("nodefs.available".to_owned(), "100Mi".to_owned())]);
        config.eviction_minimum_reclaim.insert("nodefs.available".to_owned(), "50Mi".to_owned());
        let (thresholds, mut memory) = (thresholds(&config), Memory::default());
        let mut check = |mib: u64, expect: bool| {
            let (pressure, due) = evaluate(&mut memory, &thresholds, [500, mib], 0);
            assert_eq!((pressure.disk, !due.is_empty()), (expect, expect), "{mib}");
        };
        check(120, false);
        check(90, true);
        check(120, true);
        check(150, false);
        check(120, false);
    }

    #[test]
    fn soft_eviction_grace_period_is_capped_by_the_configuration() {
        let pod = value!({"spec": {"terminationGracePeriodSeconds": 20}});
        let mut config = Config::new("n");
        let short = |soft: bool| Short {
            signal: "memory.available".into(),
            threshold: Quantity::ZERO,
            available: Quantity::ZERO,
            soft,
        };
        let mut check = |soft: bool, most: i64, expect: i64| {
            config.eviction_max_pod_grace_seconds = most;
            assert_eq!(grace_seconds(&short(soft), Pod(&pod), &config), expect);
        };
        check(false, 60, 1);
        check(true, 60, 20);
        check(true, 5, 5);
    }

    #[test]
    fn pods_above_request_with_lowest_priority_are_evicted_first() {
        let pod = |name: &str, request: &str, priority: i64| {
            value!({"metadata": {"name": name}, "spec": {"priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"memory": request}}}]}})
        };
        let pods = [
            pod("modest", "1Gi", 0),
            pod("greedy", "1Mi", 0),
            pod("greedier", "1Mi", 0),
            pod("vital", "0", 2_000_001_000),
        ];
        let used = [512 << 20, 100 << 20, 200 << 20, 900 << 20];
        let candidate = |(pod, memory)| Candidate { pod: Pod(pod), memory, disk: DiskUsage::default(), processes: 0 };
        let candidates: Vec<Candidate<'_>> = pods.iter().zip(used).map(candidate).collect();
        let low = Short {
            signal: "memory.available".into(),
            threshold: "100Mi".parse().unwrap(),
            available: "50Mi".parse().unwrap(),
            soft: false,
        };
        let order = |candidates: &[Candidate<'_>]| victim(&low, candidates).map(|(one, _)| one.pod.name().to_owned());
        assert_eq!(order(&candidates).as_deref(), Some("greedier"));
        assert_eq!(order(&candidates[..2]).as_deref(), Some("greedy"));
        assert_eq!(order(&candidates[..1]).as_deref(), Some("modest"));
        assert_eq!(order(&candidates[3..]), None);
        let expect = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
            Pod was using 200Mi, request is 1Mi, has larger consumption of memory. ";
        assert_eq!(message(&low, &candidates[2]), expect);
        let _: &Value = &pods[0];
    }
    #[test]
    fn pod_with_highest_usage_of_the_short_resource_is_evicted_first() {
        let pod = |name: &str, priority: i64| {
            let spec = value!({"priority": priority, "containers": [{"name": "c"}]});
            value!({"metadata": {"name": name}, "spec": spec})
        };
        let pods = [pod("large", 0), pod("many", 0), pod("busy", 0), pod("cheap", -1)];
        let taken = |bytes: u64, inodes: u64| DiskUsage { bytes, inodes };
        let disks = [taken(900, 1), taken(10, 900), taken(0, 0), taken(0, 0)];
        let candidate = |((pod, disk), processes)| Candidate { pod: Pod(pod), memory: 0, disk, processes };
        let candidates: Vec<Candidate<'_>> = pods.iter().zip(disks).zip([1, 1, 500, 3]).map(candidate).collect();
        let check = |signal: &str, candidates: &[Candidate<'_>], expect: &str| {
            let (threshold, available) = (Quantity::ZERO, Quantity::ZERO);
            let short = Short { signal: signal.to_owned(), threshold, available, soft: false };
            let (found, _) = victim(&short, candidates).unwrap();
            assert_eq!(found.pod.name(), expect, "{signal}");
            message(&short, &found)
        };
        check("nodefs.available", &candidates, "large");
        check("nodefs.inodesFree", &candidates, "many");
        let short = |signal: &str| Short {
            signal: signal.to_owned(),
            threshold: Quantity::ZERO,
            available: Quantity::ZERO,
            soft: false,
        };
        assert!(victim(&short("nodefs.available"), &candidates[2..]).is_none(), "evicting them would free nothing");
        check("pid.available", &candidates[..3], "busy");
        let eviction_message = check("pid.available", &candidates, "cheap");
        assert_eq!(eviction_message, "The node was low on resource: pids. Threshold quantity: 0, available: 0. ");
    }
}
