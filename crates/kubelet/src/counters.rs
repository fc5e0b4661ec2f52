//! How often probes were answered how, for monitoring: of each container, as long as its pod is here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::pod::Pod;
use crate::probe::{Kind, Problem};

/// The words for what a probe may come to, in the order in which they are counted.
const RESULTS: [&str; 3] = ["successful", "failed", "unknown"];

/// A probe as monitoring names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// The pod's identifier.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// The container in it.
    pub container: String,
    /// What the probe is for.
    pub kind: Kind,
}

/// The answers to one probe.
#[derive(Debug, Default)]
pub struct Answers([AtomicU64; RESULTS.len()]);

/// The answers to all probes of a node. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Probes(Arc<Mutex<BTreeMap<Probe, Arc<Answers>>>>);

impl Answers {
    /// Counts an answer.
    pub fn count(&self, problem: Option<&Problem>) {
        let result = match problem {
            None => 0,
            Some(Problem::Failed(_)) => 1,
            Some(Problem::Unasked(_)) => 2,
        };
        self.0[result].fetch_add(1, Ordering::Relaxed);
    }
}

impl Probes {
    /// Where the answers to a probe are counted, however often its container starts again.
    pub fn of(&self, pod: Pod<'_>, container: &str, kind: Kind) -> Arc<Answers> {
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

    /// Forgets a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|probe, _| probe.uid != uid);
    }

    /// How often probes were answered how; what never happened is not told.
    pub fn all(&self) -> Vec<(Probe, &'static str, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = all.iter().flat_map(|(probe, answers)| {
            let counts = RESULTS.into_iter().zip(&answers.0);
            counts.map(move |(result, count)| (probe.clone(), result, count.load(Ordering::Relaxed)))
        });
        told.filter(|(_, _, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    #[test]
    fn answers_are_counted_by_container_and_forgotten_with_their_pod() {
        let pods = ["u", "v"].map(|uid| value!({"metadata": {"name": "p", "namespace": "n", "uid": uid}}));
        let probes = Probes::default();
        let answers = probes.of(Pod(&pods[0]), "c", Kind::Readiness);
        answers.count(None);
        probes.of(Pod(&pods[0]), "c", Kind::Readiness).count(None);
        answers.count(Some(&Problem::Failed(String::new())));
        probes.of(Pod(&pods[1]), "c", Kind::Liveness).count(Some(&Problem::Unasked(String::new())));
        let told = || -> Vec<String> {
            let line = |(probe, result, count): (Probe, &str, u64)| {
                format!("{} {} {} {result} {count}", probe.uid, probe.container, probe.kind.word())
            };
            probes.all().into_iter().map(line).collect()
        };
        assert_eq!(told(), ["u c Readiness successful 2", "u c Readiness failed 1", "v c Liveness unknown 1"]);
        probes.forget("u");
        // A question that was on its way is answered to nobody.
        answers.count(None);
        assert_eq!(told(), ["v c Liveness unknown 1"]);
    }
}
