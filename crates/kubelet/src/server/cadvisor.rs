//! `/metrics/cadvisor`: the main cAdvisor metrics of containers, pods and the node.

use std::collections::HashMap;
use std::fmt::Write as _;

use cgroups::systemd;
use cgroups::{Cgroup, Usage};
use http::Response;
use node_api::cri::v1;

use super::collected::{RuntimeStats, amount};
use super::metrics::{family, metrics_response, quoted};
use super::{Body, text};
use crate::context::Context;
use crate::pod::Pod;
use crate::pods::PodTable;
use crate::runtime_status::labels;

/// A measured cgroup. Pod cgroups have no name and no image; the node's cgroup has only a path.
#[derive(Default)]
struct Row {
    container: String,
    /// Path of the cgroup.
    id: String,
    image: String,
    /// ID in the runtime.
    name: String,
    namespace: String,
    pod: String,
    usage: Usage,
    oom_kills: u64,
    /// Creation time in Unix nanoseconds; zero if unknown.
    created_at: i64,
    layer: Option<v1::FilesystemUsage>,
    interfaces: Vec<v1::NetworkInterfaceUsage>,
}

/// Additional labels and value of each sample.
type Values = Vec<(String, f64)>;
type ValueReader = fn(&Row) -> Values;

const SERIES: &[(&str, &str, &str, ValueReader)] = &[
    ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", |row| {
        one(",cpu=\"total\"", seconds(row.usage.cpu_nanos))
    }),
    ("container_cpu_user_seconds_total", "counter", "Cumulative user cpu time consumed in seconds.", |row| {
        one("", seconds(row.usage.cpu_user_nanos))
    }),
    ("container_cpu_system_seconds_total", "counter", "Cumulative system cpu time consumed in seconds.", |row| {
        one("", seconds(row.usage.cpu_system_nanos))
    }),
    ("container_cpu_cfs_periods_total", "counter", "Number of elapsed enforcement period intervals.", |row| {
        one("", limited(row, row.usage.cpu_periods))
    }),
    ("container_cpu_cfs_throttled_periods_total", "counter", "Number of throttled period intervals.", |row| {
        one("", limited(row, row.usage.cpu_throttled_periods))
    }),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "Total time duration the container has been throttled.",
        |row| one("", row.usage.cpu_quota_micros.and(seconds(row.usage.cpu_throttled_nanos))),
    ),
    ("container_memory_usage_bytes", "gauge", "Current memory usage in bytes, including all memory.", |row| {
        one("", number(row.usage.memory_bytes))
    }),
    ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", |row| {
        one("", number(row.usage.working_set_bytes))
    }),
    ("container_memory_rss", "gauge", "Size of RSS in bytes.", |row| one("", number(row.usage.rss_bytes))),
    ("container_memory_cache", "gauge", "Number of bytes of page cache memory.", |row| {
        one("", number(row.usage.cache_bytes))
    }),
    ("container_memory_mapped_file", "gauge", "Size of memory mapped files in bytes.", |row| {
        one("", number(row.usage.mapped_bytes))
    }),
    ("container_memory_swap", "gauge", "Container swap usage in bytes.", |row| one("", number(row.usage.swap_bytes))),
    ("container_memory_max_usage_bytes", "gauge", "Maximum memory usage recorded in bytes", |row| {
        one("", number(row.usage.memory_peak_bytes))
    }),
    ("container_memory_failcnt", "counter", "Number of memory usage hits limits", |row| {
        one("", number(row.usage.memory_limit_hits))
    }),
    ("container_memory_failures_total", "counter", "Cumulative count of memory allocation failures.", |row| {
        let kind = |kind: &str, count: Option<u64>| {
            let labels = format!(",failure_type=\"{kind}\",scope=\"hierarchy\"");
            number(count).map(|count| (labels, count))
        };
        [kind("pgfault", row.usage.page_faults), kind("pgmajfault", row.usage.major_page_faults)]
            .into_iter()
            .flatten()
            .collect()
    }),
    ("container_oom_events_total", "counter", "Count of out of memory events observed for the container", |row| {
        one("", Some(row.oom_kills as f64))
    }),
    ("container_processes", "gauge", "Number of processes running inside the container.", |row| {
        one("", number(row.usage.pids))
    }),
    ("container_spec_cpu_period", "gauge", "CPU period of the container.", |row| {
        one("", number(row.usage.cpu_period_micros))
    }),
    ("container_spec_cpu_quota", "gauge", "CPU quota of the container.", |row| {
        one("", number(row.usage.cpu_quota_micros))
    }),
    ("container_spec_cpu_shares", "gauge", "CPU share of the container.", |row| one("", number(row.usage.cpu_shares))),
    ("container_spec_memory_limit_bytes", "gauge", "Memory limit for the container.", |row| {
        one("", Some(number(row.usage.memory_limit_bytes).unwrap_or(0.0)))
    }),
    ("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds.", |row| {
        one("", (row.created_at > 0).then_some((row.created_at / 1_000_000_000) as f64))
    }),
    ("container_last_seen", "gauge", "Last time a container was seen by the exporter", |_| {
        one("", Some(component_base::clock::now().unix_seconds() as f64))
    }),
    (
        "container_fs_usage_bytes",
        "gauge",
        "Number of bytes that are consumed by the container on this filesystem.",
        |row| one(",device=\"\"", row.layer.as_ref().map(|layer| amount(layer.used_bytes.as_ref()) as f64)),
    ),
    ("container_network_receive_bytes_total", "counter", "Cumulative count of bytes received", |row| {
        of_interfaces(row, |one| one.rx_bytes.as_ref())
    }),
    (
        "container_network_receive_errors_total",
        "counter",
        "Cumulative count of errors encountered while receiving",
        |row| of_interfaces(row, |one| one.rx_errors.as_ref()),
    ),
    ("container_network_transmit_bytes_total", "counter", "Cumulative count of bytes transmitted", |row| {
        of_interfaces(row, |one| one.tx_bytes.as_ref())
    }),
    (
        "container_network_transmit_errors_total",
        "counter",
        "Cumulative count of errors encountered while transmitting",
        |row| of_interfaces(row, |one| one.tx_errors.as_ref()),
    ),
];

/// Returns the metrics of the node and of its pods.
pub(super) async fn cadvisor(context: &Context, known: &PodTable) -> Response<Body> {
    let collected = match RuntimeStats::of(&context.runtime).await {
        Ok(collected) => collected,
        Err(status) => return text(http::StatusCode::INTERNAL_SERVER_ERROR, status.message()),
    };
    let pods: HashMap<String, _> = known.all().into_iter().map(|pod| (Pod(&pod).uid().to_owned(), pod)).collect();
    let group_of = |uid: &str| pods.get(uid).map(|pod| context.groups.of(Pod(pod)));
    metrics_response(render(&rows(&collected, group_of)))
}

fn render(rows: &[Row]) -> String {
    let mut out = String::new();
    for (name, kind, help, read) in SERIES {
        let values: Vec<(&Row, Values)> = rows.iter().map(|row| (row, read(row))).collect();
        if values.iter().all(|(_, values)| values.is_empty()) {
            continue;
        }
        family(&mut out, name, kind, help);
        for (row, values) in values {
            for (more, value) in values {
                let _ = writeln!(out, "{name}{{{}{more}}} {value}", row.labels());
            }
        }
    }
    out
}

fn rows(collected: &RuntimeStats, group_of: impl Fn(&str) -> Option<Cgroup>) -> Vec<Row> {
    let mut rows = vec![Row { id: "/".to_owned(), usage: Cgroup::at("/").usage(), ..Row::default() }];
    for stats in &collected.stats {
        let attributes = stats.attributes.clone().unwrap_or_default();
        let metadata = attributes.metadata.unwrap_or_default();
        let linux = stats.linux.clone().unwrap_or_default();
        let (namespace, pod) = (metadata.namespace, metadata.name);
        let of_pod = || Row { namespace: namespace.clone(), pod: pod.clone(), ..Row::default() };
        let Some(group) = group_of(&metadata.uid) else { continue };
        rows.push(Row { created_at: collected.sandbox_at(&attributes.id), ..of_pod().measured(&group) });
        // Network metrics belong to the sandbox, which owns the network namespace.
        let network = linux.network.unwrap_or_default();
        let sandbox_id = &attributes.id;
        let mut sandbox = of_pod().measured(&below(&group, sandbox_id, sandbox_id));
        sandbox.name.clone_from(&attributes.id);
        sandbox.created_at = collected.sandbox_at(&attributes.id);
        sandbox.interfaces = network.default_interface.into_iter().chain(network.interfaces).collect();
        rows.push(sandbox);
        for container in linux.containers {
            let attributes = container.attributes.unwrap_or_default();
            let listed = collected.containers.get(&attributes.id);
            rows.push(Row {
                container: attributes.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or_default(),
                image: listed.map(image_of).unwrap_or_default(),
                name: attributes.id.clone(),
                created_at: listed.map_or(0, |listed| listed.created_at),
                layer: container.writable_layer,
                ..of_pod().measured(&below(&group, sandbox_id, &attributes.id))
            });
        }
    }
    rows
}

impl Row {
    fn measured(self, group: &Cgroup) -> Self {
        let id = group.path().display().to_string();
        Self { id, usage: group.usage(), oom_kills: group.oom_kills(), ..self }
    }

    fn labels(&self) -> String {
        let pairs = [
            ("container", &self.container),
            ("id", &self.id),
            ("image", &self.image),
            ("name", &self.name),
            ("namespace", &self.namespace),
            ("pod", &self.pod),
        ];
        let rendered: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", quoted(value))).collect();
        rendered.join(",")
    }
}

/// Returns the cgroup of a container or sandbox. With systemd, containerd uses one scope for each, and the built-in
/// runtime one scope per sandbox.
fn below(pod: &Cgroup, sandbox: &str, id: &str) -> Cgroup {
    let at = |name: String| Cgroup::at(&pod.path().join(name).display().to_string());
    let in_scope = [at(format!("cri-containerd-{id}.scope")), at(format!("{}/{id}", systemd::scope_of(sandbox)))];
    in_scope.into_iter().find(Cgroup::exists).unwrap_or_else(|| at(id.to_owned()))
}

fn image_of(listed: &v1::Container) -> String {
    let named = listed.image.as_ref().map(|image| &image.user_specified_image).filter(|name| !name.is_empty());
    named.unwrap_or(&listed.image_ref).clone()
}

fn one(labels: &str, value: Option<f64>) -> Values {
    value.map(|value| (labels.to_owned(), value)).into_iter().collect()
}

fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn seconds(nanos: Option<u64>) -> Option<f64> {
    nanos.map(|nanos| nanos as f64 / 1e9)
}

/// Returns CFS period counters only for cgroups with a quota, where they are meaningful.
fn limited(row: &Row, value: Option<u64>) -> Option<f64> {
    row.usage.cpu_quota_micros.and(number(value))
}

fn of_interfaces(row: &Row, read: fn(&v1::NetworkInterfaceUsage) -> Option<&v1::UInt64Value>) -> Values {
    let each = |one: &v1::NetworkInterfaceUsage| {
        read(one).map(|value| (format!(",interface=\"{}\"", quoted(&one.name)), value.value as f64))
    };
    row.interfaces.iter().filter_map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_all_labels_and_unknown_values_are_omitted() {
        let limited = Row {
            container: "c".into(),
            id: "/kubepods/podu/1".into(),
            image: "i:1".into(),
            name: "1".into(),
            namespace: "n".into(),
            pod: "p".into(),
            usage: Usage {
                cpu_nanos: Some(1_500_000_000),
                cpu_periods: Some(7),
                cpu_quota_micros: Some(5000),
                memory_limit_bytes: Some(64),
                ..Usage::default()
            },
            created_at: 5_000_000_000,
            ..Row::default()
        };
        let free = Row {
            id: "/free".into(),
            usage: Usage { cpu_periods: Some(7), ..Usage::default() },
            interfaces: vec![v1::NetworkInterfaceUsage {
                name: "eth0".into(),
                rx_bytes: Some(v1::UInt64Value { value: 9 }),
                ..Default::default()
            }],
            ..Row::default()
        };
        let text = render(&[limited, free]);
        let own = "container=\"c\",id=\"/kubepods/podu/1\",image=\"i:1\",name=\"1\",namespace=\"n\",pod=\"p\"";
        for line in [
            format!("container_cpu_usage_seconds_total{{{own},cpu=\"total\"}} 1.5"),
            format!("container_cpu_cfs_periods_total{{{own}}} 7"),
            format!("container_spec_memory_limit_bytes{{{own}}} 64"),
            format!("container_start_time_seconds{{{own}}} 5"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("container_cpu_cfs_periods_total")).count(), 1);
        assert!(text.contains("pod=\"\",interface=\"eth0\"} 9\n"), "{text}");
        assert!(!text.contains("container_memory_rss"), "{text}");
    }
}
