//! What the node and its pods use, as `/stats/summary` tells it.

use cri::v1;
use driver::clock;
use http::{Response, StatusCode};
use machinery::{Object, Value, value};

use super::{Body, answer_json, text};
use crate::context::Context;
use crate::observed::{labels, time};
use crate::usage::{Disk, NodeUsage};

/// Answers with everything that is known now.
pub async fn summary(context: &Context) -> Response<Body> {
    let stats = context.runtime.runtime.clone().list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest::default()).await;
    let stats = match stats {
        Ok(answer) => answer.into_inner().stats,
        Err(status) => return text(StatusCode::INTERNAL_SERVER_ERROR, status.message()),
    };
    let disk = Disk::of(&context.config.root_dir);
    let node = node(context, &NodeUsage::read(), disk);
    let pods: Vec<Value> = stats.iter().map(|stats| pod(stats, disk)).collect();
    answer_json(&value!({"node": node, "pods": pods}))
}

fn node(context: &Context, usage: &NodeUsage, disk: Disk) -> Value {
    let now = clock::now().to_string();
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    value!({"nodeName": (context.config.node_name.as_str()), "startTime": (usage.boot.to_string()),
        "cpu": {"time": (now.as_str()), "usageCoreNanoSeconds": (number(usage.cpu_nanos))},
        "memory": {"time": (now.as_str()), "availableBytes": (number(usage.memory_available)),
            "usageBytes": (number(usage.memory_total - usage.memory_free)),
            "workingSetBytes": (number(usage.memory_total - usage.memory_available))},
        "fs": (disk_of(disk, &now)),
        "runtime": {"imageFs": (disk_of(disk, &now))},
        "rlimit": {"time": (now.as_str()), "maxpid": (number(usage.pids_max)), "curproc": (number(usage.pids))}})
}

fn disk_of(disk: Disk, now: &str) -> Value {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    value!({"time": now, "availableBytes": (number(disk.available)), "capacityBytes": (number(disk.capacity)),
        "usedBytes": (number(disk.capacity - disk.free)), "inodesFree": (number(disk.inodes_free)),
        "inodes": (number(disk.inodes)), "inodesUsed": (number(disk.inodes - disk.inodes_free))})
}

fn pod(stats: &v1::PodSandboxStats, disk: Disk) -> Value {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let metadata = attributes.metadata.unwrap_or_default();
    let linux = stats.linux.clone().unwrap_or_default();
    let containers: Vec<Value> = linux.containers.iter().map(|container| container_of(container, disk)).collect();
    let mut pod = Object::new();
    pod.insert("podRef", value!({"name": (metadata.name.as_str()), "namespace": (metadata.namespace.as_str()), "uid": (metadata.uid.as_str())}));
    pod.insert("startTime", clock::now().to_string());
    pod.insert("containers", containers);
    pod.insert("cpu", cpu(linux.cpu.as_ref()));
    pod.insert("memory", memory(linux.memory.as_ref()));
    if let Some(network) = linux.network.as_ref().and_then(|network| network.default_interface.as_ref()) {
        pod.insert(
            "network",
            value!({"time": (clock::now().to_string()), "name": (network.name.as_str()),
            "rxBytes": (amount(network.rx_bytes.as_ref())), "txBytes": (amount(network.tx_bytes.as_ref())),
            "rxErrors": (amount(network.rx_errors.as_ref())), "txErrors": (amount(network.tx_errors.as_ref()))}),
        );
    }
    if let Some(process) = &linux.process {
        pod.insert("process_stats", value!({"process_count": (amount(process.process_count.as_ref()))}));
    }
    Value::Object(pod)
}

fn container_of(stats: &v1::ContainerStats, disk: Disk) -> Value {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let name = attributes.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or_default();
    let now = clock::now().to_string();
    let mut root = disk_of(disk, &now);
    if let (Some(root), Some(layer)) = (root.as_object_mut(), &stats.writable_layer) {
        root.insert("usedBytes", amount(layer.used_bytes.as_ref()));
        root.insert("inodesUsed", amount(layer.inodes_used.as_ref()));
    }
    value!({"name": name, "startTime": now, "cpu": (cpu(stats.cpu.as_ref())), "memory": (memory(stats.memory.as_ref())), "rootfs": root})
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

/// A number that may not be known, zero then.
pub fn amount(value: Option<&v1::UInt64Value>) -> i64 {
    value.map_or(0, |value| i64::try_from(value.value).unwrap_or(i64::MAX))
}
