//! Reference computation of a pod's requests.

use apimachinery::Value;

/// Returns the maximum that a pod needs of a resource at any time: millicores, bytes, or a count.
pub(crate) fn amount(pod: &Value, resource: &str) -> i64 {
    total(pod, resource, 0)
}

/// Like [`amount`], for scoring: missing CPU and memory requests get default values.
pub(crate) fn guessed(pod: &Value, resource: &str) -> i64 {
    total(pod, resource, guess(resource))
}

/// Returns the amount that an existing pod counts in scoring: with pod-level requests, default values apply only to
/// resources that no part of the pod requests.
pub(crate) fn load(pod: &Value, resource: &str) -> i64 {
    let spec = &pod["spec"];
    let requests_resource =
        |holder: &Value, path: &[&str]| holder.at(path).is_some_and(|list| list.get(resource).is_some());
    let of_containers = |field: &str| {
        let list = spec.get(field).and_then(Value::as_array).unwrap_or_default();
        list.iter().any(|container| requests_resource(container, &["resources", "requests"]))
    };
    let anywhere = requests_resource(spec, &["resources", "requests"])
        || requests_resource(spec, &["overhead"])
        || of_containers("containers")
        || of_containers("initContainers");
    let is_whole = spec.at(&["resources", "requests"]).is_some();
    total(pod, resource, if is_whole && anywhere { 0 } else { guess(resource) })
}

fn guess(resource: &str) -> i64 {
    match resource {
        "cpu" => 100,
        "memory" => 200 << 20,
        _ => 0,
    }
}

fn total(pod: &Value, resource: &str, missing: i64) -> i64 {
    let spec = &pod["spec"];
    let of = |holder: &Value, path: &[&str]| {
        holder.at(path).and_then(|list| list.get(resource)).map(|amount| units(amount, resource))
    };
    let own = |container: &Value| of(container, &["resources", "requests"]).unwrap_or(missing);
    let list = |field: &str| spec.get(field).and_then(Value::as_array).unwrap_or_default();
    let (mut sidecars, mut peak) = (0, 0);
    for container in list("initContainers") {
        if container.str_at(&["restartPolicy"]) == Some("Always") {
            sidecars += own(container);
            peak = peak.max(sidecars);
        } else {
            peak = peak.max(sidecars + own(container));
        }
    }
    let together = list("containers").iter().map(own).sum::<i64>() + sidecars;
    let whole = if resource.contains('/') { None } else { of(spec, &["resources", "requests"]) };
    whole.unwrap_or(together.max(peak)) + of(spec, &["overhead"]).unwrap_or(0)
}

/// Parses the quantity formats that the random generator uses.
pub(crate) fn units(amount: &Value, resource: &str) -> i64 {
    let text = amount.as_str().unwrap();
    let cut = |suffix: &str| text.strip_suffix(suffix).map(|number| number.parse::<i64>().unwrap());
    match (cut("m"), cut("Mi"), cut("Gi")) {
        (Some(milli), ..) => milli,
        (_, Some(mebibytes), _) => mebibytes << 20,
        (.., Some(gibibytes)) => gibibytes << 30,
        _ if resource == "cpu" => 1000 * text.parse::<i64>().unwrap(),
        _ => text.parse().unwrap(),
    }
}
