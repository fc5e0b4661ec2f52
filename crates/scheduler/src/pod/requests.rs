//! Resource requests of a pod: containers, sidecars, overhead, pod-level resources and in-place resizes.

use apimachinery::quantity::{Format, Quantity};
use apimachinery::{Str, Value};

use super::{Error, items};
use crate::resources::{self, List, Resources};

/// CPU that scoring assumes for a container without a CPU request.
pub const MISSING_CPU_MILLI: i64 = 100;
/// Memory that scoring assumes for a container without a memory request: 200 MiB.
pub const MISSING_MEMORY: i64 = 200 * 1024 * 1024;

/// Sums of a pod's requests.
pub(super) struct Amounts {
    /// Requests that the node must provide.
    pub requests: Resources,
    /// CPU and memory of the pod in a node's usage, for scoring.
    pub non_zero: [i64; 2],
    /// CPU and memory of the pod to schedule, for scoring.
    pub scored: [i64; 2],
}

/// Sums up the requests of a pod.
pub(super) fn requests(spec: &Value, status: &Value) -> Result<Amounts, Error> {
    let own = pod_level(spec, status)?;
    let none = List::new();
    let requests = total(spec, status, &own, &none)?;
    let mut missing = List::new();
    missing.insert("cpu".into(), Quantity::milli(MISSING_CPU_MILLI, Format::DecimalSI));
    missing.insert("memory".into(), Quantity::new(MISSING_MEMORY, Format::DecimalSI));
    let pair = |list: &List| {
        let sums = Resources::from_list(list);
        [sums.cpu_milli, sums.memory]
    };
    let scored = pair(&total(spec, status, &own, &missing)?);
    // With pod-level requests, the default values apply only to resources that no part of the pod requests.
    let guessed = if own.is_empty() {
        scored
    } else {
        missing.retain(|name, _| !requests.contains_key(name));
        pair(&total(spec, status, &own, &missing)?)
    };
    Ok(Amounts { requests: Resources::from_list(&requests), non_zero: guessed, scored })
}

fn total(spec: &Value, status: &Value, own: &List, missing: &List) -> Result<List, Error> {
    let one = |container: &Value, statuses: &str| -> Result<List, Error> {
        let mut list = container_requests(container, status, statuses)?;
        for (name, amount) in missing {
            list.entry(name.clone()).or_insert(*amount);
        }
        Ok(list)
    };
    let mut sum = List::new();
    for container in items(spec, "containers") {
        resources::add(&mut sum, &one(container, "containerStatuses")?);
    }
    let (mut sidecars, mut peak) = (List::new(), List::new());
    for container in items(spec, "initContainers") {
        if container.str_at(&["restartPolicy"]) == Some("Always") {
            let list = one(container, "initContainerStatuses")?;
            resources::add(&mut sum, &list);
            resources::add(&mut sidecars, &list);
            resources::raise(&mut peak, &sidecars);
        } else {
            let mut list = one(container, "")?;
            resources::add(&mut list, &sidecars);
            resources::raise(&mut peak, &list);
        }
    }
    resources::raise(&mut sum, &peak);
    sum.extend(own.iter().map(|(name, amount)| (name.clone(), *amount)));
    resources::add(&mut sum, &resources::list(spec.get("overhead"), "spec.overhead")?);
    Ok(sum)
}

/// Returns pod-level requests of the resources that support them.
fn pod_level(spec: &Value, status: &Value) -> Result<List, Error> {
    let desired = supported(resources::list(spec.at(&["resources", "requests"]), "spec.resources.requests")?);
    if desired.is_empty() {
        return Ok(desired);
    }
    let had = status.at(&["resources", "requests"]);
    let promised = status.get("allocatedResources");
    let fields = ["status.resources.requests", "status.allocatedResources"];
    let is_reported = status.get("resources").is_some_and(|it| !it.is_null());
    Ok(if is_reported { supported(effective_requests(desired, status, [had, promised], fields)?) } else { desired })
}

fn supported(mut list: List) -> List {
    list.retain(|name: &Str, _| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-"));
    list
}

/// Returns the effective requests of a container.
fn container_requests(container: &Value, status: &Value, statuses: &str) -> Result<List, Error> {
    let field = "spec.containers[].resources.requests";
    let desired = resources::list(container.at(&["resources", "requests"]), field)?;
    let name = container.str_at(&["name"]);
    let own = items(status, statuses).iter().find(|it| it.str_at(&["name"]) == name && it.get("resources").is_some());
    let Some(own) = own else { return Ok(desired) };
    let (had, promised) = (own.at(&["resources", "requests"]), own.get("allocatedResources"));
    let fields = ["status.containerStatuses[].resources.requests", "status.containerStatuses[].allocatedResources"];
    effective_requests(desired, status, [had, promised], fields)
}

/// Returns the requests that count during an in-place resize: the maximum of actual, allocated and desired amounts.
/// Desired amounts are ignored if the resize is infeasible.
fn effective_requests(
    desired: List,
    status: &Value,
    reported: [Option<&Value>; 2],
    fields: [&'static str; 2],
) -> Result<List, Error> {
    let mut effective = if resize_is_infeasible(status) { List::new() } else { desired };
    for (list, field) in reported.into_iter().zip(fields) {
        resources::raise(&mut effective, &resources::list(list, field)?);
    }
    Ok(effective)
}

fn resize_is_infeasible(status: &Value) -> bool {
    items(status, "conditions").iter().any(|condition| {
        condition.str_at(&["type"]) == Some("PodResizePending") && condition.str_at(&["reason"]) == Some("Infeasible")
    })
}
