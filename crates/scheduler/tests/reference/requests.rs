//! What a pod asks for, from its object alone.

use machinery::Value;

/// The most of a resource that a pod ever needs at once: thousandths of a processor, bytes, or a count.
pub fn amount(pod: &Value, resource: &str) -> i64 {
    let spec = &pod["spec"];
    let of = |holder: &Value, path: &[&str]| {
        holder.at(path).and_then(|list| list.get(resource)).map(|amount| units(amount, resource))
    };
    let own = |container: &Value| of(container, &["resources", "requests"]).unwrap_or(0);
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

/// The few forms of amounts that are rolled.
fn units(amount: &Value, resource: &str) -> i64 {
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
