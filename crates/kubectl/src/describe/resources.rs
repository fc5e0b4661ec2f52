//! The resources that a pod requests: the sum over its containers, or the needs of its init containers if greater.

use std::collections::BTreeMap;

use apimachinery::Value;
use apimachinery::quantity::Quantity;

use super::read::{Read, quantity};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// The source of the amounts of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Spec,
    /// The greater of the spec and the status, which lags behind while a pod is resized.
    SpecAndStatus,
}

/// Resources that a pod may set for all of its containers.
fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// Returns the total requests of a pod with its overhead.
pub fn requests(pod: &Value, from: From) -> Amounts {
    let mut total = aggregate(pod, "requests", from);
    total.extend(pod_level(pod, "requests"));
    add(&mut total, &amounts(pod.sub("spec.overhead")));
    total
}

/// Returns the total limits of a pod. Overhead is added to limits that are set.
pub fn limits(pod: &Value, from: From) -> Amounts {
    let mut total = aggregate(pod, "limits", from);
    total.extend(pod_level(pod, "limits"));
    for (resource, overhead) in amounts(pod.sub("spec.overhead")) {
        if let Some(limit) = total.get_mut(&resource).filter(|limit| !limit.is_zero()) {
            *limit = limit.add(overhead);
        }
    }
    total
}

pub fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        total.entry(resource.clone()).and_modify(|have| *have = have.add(*amount)).or_insert(*amount);
    }
}

fn pod_level(pod: &Value, of: &str) -> impl Iterator<Item = (String, Quantity)> {
    amounts(pod.sub("spec.resources").sub(of)).into_iter().filter(|(resource, _)| is_pod_level(resource))
}

fn aggregate(pod: &Value, of: &str, from: From) -> Amounts {
    let spec = pod.sub("spec");
    let mut total = Amounts::new();
    for container in spec.list("containers") {
        add(&mut total, &container_amounts(pod, container, of, from));
    }
    // An init container runs together with the sidecars before it.
    let mut sidecars = Amounts::new();
    let mut init = Amounts::new();
    for container in spec.list("initContainers") {
        if container.text("restartPolicy") == "Always" {
            let amounts = container_amounts(pod, container, of, from);
            add(&mut total, &amounts);
            add(&mut sidecars, &amounts);
            raise(&mut init, &sidecars);
        } else {
            let mut amounts = container_amounts(pod, container, of, From::Spec);
            add(&mut amounts, &sidecars);
            raise(&mut init, &amounts);
        }
    }
    raise(&mut total, &init);
    total
}

fn container_amounts(pod: &Value, container: &Value, of: &str, from: From) -> Amounts {
    let spec = amounts(container.sub("resources").sub(of));
    let statuses = ["status.containerStatuses", "status.initContainerStatuses"];
    let mut statuses = statuses.into_iter().flat_map(|path| pod.list(path));
    let status = statuses.find(|status| status.text("name") == container.text("name") && status.has("resources"));
    let (From::SpecAndStatus, Some(status)) = (from, status) else { return spec };
    // A resize that cannot happen does not count.
    let mut total = if is_resize_infeasible(pod) { Amounts::new() } else { spec };
    raise(&mut total, &amounts(status.sub("resources").sub(of)));
    if of == "requests" {
        raise(&mut total, &amounts(status.sub("allocatedResources")));
    }
    total
}

fn is_resize_infeasible(pod: &Value) -> bool {
    let mut conditions = pod.list("status.conditions").iter();
    let pending = conditions.find(|condition| condition.text("type") == "PodResizePending");
    pending.is_some_and(|condition| condition.text("reason") == "Infeasible")
}

/// Sets each amount to the greater of both.
fn raise(total: &mut Amounts, to: &Amounts) {
    for (resource, amount) in to {
        let have = total.entry(resource.clone()).or_insert(*amount);
        if *amount > *have {
            *have = *amount;
        }
    }
}

fn amounts(value: &Value) -> Amounts {
    let entries = value.as_object().into_iter().flat_map(apimachinery::Object::iter);
    entries.map(|(resource, amount)| (resource.to_owned(), quantity(amount))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::value;

    #[test]
    fn requests_are_the_greater_of_containers_and_init_containers() {
        let container = |cpu: &str| value!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let sidecar = value!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}});
        let pod = value!({"spec": {
            "containers": [(container("200m")), (container("50m"))],
            "initContainers": [sidecar, (container("1"))],
            "overhead": {"cpu": "10m"},
        }});
        assert_eq!(requests(&pod, From::Spec)["cpu"].to_string(), "1110m");
    }

    #[test]
    fn the_status_counts_while_a_pod_is_resized() {
        let pod = value!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
        });
        assert_eq!(requests(&pod, From::Spec)["cpu"].to_string(), "1");
        assert_eq!(requests(&pod, From::SpecAndStatus)["cpu"].to_string(), "2");
    }
}
