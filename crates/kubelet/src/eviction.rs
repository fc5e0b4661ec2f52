//! What a node does when it is short of something: says so, and puts the pods out that it can spare most.

use std::collections::BTreeMap;

use machinery::quantity::{Format, Quantity};

use crate::node::{Pressure, threshold};
use crate::pod::Pod;
use crate::resources;

/// What is left of everything, and how much there is in all, by signal.
pub type Signals = BTreeMap<&'static str, Left>;

/// What is left of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Still there.
    pub available: u64,
    /// In all.
    pub capacity: u64,
}

/// A pod and what it uses.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The pod.
    pub pod: Pod<'a>,
    /// Its memory.
    pub memory: u64,
    /// Its part of the disk.
    pub disk: u64,
}

/// A signal that is below its threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// Which one.
    pub signal: String,
    /// What must be left.
    pub threshold: Quantity,
    /// What is left.
    pub available: Quantity,
}

/// The signals that are below their thresholds, memory first: it is what the kernel kills for.
pub fn short(limits: &BTreeMap<String, String>, signals: &Signals) -> Vec<Short> {
    let mut found: Vec<Short> = limits
        .iter()
        .filter_map(|(signal, limit)| {
            let left = signals.get(signal.as_str())?;
            let number = |value: u64| Quantity::new(i64::try_from(value).unwrap_or(i64::MAX), format_of(signal));
            let (threshold, available) = (threshold(limit, number(left.capacity)), number(left.available));
            (available < threshold).then(|| Short { signal: signal.clone(), threshold, available })
        })
        .collect();
    found.sort_by_key(|short| !short.signal.starts_with("memory"));
    found
}

fn format_of(signal: &str) -> Format {
    if signal.ends_with("available") && !signal.starts_with("pid") { Format::BinarySI } else { Format::DecimalSI }
}

/// What a node is short of, in the words of its conditions.
pub fn pressure(short: &[Short]) -> Pressure {
    let any = |beginnings: &[&str]| {
        short.iter().any(|one| beginnings.iter().any(|beginning| one.signal.starts_with(beginning)))
    };
    Pressure { memory: any(&["memory"]), disk: any(&["nodefs", "imagefs", "containerfs"]), pids: any(&["pid"]) }
}

/// The resource behind a signal.
pub fn resource(signal: &str) -> &'static str {
    match signal {
        "memory.available" => "memory",
        "pid.available" => "pids",
        "nodefs.inodesFree" | "imagefs.inodesFree" => "inodes",
        _ => "ephemeral-storage",
    }
}

/// The pod that goes first: one that uses more than it asked for, then the least important, then the one furthest above.
pub fn victim<'a>(short: &Short, candidates: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    let by_memory = resource(&short.signal) == "memory";
    let over = |candidate: &Candidate<'_>| {
        let asked = resources::pod_requests(candidate.pod);
        let (used, name) = if by_memory { (candidate.memory, "memory") } else { (candidate.disk, "ephemeral-storage") };
        i128::from(used) - asked.get(name).map_or(0, |amount| i128::from(amount.value()))
    };
    let spared = |candidate: &&Candidate<'_>| {
        let pod = candidate.pod;
        let critical = pod.spec()["priority"].as_int().unwrap_or(0) >= 2_000_000_000;
        !critical && !pod.is_static() && !pod.is_mirror() && !pod.is_ended() && !pod.meta().is_deleting()
    };
    let rank = |candidate: &&Candidate<'_>| {
        let over = over(candidate);
        (over <= 0, candidate.pod.spec()["priority"].as_int().unwrap_or(0), std::cmp::Reverse(over))
    };
    candidates.iter().filter(spared).min_by_key(rank).copied()
}

/// What people are told of a pod that goes.
pub fn message(short: &Short, candidate: &Candidate<'_>) -> String {
    let resource = resource(&short.signal);
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        short.threshold, short.available
    );
    let used = if resource == "memory" { candidate.memory } else { candidate.disk };
    let used = Quantity::new(i64::try_from(used).unwrap_or(i64::MAX), Format::BinarySI);
    let asked = resources::pod_requests(candidate.pod).get(resource).copied().unwrap_or(Quantity::ZERO);
    if used > asked {
        text.push_str(&format!("Pod was using {used}, request is {asked}, has larger consumption of {resource}. "));
    }
    text
}

#[cfg(test)]
mod tests {
    use machinery::{Value, value};

    use super::*;

    #[test]
    fn thresholds_are_amounts_or_parts_of_what_there_is() {
        let limits = BTreeMap::from([
            ("memory.available".to_owned(), "100Mi".to_owned()),
            ("nodefs.available".to_owned(), "10%".to_owned()),
        ]);
        let check = |memory: u64, disk: u64, expect: &[&str]| {
            let left = |available| Left { available, capacity: 1 << 30 };
            let signals =
                Signals::from([("memory.available", left(memory << 20)), ("nodefs.available", left(disk << 20))]);
            let found: Vec<String> = short(&limits, &signals).into_iter().map(|short| short.signal).collect();
            assert_eq!(found, expect, "{memory} {disk}");
        };
        check(500, 500, &[]);
        check(99, 500, &["memory.available"]);
        check(99, 99, &["memory.available", "nodefs.available"]);
        let found = short(&limits, &Signals::from([("nodefs.available", Left { available: 1, capacity: 100 })]));
        assert_eq!(pressure(&found), Pressure { disk: true, ..Pressure::default() });
    }

    #[test]
    fn whoever_uses_more_than_it_asked_for_and_matters_least_goes_first() {
        let pod = |name: &str, asks: &str, priority: i64| {
            value!({"metadata": {"name": name}, "spec": {"priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"memory": asks}}}]}})
        };
        let pods = [
            pod("modest", "1Gi", 0),
            pod("greedy", "1Mi", 0),
            pod("greedier", "1Mi", 0),
            pod("vital", "0", 2_000_001_000),
        ];
        let used = [512 << 20, 100 << 20, 200 << 20, 900 << 20];
        let candidates: Vec<Candidate<'_>> =
            pods.iter().zip(used).map(|(pod, memory)| Candidate { pod: Pod(pod), memory, disk: 0 }).collect();
        let low = Short {
            signal: "memory.available".into(),
            threshold: "100Mi".parse().unwrap(),
            available: "50Mi".parse().unwrap(),
        };
        let order = |candidates: &[Candidate<'_>]| victim(&low, candidates).map(|one| one.pod.name().to_owned());
        assert_eq!(order(&candidates).as_deref(), Some("greedier"));
        assert_eq!(order(&candidates[..2]).as_deref(), Some("greedy"));
        assert_eq!(order(&candidates[..1]).as_deref(), Some("modest"));
        assert_eq!(order(&candidates[3..]), None);
        let expect = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
            Pod was using 200Mi, request is 1Mi, has larger consumption of memory. ";
        assert_eq!(message(&low, &candidates[2]), expect);
        let _: &Value = &pods[0];
    }
}
