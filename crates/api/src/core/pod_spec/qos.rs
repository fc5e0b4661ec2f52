//! QoS class of a pod.

use apimachinery::Value;
use apimachinery::quantity::Quantity;

use crate::field_rules::quantity;

/// Resources that determine the class.
const DECIDING: [&str; 2] = ["cpu", "memory"];

/// Returns `Guaranteed`, `Burstable` or `BestEffort`.
pub(crate) fn class(spec: &Value) -> &'static str {
    let pod_level = spec.get("resources").filter(|resources| !resources.is_null());
    let containers = ["containers", "initContainers"].into_iter().flat_map(|field| {
        spec.get(field).and_then(Value::as_array).unwrap_or_default().iter().map(|container| &container["resources"])
    });
    let mut sums = [[Quantity::ZERO; 2]; 2];
    let mut all_limited = true;
    let mut count = |resources: &Value| {
        for (index, name) in DECIDING.iter().enumerate() {
            let amount = |of: &str| resources.at(&[of, name]).map_or(Quantity::ZERO, quantity);
            let [request, limit] = [amount("requests"), amount("limits")];
            sums[0][index] = sums[0][index].add(positive(request));
            sums[1][index] = sums[1][index].add(positive(limit));
            all_limited &= limit > Quantity::ZERO;
        }
    };
    match pod_level {
        Some(resources) => count(resources),
        None => containers.for_each(count),
    }
    let [requests, limits] = sums;
    if requests.iter().chain(&limits).all(|sum| sum.is_zero()) {
        "BestEffort"
    } else if all_limited && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn positive(amount: Quantity) -> Quantity {
    if amount.is_negative() { Quantity::ZERO } else { amount }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::value;

    #[test]
    fn qos_class_depends_on_requests_and_limits_of_all_containers() {
        let check = |spec: Value, expect: &str| assert_eq!(class(&spec), expect, "{spec:?}");
        let full = value!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}});
        check(value!({}), "BestEffort");
        check(value!({"containers": [{"resources": {}}]}), "BestEffort");
        check(value!({"containers": [{"resources": {"requests": {"ephemeral-storage": "1"}}}]}), "BestEffort");
        check(value!({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}), "BestEffort");
        check(value!({"containers": [{"resources": (full.clone())}]}), "Guaranteed");
        check(value!({"containers": [{"resources": (full.clone())}, {"resources": {}}]}), "Burstable");
        check(value!({"containers": [{"resources": (full.clone())}], "initContainers": [{}]}), "Burstable");
        check(value!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}), "Burstable");
        check(value!({"containers": [{}], "resources": full}), "Guaranteed");
    }
}
