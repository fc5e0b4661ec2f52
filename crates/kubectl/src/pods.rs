//! Pods of a command: the pod that represents an object, and the containers of a pod.

mod order;

use std::time::Duration;

use apimachinery::labels::{self, Selector};
use apimachinery::meta::Meta;
use apimachinery::{Resource, Value, go};
use client::{Client, Event, ListOptions, Target, WatchOptions};

pub use order::Order;

use crate::Failure;
use crate::resources::Info;

pub static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
/// The annotation with the name of the container that commands use.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// A container of a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Container<'p> {
    pub spec: &'p Value,
    pub kind: ContainerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerKind {
    Regular,
    Init,
    Ephemeral,
}

/// The container of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice<'p> {
    pub container: Container<'p>,
    /// The notice to print if the container was not named.
    pub notice: Option<String>,
}

impl ContainerKind {
    /// The kinds in the order in which names are looked up.
    pub const ALL: [Self; 3] = [Self::Regular, Self::Init, Self::Ephemeral];

    pub const fn field(self) -> &'static str {
        match self {
            Self::Regular => "containers",
            Self::Init => "initContainers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }
}

impl<'p> Container<'p> {
    pub fn name(&self) -> &'p str {
        self.spec.str_at(&["name"]).unwrap_or_default()
    }
}

/// Returns the containers of one kind.
pub fn containers(pod: &Value, kind: ContainerKind) -> impl Iterator<Item = Container<'_>> {
    let list = pod.at(&["spec", kind.field()]).and_then(Value::as_array).unwrap_or_default();
    list.iter().map(move |spec| Container { spec, kind })
}

pub fn find_container<'p>(pod: &'p Value, name: &str) -> Option<Container<'p>> {
    ContainerKind::ALL.into_iter().flat_map(|kind| containers(pod, kind)).find(|container| container.name() == name)
}

/// Returns the names of all containers for messages: `a, b (ephem), c (init)`.
pub fn container_names(pod: &Value) -> String {
    let of = |kind, suffix: &'static str| containers(pod, kind).map(move |one| format!("{}{suffix}", one.name()));
    let names: Vec<String> = of(ContainerKind::Regular, "")
        .chain(of(ContainerKind::Ephemeral, " (ephem)"))
        .chain(of(ContainerKind::Init, " (init)"))
        .collect();
    names.join(", ")
}

/// Returns the message for a container that a pod does not have.
pub fn unknown_container(pod: &Value, name: &str) -> String {
    format!("container {name} is not valid for pod {} out of: {}", Meta::of(pod).name(), container_names(pod))
}

/// Returns the named container, or else that of the annotation, or else the first one.
pub fn choose_container<'p>(pod: &'p Value, name: &str) -> Result<Choice<'p>, String> {
    let meta = Meta::of(pod);
    let Some(first) = containers(pod, ContainerKind::Regular).next() else {
        return Err(format!("pod {}/{} does not have any containers", meta.namespace(), meta.name()));
    };
    let annotated = pod.str_at(&["metadata", "annotations", DEFAULT_CONTAINER]).unwrap_or_default();
    let name = if name.is_empty() { annotated } else { name };
    if !name.is_empty() {
        let container = find_container(pod, name).ok_or_else(|| unknown_container(pod, name))?;
        return Ok(Choice { container, notice: None });
    }
    Ok(Choice { container: first, notice: default_notice(pod, first.name()) })
}

/// Returns the notice that a container was chosen out of several.
pub fn default_notice(pod: &Value, name: &str) -> Option<String> {
    let count: usize = ContainerKind::ALL.into_iter().map(|kind| containers(pod, kind).count()).sum();
    (count > 1).then(|| format!("Defaulted container {} out of: {}", go::quote(name), container_names(pod)))
}

/// Returns the phase of a pod.
pub fn phase(pod: &Value) -> &str {
    pod.str_at(&["status", "phase"]).unwrap_or_default()
}

/// Returns the selector of the pods of a workload or a Service.
pub fn selector_of(object: &Value) -> Result<Selector, String> {
    let kind = object.str_at(&["kind"]).unwrap_or_default();
    match kind {
        "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Deployment" | "Job" => {
            labels::from_object(object.at(&["spec", "selector"]))
                .map_err(|error| format!("invalid label selector: {error}"))
        }
        "ReplicationController" | "Service" => {
            let match_labels = object.at(&["spec", "selector"]).and_then(Value::as_object);
            if kind == "Service" && match_labels.is_none_or(apimachinery::Object::is_empty) {
                let name = Meta::of(object).name();
                return Err(format!("invalid service '{name}': Service is defined without a selector"));
            }
            let mut equal = apimachinery::Object::new();
            if let Some(match_labels) = match_labels {
                equal.insert("matchLabels", match_labels.clone());
            }
            labels::from_object(Some(&Value::Object(equal))).map_err(|error| error.to_string())
        }
        _ => Err(format!("selector for {} not implemented", go_type(object))),
    }
}

/// Returns the name of an object's type in Go: `*v1.ConfigMap`.
pub fn go_type(object: &Value) -> String {
    let version = object.str_at(&["apiVersion"]).unwrap_or_default();
    let version = version.rsplit('/').next().unwrap_or_default();
    format!("*{version}.{}", object.str_at(&["kind"]).unwrap_or_default())
}

/// Returns the pod itself, or the most active pod of a workload or Service. Waits for the first pod.
pub async fn attachable_pod(client: &Client, info: &Info, timeout: Duration) -> Result<Value, Failure> {
    if is_pod(info) {
        return Ok(info.object.clone());
    }
    let selector = selector_of(&info.object)
        .map_err(|error| Failure::new(format!("cannot attach to {}: {error}", go_type(&info.object))))?;
    let mut pods = list_pods(client, &info.namespace, &selector, timeout, Order::MostActiveFirst).await?;
    Ok(pods.swap_remove(0))
}

pub fn is_pod(info: &Info) -> bool {
    info.mapping.resource.group.is_empty() && info.mapping.resource.kind == "Pod"
}

/// Returns the pods that a selector matches, at least one. Waits for the first pod.
pub async fn list_pods(
    client: &Client,
    namespace: &str,
    selector: &Selector,
    timeout: Duration,
    order: Order,
) -> Result<Vec<Value>, Failure> {
    let target = Target::within(&PODS, namespace);
    let label_selector = selector.to_string();
    let options = ListOptions { label_selector: label_selector.clone(), ..ListOptions::default() };
    let list = client.list_all(&target, &options).await?;
    if !list.items.is_empty() {
        let mut pods = list.items;
        order.sort(&mut pods);
        return Ok(pods);
    }
    let options = WatchOptions { label_selector, resource_version: list.resource_version, ..WatchOptions::default() };
    let mut watch = client.watch(&target, &options).await?;
    let first = async {
        while let Some(event) = watch.next().await {
            if let Event::Added(pod) | Event::Modified(pod) = event? {
                return Ok(pod);
            }
        }
        Err(Failure::new("watch closed before UntilWithoutRetry timeout"))
    };
    match tokio::time::timeout(timeout, first).await {
        Ok(pod) => Ok(vec![pod?]),
        Err(_) => Err(Failure::new("timed out waiting for the condition")),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn pod(annotations: Value) -> Value {
        value!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "annotations": annotations},
            "spec": {
                "containers": [{"name": "a"}, {"name": "b"}],
                "initContainers": [{"name": "i"}],
                "ephemeralContainers": [{"name": "e"}],
            },
        })
    }

    #[test]
    fn container_is_named_annotated_or_the_first() {
        let check = |pod: &Value, name: &str, expect: Result<(&str, Option<&str>), &str>| {
            let found = choose_container(pod, name);
            let found = found.as_ref().map(|choice| (choice.container.name(), choice.notice.as_deref()));
            assert_eq!(found.map_err(String::as_str), expect);
        };
        let plain = pod(value!({}));
        check(&plain, "", Ok(("a", Some("Defaulted container \"a\" out of: a, b, e (ephem), i (init)"))));
        check(&plain, "i", Ok(("i", None)));
        check(&plain, "e", Ok(("e", None)));
        check(&plain, "x", Err("container x is not valid for pod p out of: a, b, e (ephem), i (init)"));
        let annotated = pod(value!({"kubectl.kubernetes.io/default-container": "b"}));
        check(&annotated, "", Ok(("b", None)));
        check(&annotated, "a", Ok(("a", None)));
        let single = value!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}});
        check(&single, "", Ok(("a", None)));
        let empty = value!({"metadata": {"name": "p", "namespace": "n"}, "spec": {}});
        check(&empty, "", Err("pod n/p does not have any containers"));
    }

    #[test]
    fn workloads_and_services_have_a_selector_of_pods() {
        let check = |object: Value, expect: Result<&str, &str>| {
            let found = selector_of(&object).map(|selector| selector.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expect);
        };
        let object = |kind: &str, selector: Value| value!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "o"}, "spec": {"selector": selector}});
        check(object("Deployment", value!({"matchLabels": {"app": "a", "x": "y"}})), Ok("app=a,x=y"));
        check(object("Service", value!({"app": "a"})), Ok("app=a"));
        check(object("ReplicationController", value!({"app": "a"})), Ok("app=a"));
        check(object("Service", value!({})), Err("invalid service 'o': Service is defined without a selector"));
        check(object("ConfigMap", value!({})), Err("selector for *v1.ConfigMap not implemented"));
    }
}
