//! Current usage, computed from the difference of two readings.

use std::collections::{BTreeMap, VecDeque};

use apimachinery::time::{Duration, Time};

use crate::reading::{Reading, Spent};

/// Maximum number of readings per node; the oldest are dropped.
const READINGS_MAX: usize = 16;

/// Resource usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Average CPU usage over the window, in nanocores.
    pub cpu_nanocores: i64,
    /// Memory at the end of the window.
    pub memory_bytes: i64,
    /// The end of the window.
    pub at: Time,
    pub window: Duration,
}

/// The latest readings of a node.
#[derive(Clone, Debug, Default)]
pub struct History {
    readings: VecDeque<Reading>,
}

impl History {
    /// Adds a reading and drops readings that a window of `resolution` does not need.
    pub fn add(&mut self, reading: Reading, resolution: Duration) {
        let at = reading.at;
        self.readings.push_back(reading);
        while self.readings.len() > READINGS_MAX
            || self.readings.len() > 2 && at.since(self.readings[1].at).nanos() >= resolution.nanos()
        {
            self.readings.pop_front();
        }
    }

    /// Returns the usage of the node; none before two readings.
    pub fn node(&self) -> Option<Usage> {
        let (newest, base) = self.window(|earlier, newest| {
            let (earlier, newest) = (earlier.node?, newest.node?);
            went_on(earlier, newest).then_some(())
        })?;
        Some(difference(base, base.node?, newest, newest.node?))
    }

    /// Returns the usage of each container of a pod; none before all of them have two readings.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<BTreeMap<&str, Usage>> {
        let key = (namespace.to_owned(), name.to_owned());
        let (newest, base) = self.window(|earlier, newest| {
            let (earlier, newest) = (earlier.pods.get(&key)?, newest.pods.get(&key)?);
            if newest.is_empty() {
                return None;
            }
            newest.iter().all(|(name, now)| earlier.get(name).is_some_and(|then| went_on(*then, *now))).then_some(())
        })?;
        let (then, now) = (base.pods.get(&key)?, newest.pods.get(&key)?);
        Some(now.iter().map(|(name, now)| (name.as_str(), difference(base, then[name], newest, *now))).collect())
    }

    /// Returns the newest reading, and the oldest one comparable with it.
    fn window(&self, fits: impl Fn(&Reading, &Reading) -> Option<()>) -> Option<(&Reading, &Reading)> {
        let newest = self.readings.back()?;
        let mut earlier = self.readings.iter().take(self.readings.len() - 1);
        let base =
            earlier.find(|earlier| newest.at.since(earlier.at).nanos() > 0 && fits(earlier, newest).is_some())?;
        Some((newest, base))
    }
}

/// Whether the counter continued: a restarted container's CPU time starts at zero.
const fn went_on(then: Spent, now: Spent) -> bool {
    then.cpu_nanos <= now.cpu_nanos
}

fn difference(base: &Reading, then: Spent, newest: &Reading, now: Spent) -> Usage {
    let window = newest.at.since(base.at);
    let nanos = i128::from(now.cpu_nanos - then.cpu_nanos) * 1_000_000_000 / i128::from(window.nanos());
    Usage {
        cpu_nanocores: i64::try_from(nanos).unwrap_or(i64::MAX),
        memory_bytes: now.memory_bytes,
        at: newest.at,
        window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOLUTION: Duration = Duration::from_seconds(15);

    /// Returns a reading at a second; containers of pod n/p with their CPU milliseconds.
    fn reading(second: i64, node_ms: i64, containers: &[(&str, i64)]) -> Reading {
        let spent = |ms: i64| Spent { cpu_nanos: ms * 1_000_000, memory_bytes: second };
        let containers: BTreeMap<String, Spent> =
            containers.iter().map(|(name, ms)| ((*name).to_owned(), spent(*ms))).collect();
        let pods = [(("n".to_owned(), "p".to_owned()), containers)];
        Reading { at: Time::from_unix(second, 0), node: Some(spent(node_ms)), pods: pods.into() }
    }

    fn check(readings: &[Reading], expect: &str) {
        let mut history = History::default();
        readings.iter().for_each(|reading| history.add(reading.clone(), RESOLUTION));
        let used = |used: Usage| format!("{}m/{}", used.cpu_nanocores / 1_000_000, used.window);
        let node = history.node().map_or("-".to_owned(), used);
        let pod = history.pod("n", "p").map_or("-".to_owned(), |containers| {
            containers.into_iter().map(|(name, one)| format!("{name}={}", used(one))).collect::<Vec<_>>().join(",")
        });
        assert_eq!(format!("{node} {pod}"), expect);
    }

    #[test]
    fn usage_is_the_difference_of_two_readings() {
        check(&[], "- -");
        check(&[reading(0, 0, &[("c", 0)])], "- -");
        check(&[reading(0, 0, &[("c", 0)]), reading(20, 10_000, &[("c", 5_000)])], "500m/20s c=250m/20s");
        check(&[reading(5, 0, &[]), reading(5, 10, &[])], "- -");
    }

    #[test]
    fn new_or_restarted_container_has_no_usage_before_two_readings() {
        let old = reading(0, 0, &[("c", 9_000)]);
        check(&[old.clone(), reading(10, 0, &[("c", 100)])], "0m/10s -");
        check(&[old.clone(), reading(10, 0, &[("c", 100)]), reading(11, 0, &[("c", 600)])], "0m/11s c=500m/1s");
        check(&[old.clone(), reading(10, 0, &[("c", 9_100), ("d", 0)])], "0m/10s -");
        check(&[old, reading(10, 0, &[])], "0m/10s -");
    }

    #[test]
    fn window_matches_the_resolution_and_readings_are_bounded() {
        let readings: Vec<Reading> = (0..100).map(|second| reading(second, second * 100, &[])).collect();
        check(&readings, "100m/15s -");
        let mut history = History::default();
        readings.iter().for_each(|reading| history.add(reading.clone(), Duration::from_seconds(3600)));
        assert_eq!(history.readings.len(), READINGS_MAX);
    }
}
