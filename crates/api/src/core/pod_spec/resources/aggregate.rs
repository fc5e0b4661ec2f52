//! Aggregate container resources, compared with pod-level resources.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Object, Value};

use super::is_huge_pages;
use crate::amounts::is_pod_level;
use crate::core::resource_names::may_overcommit;
use crate::field_rules::quantity;
use crate::view::PodSpec;

/// Defaults pod-level resources that are partially specified.
pub(crate) fn default_pod_level(spec: &mut Value) {
    let Some(resources) = spec.get("resources").and_then(Value::as_object) else { return };
    let map = |field: &str| resources.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
    let (mut limits, mut requests) = (map("limits"), map("requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    for (name, limit) in PodSpec(spec).container_limits() {
        if is_huge_pages(&name) && !requests.contains_key(&name) {
            limits.get_or_insert_with(&name, || limit.to_string().into());
        }
    }
    if !limits.is_empty() {
        for (name, request) in PodSpec(spec).container_requests() {
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
    for (name, sum) in PodSpec(spec.value()).container_requests() {
        let request = requests.entry(&name);
        if request.is_present() && sum > quantity(request.value()) {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.push(request.invalid(detail));
        }
    }
    for (name, sum) in PodSpec(spec.value()).container_limits() {
        let limit = limits.entry(&name);
        if is_huge_pages(&name) && limit.is_present() && sum > quantity(limit.value()) {
            let detail = format!("must be greater than or equal to aggregate container limits of {sum}");
            errors.push(limit.invalid(detail));
        }
    }
    let containers = resources.path().field("containers");
    for (index, container) in PodSpec(spec.value()).app_containers().enumerate() {
        let of = container.spec.at(&["resources", "limits"]).and_then(Value::as_object);
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
