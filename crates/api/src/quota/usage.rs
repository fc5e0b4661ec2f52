//! Quota usage of an object.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::meta::Meta;
use apimachinery::quantity::{Format, Quantity};
use apimachinery::time::{Duration, Time};
use apimachinery::{Str, Value};

use super::spec;
use crate::amounts::{self, Amounts};
use crate::view::{AmountsFrom, Pod};

/// Resources that have a plain quota name in addition to `count/…`.
const PLAIN_COUNTS: [&str; 7] =
    ["pods", "services", "persistentvolumeclaims", "configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
/// Resources that every container must specify if a quota counts them.
const EXPLICIT: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const CLASS: &str = ".storageclass.storage.k8s.io/";
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// Maximum number of devices of a request with allocation mode All.
const DEVICES_MAX: i64 = 32;

/// Whether objects of this resource can use the quota resource `name`.
pub fn counts(group: &str, plural: &str, name: &str) -> bool {
    if name == count_name(group, plural) || group.is_empty() && plural == name && PLAIN_COUNTS.contains(&name) {
        return true;
    }
    match (group, plural) {
        ("", "pods") => is_compute(name),
        ("", "services") => matches!(name, "services.nodeports" | "services.loadbalancers"),
        ("", "persistentvolumeclaims") => name == "requests.storage" || name.contains(CLASS),
        ("resource.k8s.io", "resourceclaims") => name.ends_with(DEVICES),
        _ => false,
    }
}

fn is_compute(name: &str) -> bool {
    let base = name.strip_prefix("requests.").unwrap_or(name);
    let limited = name.strip_prefix("limits.").unwrap_or(name);
    matches!(base, "cpu" | "memory" | "ephemeral-storage")
        || matches!(limited, "cpu" | "memory" | "ephemeral-storage")
        || base.starts_with("hugepages-")
        || name.starts_with("requests.") && is_extended(base)
}

/// Whether the name is an extended resource: its domain is not kubernetes.io or a subdomain.
fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

/// Returns the usage of an object.
pub fn of(group: &str, plural: &str, object: &Value, now: Time) -> Amounts {
    let mut used = Amounts::from([(count_name(group, plural).into(), one(1))]);
    match (group, plural) {
        ("", "pods") => of_pod(Pod(object), &mut used, now),
        ("", "services") => of_service(object, &mut used),
        ("", "persistentvolumeclaims") => of_claim(object, &mut used),
        ("resource.k8s.io", "resourceclaims") => of_resource_claim(object, &mut used),
        ("", plural) if PLAIN_COUNTS.contains(&plural) => {
            used.insert(plural.into(), one(1));
        }
        _ => {}
    }
    used
}

fn one(count: i64) -> Quantity {
    Quantity::new(count, Format::DecimalSI)
}

fn of_pod(pod: Pod<'_>, used: &mut Amounts, now: Time) {
    let meta = pod.meta();
    let grace = Duration::from_seconds(meta.deletion_grace_period_seconds().unwrap_or(0));
    let overdue = meta.deletion_timestamp().is_some_and(|at| now > at.plus(grace));
    if pod.is_terminal() || overdue {
        return;
    }
    used.insert("pods".into(), one(1));
    let from = AmountsFrom::ContainerStatuses;
    used.extend(compute(&pod.requests(from), &pod.limits(from)));
}

/// Returns requests and limits by their quota names.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::new();
    for (name, amount) in requests {
        let standard =
            matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if standard {
            used.insert(name.clone(), *amount);
        }
        if standard || is_extended(name) {
            used.insert(format!("requests.{name}").into(), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}").into(), *amount);
        }
    }
    used
}

/// Returns the resources that containers must specify and do not: `requests.cpu for: a,b`. A pod with pod-level
/// resources need not specify any for its containers.
pub fn missing(pod: Pod<'_>, counted: &[Str]) -> Option<String> {
    if pod.has_pod_level("requests") || pod.has_pod_level("limits") {
        return None;
    }
    let of = |of: &Value, field: &str| amounts::read(of.at(&["resources", field]));
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let required: Vec<&str> = counted.iter().map(Str::as_str).filter(|name| EXPLICIT.contains(name)).collect();
    for container in pod.pod_spec().containers() {
        let specified = compute(&of(container, "requests"), &of(container, "limits"));
        for name in required.iter().filter(|name| !specified.contains_key(**name)) {
            missing.entry(name).or_default().insert(container.text_at(&["name"]));
        }
    }
    let all = missing.iter().map(|(name, of)| {
        let of: Vec<_> = of.iter().copied().collect();
        format!("{name} for: {}", of.join(","))
    });
    (!missing.is_empty()).then(|| all.collect::<Vec<_>>().join("; "))
}

fn of_service(service: &Value, used: &mut Amounts) {
    let ports = spec(service).list_at(&["ports"]);
    let count = |ports: usize| one(i64::try_from(ports).unwrap_or(i64::MAX));
    let balanced = spec(service).text_at(&["type"]) == "LoadBalancer";
    let node_ports = match spec(service).text_at(&["type"]) {
        "LoadBalancer" if spec(service)["allocateLoadBalancerNodePorts"] == Value::Bool(false) => {
            ports.iter().filter(|port| port["nodePort"].as_int().unwrap_or(0) != 0).count()
        }
        "NodePort" | "LoadBalancer" => ports.len(),
        _ => 0,
    };
    used.insert("services".into(), one(1));
    used.insert("services.nodeports".into(), count(node_ports));
    used.insert("services.loadbalancers".into(), one(i64::from(balanced)));
}

fn of_claim(claim: &Value, used: &mut Amounts) {
    let class = Meta::of(claim)
        .annotation("volume.beta.kubernetes.io/storage-class")
        .unwrap_or_else(|| spec(claim).text_at(&["storageClassName"]));
    used.insert("persistentvolumeclaims".into(), one(1));
    if !class.is_empty() {
        used.insert(format!("{class}{CLASS}persistentvolumeclaims").into(), one(1));
    }
    let amount = |path: &[&str]| claim.at(path).and_then(amounts::quantity);
    let requested = amount(&["spec", "resources", "requests", "storage"]);
    // While an expansion is being reverted, the allocated size counts.
    let allocated = amount(&["status", "allocatedResources", "storage"]);
    if let Some(storage) = requested.max(allocated.filter(|_| requested.is_some())) {
        used.insert("requests.storage".into(), storage);
        if !class.is_empty() {
            used.insert(format!("{class}{CLASS}requests.storage").into(), storage);
        }
    }
}

fn of_resource_claim(claim: &Value, used: &mut Amounts) {
    let device_count = |request: &Value| {
        let count = if request.text_at(&["allocationMode"]) == "All" {
            DEVICES_MAX
        } else {
            request["count"].as_int().unwrap_or(1)
        };
        (Str::from(format!("{}{DEVICES}", request.text_at(&["deviceClassName"]))), one(count))
    };
    for request in spec(claim)["devices"].list_at(&["requests"]) {
        // For alternatives, the maximum per device class counts.
        let mut needed = Amounts::new();
        let exactly = request.get("exactly").into_iter();
        for (name, count) in exactly.chain(request.list_at(&["firstAvailable"])).map(device_count) {
            let most = needed.get(&name).map_or(count, |have| count.max(*have));
            needed.insert(name, most);
        }
        amounts::add(used, &needed);
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn requests(cpu: &str) -> Value {
        value!({"requests": {"cpu": cpu}})
    }

    #[test]
    fn resized_container_uses_the_maximum_of_desired_and_actual_requests() {
        let check = |desired: &str, actual: &str, expect: &str| {
            let pod = value!({
                "spec": {"containers": [{"name": "a", "resources": (requests(desired))}]},
                "status": {"containerStatuses": [{"name": "a", "resources": (requests(actual))}]}
            });
            let used = of("", "pods", &pod, Time::from_unix(0, 0));
            assert_eq!(used["requests.cpu"].to_string(), expect, "{desired} {actual}");
        };
        check("1", "2", "2");
        check("2", "1", "2");
    }

    #[test]
    fn containers_need_no_requests_if_the_pod_has_pod_level_resources() {
        let check = |pod_level: Value, expect: Option<&str>| {
            let pod = value!({"spec": {"resources": pod_level, "containers": [{"name": "a"}, {"name": "b"}]}});
            assert_eq!(missing(Pod(&pod), &["memory".into(), "pods".into()]).as_deref(), expect, "{pod:?}");
        };
        check(Value::Null, Some("memory for: a,b"));
        check(value!({}), Some("memory for: a,b"));
        check(requests("1"), None);
        check(value!({"limits": {"cpu": "1"}}), None);
    }
}
