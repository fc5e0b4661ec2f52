//! Aggregate container resources, compared with pod-level resources.

use std::collections::BTreeMap;

use apimachinery::field::Error;
use apimachinery::quantity::Quantity;
use apimachinery::{At, Errors, Object, Value};

use super::{is_huge_pages, is_pod_level};
use crate::core::resource_names::may_overcommit;
use crate::field_rules::quantity;

/// Returns the effective requests or limits of a pod's containers. Concurrent containers add up; init containers count
/// only where they need more.
pub(super) fn together(spec: &Value, of: &str) -> BTreeMap<String, Quantity> {
    let mut sum = BTreeMap::new();
    for container in list(spec, "containers") {
        add(&mut sum, container, of);
    }
    let (mut sidecars, mut most) = (BTreeMap::new(), BTreeMap::new());
    for container in list(spec, "initContainers") {
        let now = if container.str_at(&["restartPolicy"]) == Some("Always") {
            add(&mut sum, container, of);
            add(&mut sidecars, container, of);
            sidecars.clone()
        } else {
            let mut now = sidecars.clone();
            add(&mut now, container, of);
            now
        };
        largest(&mut most, now);
    }
    largest(&mut sum, most);
    sum
}

/// Defaults pod-level resources that are partially specified.
pub(crate) fn default_pod_level(spec: &mut Value) {
    let Some(resources) = spec.get("resources").and_then(Value::as_object) else { return };
    let map = |field: &str| resources.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
    let (mut limits, mut requests) = (map("limits"), map("requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    for (name, limit) in together(spec, "limits") {
        if is_huge_pages(&name) && !requests.contains_key(&name) {
            limits.get_or_insert_with(&name, || limit.to_string().into());
        }
    }
    if !limits.is_empty() {
        for (name, request) in together(spec, "requests") {
            if is_pod_level(&name) && may_overcommit(&name) {
                requests.get_or_insert_with(&name, || request.to_string().into());
            }
        }
        for (name, limit) in limits.iter().filter(|(name, _)| is_pod_level(name)) {
            requests.get_or_insert_with(name, || limit.clone());
        }
    }
    if let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) {
        set(resources, "limits", limits);
        set(resources, "requests", requests);
    }
}

/// Requires pod-level resources to be sufficient for the containers.
pub(super) fn consistent(spec: &At<'_>, resources: &At<'_>, errors: &mut Errors) {
    let (requests, limits) = (resources.get("requests"), resources.get("limits"));
    for (name, sum) in together(spec.value(), "requests") {
        let request = requests.entry(&name);
        if request.is_present() && sum > quantity(request.value()) {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.push(request.invalid(detail));
        }
    }
    for (name, sum) in together(spec.value(), "limits") {
        let limit = limits.entry(&name);
        if is_huge_pages(&name) && limit.is_present() && sum > quantity(limit.value()) {
            let detail = format!("must be greater than or equal to aggregate container limits of {sum}");
            errors.push(limit.invalid(detail));
        }
    }
    let containers = resources.path().field("containers");
    for (index, container) in list(spec.value(), "containers").iter().enumerate() {
        let of = container.at(&["resources", "limits"]).and_then(Value::as_object);
        for (name, own) in of.into_iter().flat_map(Object::iter) {
            let limit = limits.entry(name);
            if limit.is_present() && quantity(own) > quantity(limit.value()) {
                let detail = format!("must be less than or equal to pod limits of {}", limit.str());
                let at = containers.index(index);
                errors.push(Error::invalid(&at.key(name).field("limits"), own.clone(), detail));
            }
        }
    }
}

fn list<'a>(spec: &'a Value, field: &str) -> &'a [Value] {
    spec.get(field).and_then(Value::as_array).unwrap_or_default()
}

fn add(sum: &mut BTreeMap<String, Quantity>, container: &Value, of: &str) {
    let amounts = container.at(&["resources", of]).and_then(Value::as_object);
    for (name, amount) in amounts.into_iter().flat_map(Object::iter) {
        let amount = quantity(amount);
        sum.entry(name.to_owned()).and_modify(|sum| *sum = sum.add(amount)).or_insert(amount);
    }
}

fn largest(most: &mut BTreeMap<String, Quantity>, other: BTreeMap<String, Quantity>) {
    for (name, amount) in other {
        let most = most.entry(name).or_insert(amount);
        if amount > *most {
            *most = amount;
        }
    }
}

fn set(resources: &mut Object, field: &str, amounts: Object) {
    if !amounts.is_empty() {
        resources.insert(field, amounts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::value;

    #[test]
    fn aggregate_is_the_maximum_of_containers_and_init_containers() {
        let cpu = |amount: &str| value!({"requests": {"cpu": amount}});
        let spec = value!({
            "containers": [{"resources": (cpu("100m"))}, {"resources": (cpu("200m"))}],
            "initContainers": [
                {"resources": (cpu("50m")), "restartPolicy": "Always"},
                {"resources": (cpu("1"))}
            ]
        });
        assert_eq!(together(&spec, "requests")["cpu"].to_string(), "1050m");
    }

    #[test]
    fn pod_level_requests_default_to_limits() {
        let check = |mut spec: Value, expect: Value| {
            default_pod_level(&mut spec);
            assert_eq!(spec["resources"], expect);
        };
        check(
            value!({"resources": {"limits": {"cpu": "1"}}}),
            value!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
        );
        check(
            value!({"resources": {"limits": {"cpu": "1"}}, "containers": [{"resources": {"requests": {"cpu": "10m"}}}]}),
            value!({"limits": {"cpu": "1"}, "requests": {"cpu": "10m"}}),
        );
        check(value!({"resources": {"requests": {"cpu": "1"}}}), value!({"requests": {"cpu": "1"}}));
        check(value!({"resources": {}}), value!({}));
    }
}
