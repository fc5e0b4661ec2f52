//! Terminates the containers of a node whose kubelet does not run, using the annotations of the containers.
//!
//! The pods stay unchanged in the API: a kubelet that starts later finds exited containers and restarts them according
//! to their restart policy.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use apimachinery::{Value, json};
use node_api::cri::v1;
use tokio::task::JoinSet;
use tonic::Status;
use tracing::Instrument;

use crate::hooks;
use crate::pod::{Container, Role};
use crate::runtime::Runtime;
use crate::runtime_status::labels;

/// Grace period of containers without the annotation: upstream's default.
const GRACE_SECONDS: i64 = 30;

/// A running container.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    pub id: String,
    /// Namespace, pod and container name, for messages.
    pub name: String,
    pub grace_seconds: i64,
    /// The preStop handler, if any, and the container's ports, which it may refer to by name.
    hook: Option<(Value, Value)>,
    /// Empty for a host-network pod.
    pod_ip: String,
}

/// A terminated container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminatedContainer {
    /// Namespace, pod and container name, for messages.
    pub name: String,
    /// Error message if the preStop handler or the termination failed.
    pub problem: Option<String>,
}

/// Returns the running containers.
pub async fn running(runtime: &Runtime) -> Result<Vec<Running>, Status> {
    let state = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
    let filter = Some(v1::ContainerFilter { state: Some(state), ..v1::ContainerFilter::default() });
    let listed = runtime.runtime.clone().list_containers(v1::ListContainersRequest { filter }).await?.into_inner();
    let mut ips: HashMap<String, String> = HashMap::new();
    let mut found = Vec::new();
    for container in listed.containers {
        let sandbox = container.pod_sandbox_id.clone();
        if !ips.contains_key(&sandbox) {
            let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: false };
            let response = runtime.runtime.clone().pod_sandbox_status(request).await?.into_inner();
            let network = response.status.and_then(|status| status.network);
            ips.insert(sandbox.clone(), network.map(|network| network.ip).unwrap_or_default());
        }
        found.push(read(&container, &ips[&sandbox]));
    }
    Ok(found)
}

fn read(container: &v1::Container, pod_ip: &str) -> Running {
    let label = |key: &str| container.labels.get(key).map_or("", String::as_str);
    let annotation = |key: &str| container.annotations.get(key);
    // Unreadable annotations are treated as absent: terminating the container matters more.
    let value = |key: &str| annotation(key).and_then(|text| json::parse(text.as_bytes()).ok());
    let grace = annotation(labels::GRACE).and_then(|text| text.parse().ok());
    Running {
        id: container.id.clone(),
        name: [labels::POD_NAMESPACE, labels::POD_NAME, labels::CONTAINER_NAME].map(label).join("/"),
        grace_seconds: grace.unwrap_or(GRACE_SECONDS).max(0),
        hook: value(labels::PRE_STOP).map(|hook| (hook, value(labels::PORTS).unwrap_or(Value::Null))),
        pod_ip: pod_ip.to_owned(),
    }
}

/// Terminates containers concurrently, each within its own grace period, and reports each with `on_terminated`.
pub async fn end_all(runtime: &Runtime, containers: Vec<Running>, mut on_terminated: impl FnMut(TerminatedContainer)) {
    let mut ends = JoinSet::new();
    for container in containers {
        let runtime = runtime.clone();
        ends.spawn(async move { end(&runtime, container).await }.in_current_span());
    }
    while let Some(terminated) = ends.join_next().await {
        on_terminated(terminated.expect("ending a container does not panic"));
    }
}

async fn end(runtime: &Runtime, container: Running) -> TerminatedContainer {
    let Running { id, name, grace_seconds, hook, pod_ip } = container;
    let spec = hook.as_ref().map(|(_, ports)| {
        let own = name.rsplit('/').next().unwrap_or_default();
        apimachinery::value!({"name": own, "ports": (ports.clone())})
    });
    let hook = hook.as_ref().zip(spec.as_ref()).map(|((hook, _), spec)| (hook, Container { spec, role: Role::App }));
    // A host-network pod is reached on the loopback address.
    let pod_ip = if pod_ip.is_empty() { "127.0.0.1" } else { &pod_ip };
    let started = Instant::now();
    let result = hooks::end_container(runtime, hook, &id, pod_ip, grace_seconds).await;
    let late = grace_seconds > 0 && started.elapsed() >= Duration::from_secs(grace_seconds.unsigned_abs());
    let problem = match (result.stopped, result.hook_failure) {
        (Err(status), _) => Some(format!("does not end: {}", status.message())),
        (Ok(()), Some(cause)) => Some(format!("its preStop hook failed: {cause}")),
        (Ok(()), None) if late => Some(format!("killed after its grace period of {grace_seconds} s")),
        (Ok(()), None) => None,
    };
    TerminatedContainer { name, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_terminates_according_to_its_annotations() {
        let check = |annotations: &[(&str, &str)], grace: i64, hook: Option<&str>| {
            let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let labels = [(labels::POD_NAMESPACE, "ns"), (labels::POD_NAME, "db-0"), (labels::CONTAINER_NAME, "db")];
            let container = v1::Container {
                id: "1".to_owned(),
                labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
                annotations: annotations.collect(),
                ..v1::Container::default()
            };
            let read = read(&container, "10.0.0.1");
            assert_eq!((read.name.as_str(), read.grace_seconds), ("ns/db-0/db", grace));
            assert_eq!(read.hook.map(|(hook, _)| json::to_string(&hook)).as_deref(), hook);
        };
        check(&[], 30, None);
        check(&[(labels::GRACE, "5")], 5, None);
        check(&[(labels::GRACE, "-1")], 0, None);
        check(&[(labels::GRACE, "?"), (labels::PRE_STOP, "{")], 30, None);
        let hook = r#"{"sleep":{"seconds":1}}"#;
        check(&[(labels::GRACE, "0"), (labels::PRE_STOP, hook)], 0, Some(hook));
    }
}
