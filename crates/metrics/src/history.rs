//! What is used at present, from the difference of two readings.

use std::collections::{BTreeMap, VecDeque};

use machinery::time::{Duration, Time};

use crate::reading::{Reading, Spent};

/// Readings of a node at most: the oldest go first.
const READINGS_MAX: usize = 16;

/// What something uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Billionths of a processor, over the window.
    pub cpu_nanocores: i64,
    /// Memory at the end of it.
    pub memory_bytes: i64,
    /// The end of the window.
    pub at: Time,
    /// How long it is.
    pub window: Duration,
}

/// The last readings of a node.
#[derive(Clone, Debug, Default)]
pub struct History {
    readings: VecDeque<Reading>,
}

impl History {
    /// Adds a reading. Only as many are kept as a window of `resolution` needs.
    pub fn add(&mut self, reading: Reading, resolution: Duration) {
        let at = reading.at;
        self.readings.push_back(reading);
        while self.readings.len() > READINGS_MAX
            || self.readings.len() > 2 && at.since(self.readings[1].at).nanos() >= resolution.nanos()
        {
            self.readings.pop_front();
        }
    }

    /// What the node uses; nothing before it was asked twice.
    pub fn node(&self) -> Option<Used> {
        let (newest, base) = self.window(|earlier, newest| {
            let (earlier, newest) = (earlier.node?, newest.node?);
            went_on(earlier, newest).then_some(())
        })?;
        Some(difference(base, base.node?, newest, newest.node?))
    }

    /// What each container of a pod uses; nothing before all of them were seen twice.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<BTreeMap<&str, Used>> {
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

    /// The newest reading, and the oldest that can be compared with it.
    fn window(&self, fits: impl Fn(&Reading, &Reading) -> Option<()>) -> Option<(&Reading, &Reading)> {
        let newest = self.readings.back()?;
        let mut earlier = self.readings.iter().take(self.readings.len() - 1);
        let base =
            earlier.find(|earlier| newest.at.since(earlier.at).nanos() > 0 && fits(earlier, newest).is_some())?;
        Some((newest, base))
    }
}

/// Whether it is the same that goes on: the time of one that was started anew counts from its start.
const fn went_on(then: Spent, now: Spent) -> bool {
    then.cpu_nanos <= now.cpu_nanos
}

fn difference(base: &Reading, then: Spent, newest: &Reading, now: Spent) -> Used {
    let window = newest.at.since(base.at);
    let nanos = i128::from(now.cpu_nanos - then.cpu_nanos) * 1_000_000_000 / i128::from(window.nanos());
    Used {
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

    /// A reading at a second; containers of the pod n/p by the milliseconds they have had.
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
        let used = |used: Used| format!("{}m/{}", used.cpu_nanocores / 1_000_000, used.window);
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
    fn what_is_new_or_was_started_anew_has_no_usage_until_it_was_seen_twice() {
        let old = reading(0, 0, &[("c", 9_000)]);
        check(&[old.clone(), reading(10, 0, &[("c", 100)])], "0m/10s -");
        check(&[old.clone(), reading(10, 0, &[("c", 100)]), reading(11, 0, &[("c", 600)])], "0m/11s c=500m/1s");
        check(&[old.clone(), reading(10, 0, &[("c", 9_100), ("d", 0)])], "0m/10s -");
        check(&[old, reading(10, 0, &[])], "0m/10s -");
    }

    #[test]
    fn a_window_is_as_long_as_the_resolution_if_it_can_be_and_readings_are_few() {
        let readings: Vec<Reading> = (0..100).map(|second| reading(second, second * 100, &[])).collect();
        check(&readings, "100m/15s -");
        let mut history = History::default();
        readings.iter().for_each(|reading| history.add(reading.clone(), Duration::from_seconds(3600)));
        assert_eq!(history.readings.len(), READINGS_MAX);
    }
}
