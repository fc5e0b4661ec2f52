//! Graceful node shutdown: pods terminate in order of priority, each group with its own grace period.
//!
//! ```text
//!   not ready, admits no pods ──> lowest priorities terminate ──> … ──> critical pods terminate ──> the kubelet exits
//! ```

use std::sync::Arc;
use std::time::Duration;

use apimachinery::Value;
use client::cache::Reader;
use tokio::sync::{mpsc, watch};

use crate::config::Config;
use crate::node::NodeConditions;
use crate::plan::Cause;
use crate::pod::Pod;
use crate::pods::{Eviction, PodTable};

/// Lowest priority of a critical pod.
const SYSTEM_CRITICAL: i64 = 2_000_000_000;
/// Timeout for the final pod statuses to reach the API server.
const REPORTS: Duration = Duration::from_secs(5);

/// Pods that terminate together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub grace: Duration,
    pub uids: Vec<String>,
}

/// The dependencies of a shutdown.
pub struct Shutdown {
    /// The pods on this node.
    pub known: PodTable,
    /// The API server's pods of this node.
    pub pods: Reader<Arc<Value>>,
    /// Receives terminations.
    pub evictions: mpsc::Sender<Eviction>,
    /// Receives the shutdown state for the node status.
    pub node_conditions: Arc<watch::Sender<NodeConditions>>,
}

/// Whether a shutdown grace period is configured.
pub fn is_enabled(config: &Config) -> bool {
    !config.shutdown_grace.is_zero() || !config.shutdown_grace_by_priority.is_empty()
}

/// Groups pods by priority, in the order of their termination.
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
    for pod in pods.iter().filter(|pod| !pod.is_terminal()) {
        let priority = pod.spec()["priority"].as_int().unwrap_or(0);
        // Pods below all levels belong to the lowest.
        let level = levels.iter().rposition(|(from, _)| *from <= priority).unwrap_or(0);
        groups[level].uids.push(pod.uid().to_owned());
    }
    groups.retain(|group| !group.uids.is_empty());
    groups
}

impl Shutdown {
    /// Terminates all pods, each group within its grace period. Then waits up to `REPORTS` for their final statuses.
    pub async fn run(self, config: &Config) {
        self.node_conditions.send_modify(|node_conditions| node_conditions.shutting_down = true);
        let pods = self.known.all();
        let views: Vec<Pod<'_>> = pods.iter().map(|pod| Pod(pod)).collect();
        for group in groups(config, &views) {
            tracing::info!(
                pods = group.uids.len(),
                seconds = group.grace.as_secs(),
                "terminating pods before shutdown"
            );
            if tokio::time::timeout(group.grace, self.end(&group, &views)).await.is_err() {
                tracing::warn!("some pods did not terminate within their grace period");
            }
        }
        let _ = tokio::time::timeout(REPORTS, self.reported()).await;
    }

    async fn end(&self, group: &Group, pods: &[Pod<'_>]) {
        let (exit_sender, mut ends) = mpsc::channel(group.uids.len());
        for uid in &group.uids {
            let requested = pods.iter().find(|pod| pod.uid() == uid).map_or(0, |pod| pod.grace_seconds());
            let cause = Cause::Failed {
                reason: "Terminated".to_owned(),
                message: "Pod was terminated in response to imminent node shutdown.".to_owned(),
            };
            let grace_seconds = requested.min(i64::try_from(group.grace.as_secs()).unwrap_or(i64::MAX));
            let eviction = Eviction { uid: uid.clone(), cause, grace_seconds, exit_sender: Some(exit_sender.clone()) };
            if self.evictions.send(eviction).await.is_err() {
                return;
            }
        }
        drop(exit_sender);
        while ends.recv().await.is_some() {}
    }

    /// Waits until the API server has the final status of every pod.
    async fn reported(&self) {
        let mut pods = self.pods.clone();
        let all = |pods: &Reader<Arc<Value>>| {
            let snapshot = pods.snapshot();
            snapshot.objects.iter().all(|entry| Pod(&entry.value).is_terminal() || Pod(&entry.value).is_mirror())
        };
        while !all(&pods) && pods.advanced().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn lowest_priority_pods_terminate_first_and_critical_pods_last() {
        let pod = |name: &str, priority: i64| value!({"metadata": {"uid": name}, "spec": {"priority": priority}});
        let pods = [pod("vital", 2_000_000_000), pod("plain", 0), pod("dear", 1000), pod("cheap", -5)];
        let views: Vec<Pod<'_>> = pods.iter().map(Pod).collect();
        let render = |config: &Config| -> Vec<String> {
            let render = |group: &Group| format!("{} {}", group.grace.as_secs(), group.uids.join(" "));
            groups(config, &views).iter().map(render).collect()
        };
        let mut config = Config::new("n");
        assert!(!is_enabled(&config));
        config.shutdown_grace = Duration::from_secs(30);
        config.shutdown_grace_critical = Duration::from_secs(10);
        assert!(is_enabled(&config));
        assert_eq!(render(&config), ["20 plain dear cheap", "10 vital"]);
        config.shutdown_grace_by_priority = vec![(0, 3), (500, 2), (1_000_000, 1)];
        assert_eq!(render(&config), ["3 plain cheap", "2 dear", "1 vital"]);
    }
}
