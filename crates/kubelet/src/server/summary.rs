//! `/stats/summary`: resource usage of the node and its pods.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use apimachinery::{Object, Value, value};
use component_base::clock;
use http::{Response, StatusCode};
use node_api::cri::v1;

use super::collected::{RuntimeStats, amount};
use super::{Body, json_response, text};
use crate::context::Context;
use crate::pod::Pod;
use crate::pods::PodTable;
use crate::runtime_status::{labels, time};
use crate::usage::{Disk, DiskUsage, NodeUsage, disk_taken};

/// Returns the current usage of the node and its pods.
pub(super) async fn summary(context: &Arc<Context>, known: &PodTable) -> Response<Body> {
    let collected = match RuntimeStats::of(&context.runtime).await {
        Ok(collected) => collected,
        Err(status) => return text(StatusCode::INTERNAL_SERVER_ERROR, status.message()),
    };
    let (context, known) = (Arc::clone(context), known.all());
    // Disk usage is measured by walking all files.
    let summed = tokio::task::spawn_blocking(move || {
        let disk = Disk::of(&context.config.root_dir);
        let node = node(&context, &NodeUsage::read(), disk);
        let known: HashMap<&str, Pod<'_>> = known.iter().map(|pod| (Pod(pod).uid(), Pod(pod))).collect();
        let summarize = |stats: &v1::PodSandboxStats| {
            let uid = stats.attributes.as_ref().and_then(|attributes| attributes.metadata.as_ref());
            let pod = uid.and_then(|metadata| known.get(metadata.uid.as_str()).copied());
            let files = pod.map(|pod| Files::of(&context, pod)).unwrap_or_default();
            pod_summary(stats, &collected, &files, disk)
        };
        let pods: Vec<Value> = collected.stats.iter().map(summarize).collect();
        value!({"node": node, "pods": pods})
    });
    json_response(&summed.await.expect("counting does not panic"))
}

/// Disk usage of a pod.
#[derive(Default)]
struct Files {
    volumes: Vec<Volume>,
    /// Logs by container.
    logs: HashMap<String, DiskUsage>,
    /// The hosts file and the termination logs.
    own: DiskUsage,
}

struct Volume {
    name: String,
    claim: Option<(String, String)>,
    /// Whether the volume counts as ephemeral storage.
    local: bool,
    taken: DiskUsage,
    disk: Disk,
}

impl Files {
    fn of(context: &Context, pod: Pod<'_>) -> Self {
        let logs = context.logs.of(pod);
        let of_container = |name: &str| (name.to_owned(), disk_taken(&logs.join(name)));
        Self {
            volumes: volumes(&context.volumes.pod_dir(pod.uid()).join("volumes"), pod),
            logs: pod.containers().map(|container| of_container(container.name())).collect(),
            own: context.volumes.own_files(pod.uid()),
        }
    }
}

/// Measures a pod's volumes, whose directories are `<plugin>/<name>`.
fn volumes(dir: &Path, pod: Pod<'_>) -> Vec<Volume> {
    let below = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_node = fs::metadata(dir).map(|found| std::os::unix::fs::MetadataExt::dev(&found)).ok();
    let mut all: Vec<Volume> = below(dir)
        .flat_map(|kind| below(&kind).collect::<Vec<_>>())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            let spec = pod.list("volumes").iter().find(|one| one.str_at(&["name"]) == Some(name.as_str()));
            let claim = spec.and_then(|spec| spec.str_at(&["persistentVolumeClaim", "claimName"]));
            let claim = claim.map(|claim| (claim.to_owned(), pod.namespace().to_owned()));
            let of_volume = fs::metadata(&path).map(|found| std::os::unix::fs::MetadataExt::dev(&found)).ok();
            let local = claim.is_none() && of_volume == of_node;
            Some(Volume { name, claim, local, taken: disk_taken(&path), disk: Disk::of(&path) })
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn node(context: &Context, usage: &NodeUsage, disk: Disk) -> Value {
    let now = clock::now().to_string();
    value!({"nodeName": (context.config.node_name.as_str()), "startTime": (usage.boot.to_string()),
        "cpu": {"time": (now.as_str()), "usageCoreNanoSeconds": (number(usage.cpu_nanos))},
        "memory": {"time": (now.as_str()), "availableBytes": (number(usage.memory_available)),
            "usageBytes": (number(usage.memory_total - usage.memory_free)),
            "workingSetBytes": (number(usage.memory_total - usage.memory_available))},
        "swap": {"time": (now.as_str()), "swapAvailableBytes": (number(usage.swap_free)),
            "swapUsageBytes": (number(usage.swap_total - usage.swap_free))},
        "fs": (disk_of(disk, &now)),
        "runtime": {"imageFs": (disk_of(disk, &now)), "containerFs": (disk_of(disk, &now))},
        "rlimit": {"time": (now.as_str()), "maxpid": (number(usage.pids_max)), "curproc": (number(usage.pids))}})
}

fn disk_of(disk: Disk, now: &str) -> Value {
    value!({"time": now, "availableBytes": (number(disk.available)), "capacityBytes": (number(disk.capacity)),
        "usedBytes": (number(disk.capacity - disk.free)), "inodesFree": (number(disk.inodes_free)),
        "inodes": (number(disk.inodes)), "inodesUsed": (number(disk.inodes - disk.inodes_free))})
}

/// Returns filesystem statistics with the usage of one part of the disk.
fn part_of(disk: Disk, taken: DiskUsage, now: &str) -> Value {
    let mut part = disk_of(disk, now);
    if let Some(part) = part.as_object_mut() {
        part.insert("usedBytes", number(taken.bytes));
        part.insert("inodesUsed", number(taken.inodes));
    }
    part
}

fn pod_summary(stats: &v1::PodSandboxStats, collected: &RuntimeStats, files: &Files, disk: Disk) -> Value {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let metadata = attributes.metadata.unwrap_or_default();
    let linux = stats.linux.clone().unwrap_or_default();
    let now = clock::now().to_string();
    let containers: Vec<Value> =
        linux.containers.iter().map(|container| container_of(container, collected, files, disk)).collect();
    let mut pod = Object::new();
    pod.insert("podRef", value!({"name": (metadata.name.as_str()), "namespace": (metadata.namespace.as_str()), "uid": (metadata.uid.as_str())}));
    pod.insert("startTime", time(collected.sandbox_at(&attributes.id)).to_string());
    pod.insert("containers", containers);
    pod.insert("cpu", cpu(linux.cpu.as_ref()));
    pod.insert("memory", memory(linux.memory.as_ref()));
    pod.insert("volume", files.volumes.iter().map(|volume| volume_of(volume, &now)).collect::<Vec<_>>());
    pod.insert("ephemeral-storage", part_of(disk, ephemeral(&linux.containers, files), &now));
    if let Some(swap) = swap(linux.containers.iter().filter_map(|container| container.swap.as_ref()), &now) {
        pod.insert("swap", swap);
    }
    if let Some(network) = linux.network.as_ref().and_then(|network| network.default_interface.as_ref()) {
        pod.insert("network", network_of(network, &now));
    }
    if let Some(process) = &linux.process {
        pod.insert("process_stats", value!({"process_count": (amount(process.process_count.as_ref()))}));
    }
    Value::Object(pod)
}

fn network_of(network: &v1::NetworkInterfaceUsage, now: &str) -> Value {
    value!({"time": now, "name": (network.name.as_str()),
        "rxBytes": (amount(network.rx_bytes.as_ref())), "txBytes": (amount(network.tx_bytes.as_ref())),
        "rxErrors": (amount(network.rx_errors.as_ref())), "txErrors": (amount(network.tx_errors.as_ref()))})
}

fn volume_of(volume: &Volume, now: &str) -> Value {
    let mut volume_stats = part_of(volume.disk, volume.taken, now);
    if let Some(volume_stats) = volume_stats.as_object_mut() {
        volume_stats.insert("name", volume.name.as_str());
        if let Some((name, namespace)) = &volume.claim {
            volume_stats.insert("pvcRef", value!({"name": (name.as_str()), "namespace": (namespace.as_str())}));
        }
    }
    volume_stats
}

/// Returns the ephemeral storage of a pod: writable layers, logs, local volumes, the hosts file and termination logs.
fn ephemeral(containers: &[v1::ContainerStats], files: &Files) -> DiskUsage {
    let layers = containers.iter().filter_map(|container| container.writable_layer.as_ref());
    let layers = layers.map(|layer| {
        let taken = |value: Option<&v1::UInt64Value>| value.map_or(0, |value| value.value);
        DiskUsage { bytes: taken(layer.used_bytes.as_ref()), inodes: taken(layer.inodes_used.as_ref()) }
    });
    let volumes = files.volumes.iter().filter(|volume| volume.local).map(|volume| volume.taken);
    layers.chain(volumes).chain(files.logs.values().copied()).chain([files.own]).fold(
        DiskUsage::default(),
        |sum, one| DiskUsage { bytes: sum.bytes + one.bytes, inodes: sum.inodes + one.inodes },
    )
}

fn container_of(stats: &v1::ContainerStats, collected: &RuntimeStats, files: &Files, disk: Disk) -> Value {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let name = attributes.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or_default();
    let now = clock::now().to_string();
    let mut root = disk_of(disk, &now);
    if let (Some(root), Some(layer)) = (root.as_object_mut(), &stats.writable_layer) {
        root.insert("usedBytes", amount(layer.used_bytes.as_ref()));
        root.insert("inodesUsed", amount(layer.inodes_used.as_ref()));
    }
    let logs = part_of(disk, files.logs.get(&name).copied().unwrap_or_default(), &now);
    let mut container_stats = value!({"name": name, "startTime": (time(collected.container_at(&attributes.id)).to_string()),
        "cpu": (cpu(stats.cpu.as_ref())), "memory": (memory(stats.memory.as_ref())), "rootfs": root, "logs": logs});
    if let (Some(container_stats), Some(swap)) = (container_stats.as_object_mut(), swap(stats.swap.iter(), &now)) {
        container_stats.insert("swap", swap);
    }
    container_stats
}

/// Returns the sum of swap usage, if any is known.
fn swap<'s>(all: impl Iterator<Item = &'s v1::SwapUsage>, now: &str) -> Option<Value> {
    let used: Vec<i64> = all.filter_map(|one| one.swap_usage_bytes.as_ref()).map(|value| amount(Some(value))).collect();
    (!used.is_empty()).then(|| value!({"time": now, "swapUsageBytes": (used.iter().sum::<i64>())}))
}

fn cpu(usage: Option<&v1::CpuUsage>) -> Value {
    let Some(usage) = usage else { return Value::object() };
    value!({"time": (time(usage.timestamp).to_string()), "usageNanoCores": (amount(usage.usage_nano_cores.as_ref())),
        "usageCoreNanoSeconds": (amount(usage.usage_core_nano_seconds.as_ref()))})
}

fn memory(usage: Option<&v1::MemoryUsage>) -> Value {
    let Some(usage) = usage else { return Value::object() };
    value!({"time": (time(usage.timestamp).to_string()), "workingSetBytes": (amount(usage.working_set_bytes.as_ref())),
        "usageBytes": (amount(usage.usage_bytes.as_ref())), "rssBytes": (amount(usage.rss_bytes.as_ref())),
        "pageFaults": (amount(usage.page_faults.as_ref())), "majorPageFaults": (amount(usage.major_page_faults.as_ref()))})
}
