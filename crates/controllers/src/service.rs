//! Service facts shared by the Endpoints and EndpointSlice controllers.

use std::net::IpAddr;

use api::resources::SERVICES;
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Key, Object, Value};
use controller::Cache;

/// The label of Endpoints and EndpointSlices of headless Services.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
/// The annotation with the time of the last change that triggered an update.
pub(crate) const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Whether the Service has a selector. Endpoints of other Services are managed by other components.
pub(crate) fn has_selector(service: &Value) -> bool {
    service.at(&["spec", "selector"]).and_then(Value::as_object).is_some_and(|labels| !labels.is_empty())
}

pub(crate) fn selects(service: &Value, pod: &Value) -> bool {
    let labels = Meta::of(pod);
    has_selector(service)
        && service.entries_at(&["spec", "selector"]).all(|(key, value)| labels.label(key) == Some(value))
}

/// Whether the Service has no cluster IP.
pub(crate) fn is_headless(service: &Value) -> bool {
    service.text_at(&["spec", "clusterIP"]) == "None" || service.text_at(&["spec", "clusterIP"]).is_empty()
}

/// Whether the Service publishes pods that are not ready.
pub(crate) fn publishes_unready(service: &Value) -> bool {
    service.is_true_at(&["spec", "publishNotReadyAddresses"])
}

/// Returns the IP families of the Service, `IPv4` and `IPv6`, the primary first.
pub(crate) fn families(service: &Value) -> Vec<&'static str> {
    let known = |family: &Value| match family.as_str() {
        Some("IPv4") => Some("IPv4"),
        Some("IPv6") => Some("IPv6"),
        _ => None,
    };
    let specified: Vec<&'static str> = service.list_at(&["spec", "ipFamilies"]).iter().filter_map(known).collect();
    if !specified.is_empty() {
        return specified;
    }
    match service.text_at(&["spec", "clusterIP"]).parse() {
        Ok(IpAddr::V4(_)) => vec!["IPv4"],
        Ok(IpAddr::V6(_)) => vec!["IPv6"],
        // Without a family the addresses of all families are published.
        Err(_) => vec!["IPv4", "IPv6"],
    }
}

/// Returns the IP family of an address.
pub(crate) fn family(address: &str) -> Option<&'static str> {
    match address.parse().ok()? {
        IpAddr::V4(_) => Some("IPv4"),
        IpAddr::V6(_) => Some("IPv6"),
    }
}

/// Returns the addresses of a pod in an IP family.
pub(crate) fn addresses<'a>(pod: &'a Value, of: &'a str) -> impl Iterator<Item = &'a str> {
    let all = pod.list_at(&["status", "podIPs"]).iter().filter_map(|entry| entry.str_at(&["ip"]));
    all.filter(move |address| family(address) == Some(of))
}

/// Whether a pod is published as an endpoint.
pub(crate) fn is_published(pod: &Value, terminating_too: bool) -> bool {
    let has_address = !pod.text_at(&["status", "podIP"]).is_empty() || !pod.list_at(&["status", "podIPs"]).is_empty();
    !Pod(pod).is_terminal() && has_address && (terminating_too || !Meta::of(pod).is_deleting())
}

/// Returns the pod's hostname if its subdomain is the Service.
pub(crate) fn hostname<'a>(pod: &'a Value, service: &Value) -> Option<&'a str> {
    let name = pod.text_at(&["spec", "hostname"]);
    let is_part = pod.text_at(&["spec", "subdomain"]) == Meta::of(service).name();
    (!name.is_empty() && is_part).then_some(name)
}

/// Returns the port of the pod that a Service port targets.
pub(crate) fn target_port(pod: &Value, port: &Value) -> Option<i64> {
    let protocol = port.str_at(&["protocol"]).unwrap_or("TCP");
    let name = match port.get("targetPort") {
        Some(Value::Int(number)) if *number != 0 => return Some(*number),
        Some(Value::String(name)) => name.as_str(),
        _ => return port.get("port").and_then(Value::as_int),
    };
    let sidecars = pod.list_at(&["spec", "initContainers"]).iter();
    let sidecars = sidecars.filter(|container| container.text_at(&["restartPolicy"]) == "Always");
    let containers = pod.list_at(&["spec", "containers"]).iter().chain(sidecars);
    let mut ports = containers.flat_map(|container| container.list_at(&["ports"]));
    let named = ports
        .find(|have| have.text_at(&["name"]) == name && have.str_at(&["protocol"]).unwrap_or("TCP") == protocol)?;
    named.get("containerPort").and_then(Value::as_int)
}

/// Returns the targetRef of a pod.
pub(crate) fn target(pod: &Value) -> Value {
    let meta = Meta::of(pod);
    let mut target = Object::new();
    target.insert("kind", "Pod");
    target.insert("namespace", meta.namespace());
    target.insert("name", meta.name());
    target.insert("uid", meta.uid());
    Value::Object(target)
}

/// Adds the Services that select the pod.
pub(crate) fn of_pod(cache: &Cache, pod: &Value, keys: &mut Vec<Key>) {
    for entry in cache.of(SERVICES).in_namespace(Meta::of(pod).namespace()) {
        if selects(&entry.value, pod) {
            keys.push(entry.key.clone());
        }
    }
}

/// Returns the newest change time: creation of the Service, or readiness of a pod.
// DEVIATION: the trigger time is that of the newest change; upstream tracks changes in memory and uses the oldest since
// its last sync.
pub(crate) fn changed_at(service: &Value, pods: &[&Value]) -> Option<Time> {
    let of_pods = pods.iter().filter_map(|pod| Pod(pod).ready_since());
    of_pods.chain(Meta::of(service).creation_timestamp()).max()
}
