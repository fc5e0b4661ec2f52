//! CRI pod metrics, with names similar to those of cAdvisor.

use node_api::cri::v1;

use crate::ids::now;
use crate::state::{Runtime, Sandbox};

/// A metric: name, help, type, and its value in a container's statistics.
struct Row {
    name: &'static str,
    help: &'static str,
    kind: v1::MetricType,
    of: fn(&v1::ContainerStats) -> Option<u64>,
}

/// Labels of every metric, in this order.
const LABELS: [&str; 3] = ["id", "name", "image"];

fn number(value: &Option<v1::UInt64Value>) -> Option<u64> {
    value.as_ref().map(|value| value.value)
}

const ROWS: &[Row] = &[
    Row {
        name: "container_cpu_usage_nanoseconds_total",
        help: "CPU time used, in nanoseconds.",
        kind: v1::MetricType::Counter,
        of: |stats| number(&stats.cpu.as_ref()?.usage_core_nano_seconds),
    },
    Row {
        name: "container_memory_usage_bytes",
        help: "Memory usage including caches, in bytes.",
        kind: v1::MetricType::Gauge,
        of: |stats| number(&stats.memory.as_ref()?.usage_bytes),
    },
    Row {
        name: "container_memory_working_set_bytes",
        help: "Memory usage without inactive file pages, in bytes.",
        kind: v1::MetricType::Gauge,
        of: |stats| number(&stats.memory.as_ref()?.working_set_bytes),
    },
    Row {
        name: "container_memory_rss",
        help: "Anonymous memory usage, in bytes.",
        kind: v1::MetricType::Gauge,
        of: |stats| number(&stats.memory.as_ref()?.rss_bytes),
    },
    Row {
        name: "container_memory_failures_total",
        help: "Number of page faults.",
        kind: v1::MetricType::Counter,
        of: |stats| number(&stats.memory.as_ref()?.page_faults),
    },
    Row {
        name: "container_fs_usage_bytes",
        help: "Disk usage of the writable layer, in bytes.",
        kind: v1::MetricType::Gauge,
        of: |stats| number(&stats.writable_layer.as_ref()?.used_bytes),
    },
];

/// Returns the metric descriptors.
pub(crate) fn descriptors() -> Vec<v1::MetricDescriptor> {
    let label_keys: Vec<String> = LABELS.iter().map(|label| (*label).to_owned()).collect();
    let describe = |row: &Row| v1::MetricDescriptor {
        name: row.name.to_owned(),
        help: row.help.to_owned(),
        label_keys: label_keys.clone(),
    };
    ROWS.iter().map(describe).collect()
}

impl Runtime {
    /// Returns the metrics of a sandbox's containers.
    pub(crate) fn sandbox_metrics(&self, sandbox: &Sandbox) -> v1::PodSandboxMetrics {
        let id = sandbox.record().id;
        let containers = self.containers_of(&id);
        let container_metrics = containers.iter().filter_map(|container| {
            let (stats, record) = (container.stats()?, container.record());
            let name = record.config.metadata.unwrap_or_default().name;
            let image = record.config.image.unwrap_or_default().image;
            let labels = vec![record.cgroup, name, image];
            let at = now();
            let metric = |row: &Row| {
                Some(v1::Metric {
                    name: row.name.to_owned(),
                    timestamp: at,
                    metric_type: row.kind.into(),
                    label_values: labels.clone(),
                    value: Some(v1::UInt64Value { value: (row.of)(&stats)? }),
                })
            };
            Some(v1::ContainerMetrics { container_id: record.id, metrics: ROWS.iter().filter_map(metric).collect() })
        });
        v1::PodSandboxMetrics {
            pod_sandbox_id: id,
            metrics: Vec::new(),
            container_metrics: container_metrics.collect(),
        }
    }
}
