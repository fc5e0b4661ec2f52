//! The machine is shut down: pods end in order of their importance, each with the time that is left for it.
//!
//! ```text
//!   not ready, takes no more pods ──> the least important end ──> … ──> the critical end ──> the process may go
//! ```

use std::sync::Arc;
use std::time::Duration;

use client::cache::Reader;
use machinery::Value;
use tokio::sync::{mpsc, watch};

use crate::config::Config;
use crate::node::Situation;
use crate::plan::Cause;
use crate::pod::Pod;
use crate::pods::{Eviction, Known};

/// From here on a pod is critical to its cluster.
const SYSTEM_CRITICAL: i64 = 2_000_000_000;
/// How long the API server may take to hear what became of the pods.
const REPORTS: Duration = Duration::from_secs(5);

/// Pods that end together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// How long they may take.
    pub grace: Duration,
    /// Which ones.
    pub uids: Vec<String>,
}

/// What shutting down takes.
pub struct Shutdown {
    /// The pods that are here.
    pub known: Known,
    /// The same as the API server has them.
    pub pods: Reader<Arc<Value>>,
    /// Where pods are put out.
    pub evictions: mpsc::Sender<Eviction>,
    /// Where it is told how the node is.
    pub situation: Arc<watch::Sender<Situation>>,
}

/// Whether pods are given time at all.
pub fn is_wanted(config: &Config) -> bool {
    !config.shutdown_grace.is_zero() || !config.shutdown_grace_by_priority.is_empty()
}

/// In which groups pods end, the first one first.
pub fn groups(config: &Config, pods: &[Pod<'_>]) -> Vec<Group> {
    let mut levels: Vec<(i64, Duration)> = config
        .shutdown_grace_by_priority
        .iter()
        .map(|(priority, seconds)| (*priority, Duration::from_secs(*seconds)))
        .collect();
    if levels.is_empty() {
        let others = config.shutdown_grace.saturating_sub(config.shutdown_grace_critical);
        levels = vec![(0, others), (SYSTEM_CRITICAL, config.shutdown_grace_critical)];
    }
    let mut groups: Vec<Group> = levels.iter().map(|(_, grace)| Group { grace: *grace, uids: Vec::new() }).collect();
    for pod in pods.iter().filter(|pod| !pod.is_ended()) {
        let priority = pod.spec()["priority"].as_int().unwrap_or(0);
        // Whoever is below all levels belongs to the lowest.
        let level = levels.iter().rposition(|(from, _)| *from <= priority).unwrap_or(0);
        groups[level].uids.push(pod.uid().to_owned());
    }
    groups.retain(|group| !group.uids.is_empty());
    groups
}

impl Shutdown {
    /// Ends all pods; returns when they have ended or their time is over.
    pub async fn run(self, config: &Config) {
        self.situation.send_modify(|situation| situation.shutting_down = true);
        let pods = self.known.all();
        let views: Vec<Pod<'_>> = pods.iter().map(|pod| Pod(pod)).collect();
        for group in groups(config, &views) {
            tracing::info!(pods = group.uids.len(), seconds = group.grace.as_secs(), "ends pods before the shutdown");
            if tokio::time::timeout(group.grace, self.end(&group, &views)).await.is_err() {
                tracing::warn!("some pods have not ended in their time");
            }
        }
        let _ = tokio::time::timeout(REPORTS, self.reported()).await;
    }

    async fn end(&self, group: &Group, pods: &[Pod<'_>]) {
        let (ended, mut ends) = mpsc::channel(group.uids.len());
        for uid in &group.uids {
            let asked = pods.iter().find(|pod| pod.uid() == uid).map_or(0, |pod| pod.grace_seconds());
            let cause = Cause::Failed {
                reason: "Terminated".to_owned(),
                message: "Pod was terminated in response to imminent node shutdown.".to_owned(),
            };
            let grace_seconds = asked.min(i64::try_from(group.grace.as_secs()).unwrap_or(i64::MAX));
            let eviction = Eviction { uid: uid.clone(), cause, grace_seconds, ended: Some(ended.clone()) };
            if self.evictions.send(eviction).await.is_err() {
                return;
            }
        }
        drop(ended);
        while ends.recv().await.is_some() {}
    }

    /// Waits until the API server has every pod's end.
    async fn reported(&self) {
        let mut pods = self.pods.clone();
        let all = |pods: &Reader<Arc<Value>>| {
            let snapshot = pods.snapshot();
            snapshot.objects.iter().all(|entry| Pod(&entry.value).is_ended() || Pod(&entry.value).is_mirror())
        };
        while !all(&pods) && pods.advanced().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    #[test]
    fn the_least_important_pods_end_first_and_the_critical_last() {
        let pod = |name: &str, priority: i64| value!({"metadata": {"uid": name}, "spec": {"priority": priority}});
        let pods = [pod("vital", 2_000_000_000), pod("plain", 0), pod("dear", 1000), pod("cheap", -5)];
        let views: Vec<Pod<'_>> = pods.iter().map(Pod).collect();
        let shown = |config: &Config| -> Vec<String> {
            let shown = |group: &Group| format!("{} {}", group.grace.as_secs(), group.uids.join(" "));
            groups(config, &views).iter().map(shown).collect()
        };
        let mut config = Config::new("n");
        assert!(!is_wanted(&config));
        config.shutdown_grace = Duration::from_secs(30);
        config.shutdown_grace_critical = Duration::from_secs(10);
        assert!(is_wanted(&config));
        assert_eq!(shown(&config), ["20 plain dear cheap", "10 vital"]);
        config.shutdown_grace_by_priority = vec![(0, 3), (500, 2), (1_000_000, 1)];
        assert_eq!(shown(&config), ["3 plain cheap", "2 dear", "1 vital"]);
    }
}
