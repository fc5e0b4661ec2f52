//! What must be looked at now and then: what the node is short of, logs that grow, images that nobody uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri::v1;
use machinery::Value;
use reconcile::EventType;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::context::Context;
use crate::eviction::{self, Candidate, Left, Short, Signals};
use crate::node::Pressure;
use crate::observed::labels;
use crate::plan::Cause;
use crate::pod::Pod;
use crate::pods::{Eviction, Known};
use crate::usage::{Disk, NodeUsage};

/// How often the node is looked at, as upstream does.
const EVERY: Duration = Duration::from_secs(10);
/// How often images are looked at.
const IMAGES_EVERY: Duration = Duration::from_secs(300);

/// What housekeeping takes.
pub struct Housekeeping {
    /// What all workers share.
    pub context: Arc<Context>,
    /// The pods that are here.
    pub known: Known,
    /// Where pods are put out.
    pub evictions: mpsc::Sender<Eviction>,
    /// Where it is told what the node is short of.
    pub pressure: watch::Sender<Pressure>,
}

/// Keeps house for ever.
pub async fn run(it: Housekeeping) {
    let mut unused: BTreeMap<String, Instant> = BTreeMap::new();
    let mut images_at = Instant::now() + IMAGES_EVERY;
    let mut relieved_at: Option<Instant> = None;
    loop {
        tokio::time::sleep(EVERY).await;
        let short = eviction::short(&it.context.config.eviction_hard, &signals(&it.context));
        let now = eviction::pressure(&short);
        if now != Pressure::default() {
            relieved_at = Some(Instant::now() + it.context.config.eviction_pressure_transition);
            it.pressure.send_if_modified(|known| std::mem::replace(known, now.clone()) != now);
        } else if relieved_at.is_none_or(|at| Instant::now() >= at) {
            it.pressure.send_if_modified(|known| std::mem::take(known) != Pressure::default());
        }
        if Instant::now() >= images_at || now.disk {
            images_at = Instant::now() + IMAGES_EVERY;
            collect_images(&it.context, &mut unused, now.disk).await;
        }
        if let Some(short) = short.first() {
            evict(&it, short).await;
        }
        rotate_logs(&it.context).await;
    }
}

fn signals(context: &Context) -> Signals {
    let (usage, disk) = (NodeUsage::read(), Disk::of(&context.config.root_dir));
    let bytes = Left { available: disk.available, capacity: disk.capacity };
    let files = Left { available: disk.inodes_free, capacity: disk.inodes };
    Signals::from([
        ("memory.available", Left { available: usage.memory_available, capacity: usage.memory_total }),
        ("nodefs.available", bytes),
        ("nodefs.inodesFree", files),
        ("imagefs.available", bytes),
        ("imagefs.inodesFree", files),
        ("pid.available", Left { available: usage.pids_max.saturating_sub(usage.pids), capacity: usage.pids_max }),
    ])
}

/// Puts one pod out; what that gives back is seen the next time.
async fn evict(it: &Housekeeping, short: &Short) {
    let stats =
        it.context.runtime.runtime.clone().list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest::default()).await;
    let Ok(stats) = stats.map(|answer| answer.into_inner().stats) else { return };
    let used = |uid: &str| {
        let found = stats.iter().find(|stats| {
            let metadata = stats.attributes.as_ref().and_then(|attributes| attributes.metadata.as_ref());
            metadata.is_some_and(|metadata| metadata.uid == uid)
        });
        let linux = found.and_then(|stats| stats.linux.clone()).unwrap_or_default();
        let value = |value: Option<&v1::UInt64Value>| value.map_or(0, |value| value.value);
        let memory = linux.memory.map_or(0, |memory| value(memory.working_set_bytes.as_ref()));
        let layers = linux.containers.iter().filter_map(|container| container.writable_layer.as_ref());
        (memory, layers.map(|layer| value(layer.used_bytes.as_ref())).sum())
    };
    let pods: Vec<Arc<Value>> = it.known.all();
    let candidates: Vec<Candidate<'_>> = pods
        .iter()
        .map(|pod| {
            let (memory, disk) = used(Pod(pod).uid());
            Candidate { pod: Pod(pod), memory, disk }
        })
        .collect();
    let Some(victim) = eviction::victim(short, &candidates) else { return };
    let message = eviction::message(short, &victim);
    tracing::warn!(pod = victim.pod.described(), message, "evicts a pod");
    it.context.teller(victim.pod).pod(EventType::Warning, "Evicted", &message);
    let cause = Cause::Failed { reason: "Evicted".to_owned(), message };
    let eviction = Eviction { uid: victim.pod.uid().to_owned(), cause, grace_seconds: 1 };
    // The next look finds it again if nobody listened.
    let _ = it.evictions.send(eviction).await;
}

/// Removes images that nobody has used for a while, the longest unused first, when the disk is too full.
async fn collect_images(context: &Context, unused: &mut BTreeMap<String, Instant>, pressing: bool) {
    let mut client = context.runtime.images.clone();
    let images = client.list_images(v1::ListImagesRequest::default()).await;
    let containers = context.runtime.runtime.clone().list_containers(v1::ListContainersRequest::default()).await;
    let (Ok(images), Ok(containers)) = (images, containers) else { return };
    let used: BTreeSet<String> = containers
        .into_inner()
        .containers
        .into_iter()
        .flat_map(|container| [container.image_id, container.image_ref, container.image.unwrap_or_default().image])
        .collect();
    let mut removable: Vec<(Instant, v1::Image)> = Vec::new();
    let mut seen = BTreeSet::new();
    for image in images.into_inner().images {
        let names = image.repo_digests.iter().chain(&image.repo_tags).chain([&image.id]);
        if image.pinned || names.into_iter().any(|name| used.contains(name)) {
            continue;
        }
        seen.insert(image.id.clone());
        removable.push((*unused.entry(image.id.clone()).or_insert_with(Instant::now), image));
    }
    unused.retain(|id, _| seen.contains(id));
    let disk = Disk::of(&context.config.root_dir);
    let percent = |bytes: u64| 100 * u128::from(bytes) / u128::from(disk.capacity.max(1));
    let taken = disk.capacity - disk.available;
    if !pressing && percent(taken) < context.config.image_gc_high.into() {
        return;
    }
    let goal = u128::from(disk.capacity) * u128::from(context.config.image_gc_low) / 100;
    let mut to_free = u128::from(taken).saturating_sub(goal);
    removable.sort_by_key(|(since, _)| *since);
    for (since, image) in removable {
        if to_free == 0 || since.elapsed() < context.config.image_gc_min_age {
            continue;
        }
        let spec = v1::ImageSpec { image: image.id.clone(), ..Default::default() };
        match client.remove_image(v1::RemoveImageRequest { image: Some(spec) }).await {
            Ok(_) => {
                tracing::info!(image = image.id, bytes = image.size, "removed an image that nobody uses");
                to_free = to_free.saturating_sub(image.size.into());
            }
            Err(status) => tracing::warn!(image = image.id, status = status.message(), "an image cannot be removed"),
        }
    }
}

/// Sets logs aside that have grown too large.
async fn rotate_logs(context: &Context) {
    let state = Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() });
    let filter = Some(v1::ContainerFilter { state, ..Default::default() });
    let mut runtime = context.runtime.runtime.clone();
    let Ok(listed) = runtime.list_containers(v1::ListContainersRequest { filter }).await else { return };
    for container in listed.into_inner().containers {
        let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
        let dir = format!("{}_{}_{}", label(labels::POD_NAMESPACE), label(labels::POD_NAME), label(labels::POD_UID));
        let attempt = container.annotations.get(labels::RESTART_COUNT).cloned().unwrap_or_default();
        let log =
            context.config.pod_logs_dir.join(dir).join(label(labels::CONTAINER_NAME)).join(format!("{attempt}.log"));
        let large = std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > context.config.log_bytes_max);
        if !large {
            continue;
        }
        match set_aside(&log, context.config.log_files_max) {
            Ok(()) => {
                let request = v1::ReopenContainerLogRequest { container_id: container.id.clone() };
                if let Err(status) = runtime.reopen_container_log(request).await {
                    tracing::warn!(id = container.id, status = status.message(), "a log cannot be opened again");
                }
            }
            Err(error) => tracing::warn!(log = %log.display(), %error, "a log cannot be set aside"),
        }
    }
}

/// Renames a log after the time and removes the oldest of those set aside before.
// DEVIATION: logs that are set aside are not compressed.
fn set_aside(log: &Path, files_max: usize) -> std::io::Result<()> {
    let name = log.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let dir = log.parent().unwrap_or(Path::new("/"));
    let stamp = driver::clock::now().to_string().replace([':', '-'], "").replace('T', "-").replace('Z', "");
    std::fs::rename(log, dir.join(format!("{name}.{stamp}")))?;
    let beginning = format!("{name}.");
    let mut aside: Vec<_> = std::fs::read_dir(dir)?
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&beginning)))
        .map(|entry| entry.path())
        .collect();
    aside.sort();
    // The one that is written counts too.
    let keep = files_max.saturating_sub(1);
    let drop = aside.len().saturating_sub(keep);
    aside.iter().take(drop).try_for_each(std::fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_logs_are_kept() {
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
