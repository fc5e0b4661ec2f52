//! Kubelet metrics in Prometheus format.

use std::fmt::Write as _;

use http::{Response, StatusCode};
use node_api::cri::v1;

use super::collected::{RuntimeStats, amount};
use super::{Body, plain, text};
use crate::context::Context;
use crate::counters::Probes;
use crate::node;
use crate::pods::PodTable;
use crate::runtime_status::labels;
use crate::usage::NodeUsage;

/// Serves `/metrics`: the kubelet's own metrics.
pub(super) async fn own(context: &Context, known: &PodTable) -> Response<Body> {
    let mut out = String::new();
    family(&mut out, "kubelet_running_pods", "gauge", "Number of pods that have a running pod sandbox");
    let filter = v1::PodSandboxFilter {
        state: Some(v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() }),
        ..Default::default()
    };
    let mut runtime = context.runtime.runtime.clone();
    let listed = runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: Some(filter) }).await;
    let _ = writeln!(out, "kubelet_running_pods {}", listed.map_or(0, |response| response.into_inner().items.len()));
    family(&mut out, "kubelet_running_containers", "gauge", "Number of currently running containers");
    let containers = runtime.list_containers(v1::ListContainersRequest::default()).await;
    let containers = containers.map(|response| response.into_inner().containers).unwrap_or_default();
    for (word, state) in [
        ("created", v1::ContainerState::ContainerCreated),
        ("exited", v1::ContainerState::ContainerExited),
        ("running", v1::ContainerState::ContainerRunning),
    ] {
        let count = containers.iter().filter(|container| container.state() == state).count();
        let _ = writeln!(out, "kubelet_running_containers{{container_state=\"{word}\"}} {count}");
    }
    family(&mut out, "kubelet_desired_pods", "gauge", "The number of pods the kubelet is being instructed to run");
    let _ = writeln!(out, "kubelet_desired_pods{{static=\"\"}} {}", known.all().len());
    family(&mut out, "kubelet_node_name", "gauge", "The node's name. The count is always 1.");
    let _ = writeln!(out, "kubelet_node_name{{node=\"{}\"}} 1", quoted(&context.config.node_name));
    family(&mut out, "kubernetes_build_info", "gauge", "A metric with a constant '1' value labeled by the version");
    let _ = writeln!(out, "kubernetes_build_info{{git_version=\"{}\"}} 1", node::VERSION);
    metrics_response(out)
}

/// Serves `/metrics/resource`: CPU and memory of the node, its pods and their containers.
pub(super) async fn resource(context: &Context) -> Response<Body> {
    match RuntimeStats::of(&context.runtime).await {
        Ok(collected) => metrics_response(resources(&collected, &NodeUsage::read())),
        Err(status) => text(StatusCode::INTERNAL_SERVER_ERROR, status.message()),
    }
}

fn resources(collected: &RuntimeStats, usage: &NodeUsage) -> String {
    let stats = &collected.stats;
    let mut out = String::new();
    family(
        &mut out,
        "node_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the node in core-seconds",
    );
    let _ = writeln!(out, "node_cpu_usage_seconds_total {}", seconds(usage.cpu_nanos as f64));
    family(&mut out, "node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes");
    let _ = writeln!(out, "node_memory_working_set_bytes {}", usage.memory_total - usage.memory_available);
    family(&mut out, "node_swap_usage_bytes", "gauge", "Current swap usage of the node in bytes");
    let _ = writeln!(out, "node_swap_usage_bytes {}", usage.swap_total - usage.swap_free);
    let cpu = |usage: Option<&v1::CpuUsage>| {
        seconds(usage.map_or(0, |usage| amount(usage.usage_core_nano_seconds.as_ref())) as f64)
    };
    let memory = |usage: Option<&v1::MemoryUsage>| usage.map_or(0, |usage| amount(usage.working_set_bytes.as_ref()));
    family(
        &mut out,
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
    );
    each_container(stats, |labels, container| {
        let _ = writeln!(out, "container_cpu_usage_seconds_total{{{labels}}} {}", cpu(container.cpu.as_ref()));
    });
    family(&mut out, "container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes");
    each_container(stats, |labels, container| {
        let _ = writeln!(out, "container_memory_working_set_bytes{{{labels}}} {}", memory(container.memory.as_ref()));
    });
    family(
        &mut out,
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds",
    );
    each_container(stats, |labels, container| {
        let id = container.attributes.as_ref().map_or("", |attributes| attributes.id.as_str());
        let at = collected.container_at(id);
        if at > 0 {
            let _ = writeln!(out, "container_start_time_seconds{{{labels}}} {}", seconds(at as f64));
        }
    });
    family(&mut out, "container_swap_usage_bytes", "gauge", "Current amount of the container swap usage in bytes");
    each_container(stats, |labels, container| {
        let swap = container.swap.as_ref().and_then(|swap| swap.swap_usage_bytes.as_ref());
        if swap.is_some() {
            let _ = writeln!(out, "container_swap_usage_bytes{{{labels}}} {}", amount(swap));
        }
    });
    family(
        &mut out,
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
    );
    for pod in stats {
        let linux = pod.linux.clone().unwrap_or_default();
        let _ = writeln!(out, "pod_cpu_usage_seconds_total{{{}}} {}", pod_labels(pod), cpu(linux.cpu.as_ref()));
    }
    family(&mut out, "pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes");
    for pod in stats {
        let linux = pod.linux.clone().unwrap_or_default();
        let _ = writeln!(out, "pod_memory_working_set_bytes{{{}}} {}", pod_labels(pod), memory(linux.memory.as_ref()));
    }
    family(
        &mut out,
        "resource_scrape_error",
        "gauge",
        "1 if there was an error while getting container metrics, 0 otherwise",
    );
    out.push_str("resource_scrape_error 0\n");
    out
}

/// Serves `/metrics/probes`: probe result counters.
pub(super) fn probes(probes: &Probes) -> Response<Body> {
    let mut out = String::new();
    family(
        &mut out,
        "prober_probe_total",
        "counter",
        "Cumulative number of a liveness, readiness or startup probe for a container by result.",
    );
    for (probe, result, count) in probes.all() {
        let _ = writeln!(
            out,
            "prober_probe_total{{container=\"{}\",namespace=\"{}\",pod=\"{}\",pod_uid=\"{}\",probe_type=\"{}\",result=\"{result}\"}} {count}",
            quoted(&probe.container),
            quoted(&probe.namespace),
            quoted(&probe.pod),
            quoted(&probe.uid),
            probe.kind.word(),
        );
    }
    metrics_response(out)
}

fn each_container(stats: &[v1::PodSandboxStats], mut then: impl FnMut(&str, &v1::ContainerStats)) {
    for pod in stats {
        for container in pod.linux.iter().flat_map(|linux| &linux.containers) {
            let attributes = container.attributes.clone().unwrap_or_default();
            let name = attributes.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or_default();
            then(&format!("container=\"{}\",{}", quoted(&name), pod_labels(pod)), container);
        }
    }
}

fn pod_labels(pod: &v1::PodSandboxStats) -> String {
    let metadata = pod.attributes.clone().and_then(|attributes| attributes.metadata).unwrap_or_default();
    format!("namespace=\"{}\",pod=\"{}\"", quoted(&metadata.namespace), quoted(&metadata.name))
}

pub(super) fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}");
}

fn seconds(nanos: f64) -> f64 {
    nanos / 1e9
}

pub(super) fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub(super) fn metrics_response(out: String) -> Response<Body> {
    plain(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_metrics_include_start_time_and_swap() {
        let number = |value| Some(v1::UInt64Value { value });
        let container = v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: "1".into(),
                labels: [(labels::CONTAINER_NAME.to_owned(), "c".to_owned())].into(),
                ..Default::default()
            }),
            swap: Some(v1::SwapUsage { swap_usage_bytes: number(8), ..Default::default() }),
            ..Default::default()
        };
        let metadata = v1::PodSandboxMetadata { name: "p".into(), namespace: "n".into(), ..Default::default() };
        let collected = RuntimeStats {
            stats: vec![v1::PodSandboxStats {
                attributes: Some(v1::PodSandboxAttributes { metadata: Some(metadata), ..Default::default() }),
                linux: Some(v1::LinuxPodSandboxStats { containers: vec![container], ..Default::default() }),
                ..Default::default()
            }],
            containers: [("1".to_owned(), v1::Container { created_at: 1_500_000_000, ..Default::default() })].into(),
            ..Default::default()
        };
        let text = resources(&collected, &NodeUsage::read());
        let own = "{container=\"c\",namespace=\"n\",pod=\"p\"}";
        for line in [format!("container_start_time_seconds{own} 1.5"), format!("container_swap_usage_bytes{own} 8")] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }
}
