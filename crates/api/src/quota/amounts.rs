//! Resource amounts by name, and the total of a pod.

use std::collections::BTreeMap;

use apimachinery::quantity::Quantity;
use apimachinery::{Object, Str, Value};

use super::{items, text};

/// Quantities by resource name.
pub type Amounts = BTreeMap<Str, Quantity>;

/// Reads a map of quantities. Invalid quantities are skipped: validation rejects them.
pub fn read(map: Option<&Value>) -> Amounts {
    let entries = map.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(name, amount)| Some((name.into(), quantity(amount)?))).collect()
}

pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Int(int) => Some(Quantity::new(*int, apimachinery::quantity::Format::DecimalSI)),
        _ => None,
    }
}

/// Formats a map of quantities.
pub fn write(amounts: &Amounts) -> Value {
    Value::Object(amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect())
}

/// Adds the amounts of `more` by name.
pub fn add(amounts: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = amounts.get(name).map_or(*amount, |have| have.add(*amount));
        amounts.insert(name.clone(), sum);
    }
}

/// Sets each amount to the maximum of both.
fn raise(amounts: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let greater = amounts.get(name).map_or(*amount, |have| if have < amount { *amount } else { *have });
        amounts.insert(name.clone(), greater);
    }
}

/// Returns the total `requests` or `limits` of a pod: the maximum of its containers together and of each init container
/// with the sidecars before it. Pod-level resources override this; the overhead is added.
pub fn of_pod(spec: &Value, field: &str) -> Amounts {
    let of = |container: &Value| read(container.at(&["resources", field]));
    let mut total = Amounts::new();
    for container in items(spec, "containers") {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in items(spec, "initContainers") {
        let mut needed = of(container);
        if text(container, "restartPolicy") == "Always" {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            raise(&mut starting, &sidecars);
        } else {
            add(&mut needed, &sidecars);
            raise(&mut starting, &needed);
        }
    }
    raise(&mut total, &starting);
    for (name, amount) in read(spec.at(&["resources", field])) {
        total.insert(name, amount);
    }
    for (name, amount) in read(spec.get("overhead")) {
        // Overhead is not added to a resource without a limit.
        if field == "requests" || total.get(&name).is_some_and(|limit| !limit.is_zero()) {
            add(&mut total, &Amounts::from([(name, amount)]));
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &str, expect: &str) {
        let spec = apimachinery::json::parse(spec.as_bytes()).unwrap();
        let found =
            of_pod(&spec, "requests").iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>();
        assert_eq!(found.join(","), expect, "{}", apimachinery::json::to_string(&spec));
    }

    #[test]
    fn pod_total_is_the_maximum_of_containers_and_init_containers() {
        let one = |cpu: &str, more: &str| format!(r#"{{"resources":{{"requests":{{"cpu":"{cpu}"}}}}{more}}}"#);
        let sidecar = one("1", r#","restartPolicy":"Always""#);
        let (small, big) = (one("100m", ""), one("3", ""));
        check(&format!(r#"{{"containers":[{small},{small}]}}"#), "cpu=200m");
        check(&format!(r#"{{"containers":[{small}],"initContainers":[{big}]}}"#), "cpu=3");
        check(&format!(r#"{{"containers":[{small}],"initContainers":[{sidecar},{big}]}}"#), "cpu=4");
        check(&format!(r#"{{"containers":[{small}],"initContainers":[{sidecar}]}}"#), "cpu=1100m");
        check(&format!(r#"{{"containers":[{small}],"overhead":{{"cpu":"50m"}}}}"#), "cpu=150m");
        check(&format!(r#"{{"containers":[{small}],"resources":{{"requests":{{"cpu":"2"}}}}}}"#), "cpu=2");
        check("{}", "");
    }
}
