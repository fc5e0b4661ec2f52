//! Periodic kubelet work: eviction signals, log rotation and image garbage collection.
//!
//! ```text
//!   disk pressure ──> remove dead containers ──> remove unused images ──> measure again
//!                                                                            │ still below a threshold
//!                                                                            v
//!                                evict one pod, if it is this node's turn ──> wait for its cleanup
//! ```

mod dead;
mod images;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use apimachinery::Value;
use controller::EventType;
use node_api::cri::v1;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::blocking;
use crate::context::Context;
use crate::eviction::local::{self, PodDiskUsage};
use crate::eviction::turns::{self, Turns};
use crate::eviction::{self, Candidate, Short, SignalObservation, Signals};
use crate::node::{NodeConditions, Pressure};
use crate::plan::Cause;
use crate::pod::Pod;
use crate::pods::{Eviction, PodTable};
use crate::runtime_status::labels;
use crate::usage::{Disk, DiskUsage, NodeUsage, disk_taken};

/// Interval of eviction checks, as upstream.
const EVERY: Duration = Duration::from_secs(10);
/// Interval of image garbage collection.
const IMAGES_EVERY: Duration = Duration::from_secs(300);
/// Timeout for the removal of an evicted pod's containers and volumes, after its grace period.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The dependencies of housekeeping.
pub(crate) struct Housekeeping {
    pub context: Arc<Context>,
    /// The pods on this node.
    pub known: PodTable,
    /// Receives evictions.
    pub evictions: mpsc::Sender<Eviction>,
    /// Receives the node's pressure conditions.
    pub node_conditions: Arc<watch::Sender<NodeConditions>>,
}

/// Runs housekeeping forever.
pub(crate) async fn run(it: Housekeeping) {
    let mut unused: BTreeMap<String, Instant> = BTreeMap::new();
    let mut images_at = Instant::now();
    let mut relieved_at: Option<Instant> = None;
    let thresholds = eviction::thresholds(&it.context.config);
    let mut memory = eviction::Memory::default();
    let mut turns = join_turns(&it.context);
    loop {
        tokio::time::sleep(EVERY).await;
        let mut evaluation = memory.evaluate(&thresholds, &signals(&it.context), component_base::clock::now());
        let now = evaluation.pressure.clone();
        if now != Pressure::default() {
            relieved_at = Some(Instant::now() + it.context.config.eviction_pressure_transition);
            it.publish_pressure(&now);
        } else if relieved_at.is_none_or(|at| Instant::now() >= at) {
            it.publish_pressure(&now);
        }
        if now.disk {
            dead::collect(&it.context, &it.known.all()).await;
        }
        if Instant::now() >= images_at || now.disk {
            images_at = Instant::now() + IMAGES_EVERY;
            images::collect(&it.context, &mut unused, now.disk).await;
            // The signals are measured again, so that no pod is evicted for space that is now available.
            evaluation = memory.evaluate(&thresholds, &signals(&it.context), component_base::clock::now());
        }
        evict(&it, evaluation.due.first(), turns.as_mut()).await;
        hold_to_limits(&it).await;
        rotate_logs(&it.context).await;
    }
}

/// Joins the eviction order of kubelets that share this disk; `None` if that fails.
fn join_turns(context: &Context) -> Option<Turns> {
    let (root, node) = (&context.config.root_dir, &context.config.node_name);
    let joined = blocking::in_place(|| Turns::enlist(Path::new(turns::DIR), root, node));
    joined
        .inspect_err(|error| {
            tracing::warn!(dir = turns::DIR, %error, "failed to coordinate evictions with other nodes of this host");
        })
        .ok()
}

impl Housekeeping {
    fn publish_pressure(&self, pressure: &Pressure) {
        self.node_conditions.send_if_modified(|known| {
            let changed = known.pressure != *pressure;
            known.pressure = pressure.clone();
            changed
        });
    }

    /// Evicts a pod. `exit_sender` receives a message when its containers have exited and its cleanup was attempted.
    async fn evict(
        &self,
        pod: Pod<'_>,
        message: String,
        grace_seconds: i64,
        exit_sender: Option<mpsc::Sender<String>>,
    ) {
        tracing::warn!(pod = pod.described(), message, "evicting a pod");
        self.context.event_sink(pod).pod(EventType::Warning, "Evicted", &message);
        let cause = Cause::Failed { reason: "Evicted".to_owned(), message };
        let eviction = Eviction { uid: pod.uid().to_owned(), cause, grace_seconds, exit_sender };
        // A closed channel means that the kubelet is stopping.
        let _ = self.evictions.send(eviction).await;
    }

    /// Returns the pods that may still use resources.
    fn active(&self) -> Vec<Arc<Value>> {
        let mut pods = self.known.all();
        pods.retain(|pod| Pod(pod).is_active());
        pods
    }
}

fn signals(context: &Context) -> Signals {
    let (usage, disk) = (NodeUsage::read(), Disk::of(&context.config.root_dir));
    let bytes = SignalObservation { available: disk.available, capacity: disk.capacity };
    let files = SignalObservation { available: disk.inodes_free, capacity: disk.inodes };
    Signals::from([
        ("memory.available", SignalObservation { available: usage.memory_available, capacity: usage.memory_total }),
        ("nodefs.available", bytes),
        ("nodefs.inodesFree", files),
        ("imagefs.available", bytes),
        ("imagefs.inodesFree", files),
        (
            "pid.available",
            SignalObservation { available: usage.pids_max.saturating_sub(usage.pids), capacity: usage.pids_max },
        ),
    ])
}

/// Evicts at most one pod and waits until its resources are free. The next check decides whether to evict another one.
async fn evict(it: &Housekeeping, short: Option<&Short>, turns: Option<&mut Turns>) {
    let pods = it.active();
    let candidates = match short {
        Some(short) => candidates(it, short, &pods).await,
        None => Vec::new(),
    };
    let victim = short.and_then(|short| Some((short, eviction::victim(short, &candidates)?)));
    let of_disk = victim.filter(|(short, _)| eviction::is_of_disk(&short.signal));
    let turn = turns.map_or(Ok(true), |turns| {
        blocking::in_place(|| match of_disk {
            Some((_, (_, rank))) => turns.claim_turn(rank, SystemTime::now()),
            None => turns.pass_turn().map(|()| true),
        })
    });
    let turn = turn.unwrap_or_else(|error| {
        tracing::warn!(dir = turns::DIR, %error, "failed to coordinate evictions with other nodes of this host");
        true
    });
    let Some((short, (victim, _))) = victim.filter(|_| turn) else { return };
    let grace_seconds = eviction::grace_seconds(short, victim.pod, &it.context.config);
    let (exit_sender, mut ends) = mpsc::channel(1);
    it.evict(victim.pod, eviction::message(short, &victim), grace_seconds, Some(exit_sender)).await;
    let timeout = Duration::from_secs(grace_seconds.max(0).unsigned_abs()) + CLEANUP_TIMEOUT;
    if tokio::time::timeout(timeout, ends.recv()).await.is_err() {
        tracing::warn!(pod = victim.pod.described(), ?timeout, "an evicted pod is not cleaned up yet");
    }
}

/// Returns the pods with their usage of the short resource.
async fn candidates<'a>(it: &Housekeeping, short: &Short, pods: &'a [Arc<Value>]) -> Vec<Candidate<'a>> {
    let Some(stats) = pod_stats(&it.context).await else { return Vec::new() };
    let mut candidates = Vec::new();
    for pod in pods {
        let (context, shared, of_pod) = (Arc::clone(&it.context), Arc::clone(pod), stats.get(Pod(pod).uid()).cloned());
        let linux = of_pod.as_ref().and_then(|stats| stats.linux.clone()).unwrap_or_default();
        // Measuring walks all files of a pod, so it is done only for disk signals.
        let disk = if eviction::is_of_disk(&short.signal) {
            let measure = move || measure(&context, Pod(&shared), of_pod.as_ref()).total(Pod(&shared));
            tokio::task::spawn_blocking(measure).await.expect("measuring does not panic")
        } else {
            DiskUsage::default()
        };
        let memory = linux.memory.map_or(0, |memory| number(memory.working_set_bytes.as_ref()));
        let processes = linux.process.map_or(0, |process| number(process.process_count.as_ref()));
        candidates.push(Candidate { pod: Pod(pod), memory, disk, processes });
    }
    candidates
}

/// Evicts pods that exceed their ephemeral storage limits.
async fn hold_to_limits(it: &Housekeeping) {
    let mut pods = it.active();
    pods.retain(|pod| local::is_limited(Pod(pod)));
    if pods.is_empty() {
        return;
    }
    let Some(stats) = pod_stats(&it.context).await else { return };
    for pod in pods {
        let (context, stats) = (Arc::clone(&it.context), stats.get(Pod(&pod).uid()).cloned());
        let shared = Arc::clone(&pod);
        let measure = move || measure(&context, Pod(&shared), stats.as_ref());
        let written = tokio::task::spawn_blocking(measure).await.expect("measuring does not panic");
        if let Some(message) = local::excess(Pod(&pod), &written) {
            it.evict(Pod(&pod), message, 1, None).await;
        }
    }
}

fn measure(context: &Context, pod: Pod<'_>, stats: Option<&v1::PodSandboxStats>) -> PodDiskUsage {
    let volumes = local::empty_dirs(pod)
        .map(|name| (name.to_owned(), disk_taken(&context.volumes.empty_dir_of(pod.uid(), name))))
        .collect();
    let roots: BTreeMap<String, DiskUsage> = stats
        .and_then(|stats| stats.linux.as_ref())
        .into_iter()
        .flat_map(|linux| &linux.containers)
        .filter_map(|container| {
            let name = container.attributes.as_ref()?.metadata.as_ref()?.name.clone();
            let layer = container.writable_layer.as_ref()?;
            let (bytes, inodes) = (number(layer.used_bytes.as_ref()), number(layer.inodes_used.as_ref()));
            Some((name, DiskUsage { bytes, inodes }))
        })
        .collect();
    let logs = context.logs.of(pod);
    let of = |name: &str| roots.get(name).copied().unwrap_or_default() + disk_taken(&logs.join(name));
    let containers = pod.containers().map(|container| (container.name().to_owned(), of(container.name()))).collect();
    PodDiskUsage { volumes, containers, own: context.volumes.own_files(pod.uid()) }
}

/// Returns the runtime's pod statistics by pod UID.
async fn pod_stats(context: &Context) -> Option<BTreeMap<String, v1::PodSandboxStats>> {
    let response =
        context.runtime.runtime.clone().list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest::default()).await;
    let stats = response.ok()?.into_inner().stats.into_iter();
    let uid = |stats: &v1::PodSandboxStats| Some(stats.attributes.as_ref()?.metadata.as_ref()?.uid.clone());
    Some(stats.filter_map(|stats| Some((uid(&stats)?, stats))).collect())
}

fn number(value: Option<&v1::UInt64Value>) -> u64 {
    value.map_or(0, |value| value.value)
}

/// Rotates logs that exceed the maximum size.
async fn rotate_logs(context: &Context) {
    let state = Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() });
    let filter = Some(v1::ContainerFilter { state, ..Default::default() });
    let mut runtime = context.runtime.runtime.clone();
    let Ok(listed) = runtime.list_containers(v1::ListContainersRequest { filter }).await else { return };
    for container in listed.into_inner().containers {
        let log = log_of(context, &container);
        let (bytes_max, files_max) = (context.config.log_bytes_max, context.config.log_files_max);
        let log_path = log.display().to_string();
        match blocking::run(move || rotate(&log, bytes_max, files_max)).await {
            Ok(false) => {}
            Ok(true) => {
                let request = v1::ReopenContainerLogRequest { container_id: container.id.clone() };
                if let Err(status) = runtime.reopen_container_log(request).await {
                    tracing::warn!(id = container.id, status = status.message(), "failed to reopen a container log");
                }
            }
            Err(error) => tracing::warn!(log = log_path, %error, "failed to rotate a container log"),
        }
    }
}

/// Returns the path of a container's log.
fn log_of(context: &Context, container: &v1::Container) -> PathBuf {
    let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
    let attempt = container.annotations.get(labels::RESTART_COUNT).cloned().unwrap_or_default();
    let dir = context.logs.named(&label(labels::POD_NAMESPACE), &label(labels::POD_NAME), &label(labels::POD_UID));
    dir.join(label(labels::CONTAINER_NAME)).join(format!("{attempt}.log"))
}

/// Rotates a log if it exceeds the maximum size. Returns whether it was rotated.
fn rotate(log: &Path, bytes_max: u64, files_max: usize) -> std::io::Result<bool> {
    let large = std::fs::symlink_metadata(log).is_ok_and(|found| found.is_file() && found.len() > bytes_max);
    if large { set_aside(log, files_max).map(|()| true) } else { Ok(false) }
}

/// Renames a log with a timestamp and removes the oldest rotated logs.
// DEVIATION: rotated logs are not compressed.
fn set_aside(log: &Path, files_max: usize) -> std::io::Result<()> {
    let name = log.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let dir = log.parent().unwrap_or(Path::new("/"));
    let stamp = component_base::clock::now().to_string().replace([':', '-'], "").replace('T', "-").replace('Z', "");
    std::fs::rename(log, dir.join(format!("{name}.{stamp}")))?;
    let beginning = format!("{name}.");
    let mut aside: Vec<_> = std::fs::read_dir(dir)?
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&beginning)))
        .map(|entry| entry.path())
        .collect();
    aside.sort();
    // The current log counts towards the maximum.
    let keep = files_max.saturating_sub(1);
    let drop = aside.len().saturating_sub(keep);
    aside.iter().take(drop).try_for_each(std::fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_logs_are_retained_up_to_the_maximum() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for n in 0..4 {
            std::fs::write(dir.path().join(format!("0.log.2026010{n}-000000")), "").unwrap();
        }
        std::fs::write(&log, "now").unwrap();
        set_aside(&log, 3).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left.len(), 2, "{left:?}");
        assert_eq!(left[0], "0.log.20260103-000000");
    }
}
