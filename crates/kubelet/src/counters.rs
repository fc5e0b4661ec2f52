//! Probe result counters per container, for metrics; removed with the pod.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::pod::Pod;
use crate::probe::{Kind, Problem};

/// Values of the `result` label, in the order of the counters.
const RESULTS: [&str; 3] = ["successful", "failed", "unknown"];

/// The labels of a probe's metrics.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    pub uid: String,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub kind: Kind,
}

/// Result counters of one probe.
#[derive(Debug, Default)]
pub struct ProbeCounters([AtomicU64; RESULTS.len()]);

/// Result counters of all probes on the node. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Probes(Arc<Mutex<BTreeMap<Probe, Arc<ProbeCounters>>>>);

impl ProbeCounters {
    /// Counts one probe result.
    pub fn count(&self, problem: Option<&Problem>) {
        let result = match problem {
            None => 0,
            Some(Problem::Failed(_)) => 1,
            Some(Problem::NotRun(_)) => 2,
        };
        self.0[result].fetch_add(1, Ordering::Relaxed);
    }
}

impl Probes {
    /// Returns the counters of a probe, which survive restarts of its container.
    pub fn of(&self, pod: Pod<'_>, container: &str, kind: Kind) -> Arc<ProbeCounters> {
        let probe = Probe {
            uid: pod.uid().to_owned(),
            namespace: pod.namespace().to_owned(),
            pod: pod.name().to_owned(),
            container: container.to_owned(),
            kind,
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(probe).or_default())
    }

    /// Removes the counters of a deleted pod.
    pub fn remove(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|probe, _| probe.uid != uid);
    }

    /// Returns all counters that are not zero.
    pub fn all(&self) -> Vec<(Probe, &'static str, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = all.iter().flat_map(|(probe, results)| {
            let counts = RESULTS.into_iter().zip(&results.0);
            counts.map(move |(result, count)| (probe.clone(), result, count.load(Ordering::Relaxed)))
        });
        samples.filter(|(_, _, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn probe_results_are_counted_per_container_and_removed_with_the_pod() {
        let pods = ["u", "v"].map(|uid| value!({"metadata": {"name": "p", "namespace": "n", "uid": uid}}));
        let probes = Probes::default();
        let results = probes.of(Pod(&pods[0]), "c", Kind::Readiness);
        results.count(None);
        probes.of(Pod(&pods[0]), "c", Kind::Readiness).count(None);
        results.count(Some(&Problem::Failed(String::new())));
        probes.of(Pod(&pods[1]), "c", Kind::Liveness).count(Some(&Problem::NotRun(String::new())));
        let samples = || -> Vec<String> {
            let line = |(probe, result, count): (Probe, &str, u64)| {
                format!("{} {} {} {result} {count}", probe.uid, probe.container, probe.kind.word())
            };
            probes.all().into_iter().map(line).collect()
        };
        assert_eq!(samples(), ["u c Readiness successful 2", "u c Readiness failed 1", "v c Liveness unknown 1"]);
        probes.remove("u");
        // The result of a probe that was in flight when its pod was removed is discarded.
        results.count(None);
        assert_eq!(samples(), ["v c Liveness unknown 1"]);
    }
}
