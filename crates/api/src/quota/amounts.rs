//! Amounts of resources by name, and what a pod needs of them.

use std::collections::BTreeMap;

use machinery::quantity::Quantity;
use machinery::{Object, Str, Value};

use super::{items, text};

/// Amounts by the name of the resource.
pub type Amounts = BTreeMap<Str, Quantity>;

/// Reads a map of quantities. What is no quantity was refused before, or is not counted.
pub fn read(map: Option<&Value>) -> Amounts {
    let entries = map.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(name, amount)| Some((name.into(), quantity(amount)?))).collect()
}

/// Reads one quantity.
pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Int(int) => Some(Quantity::new(*int, machinery::quantity::Format::DecimalSI)),
        _ => None,
    }
}

/// Writes a map of quantities.
pub fn write(amounts: &Amounts) -> Value {
    Value::Object(amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect())
}

/// Adds to each amount what `more` has of the same name.
pub fn add(amounts: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = amounts.get(name).map_or(*amount, |have| have.add(*amount));
        amounts.insert(name.clone(), sum);
    }
}

/// The greater of both, name by name.
fn raise(amounts: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let greater = amounts.get(name).map_or(*amount, |have| if have < amount { *amount } else { *have });
        amounts.insert(name.clone(), greater);
    }
}

/// What a pod needs or may use at most in all, by `requests` or `limits`: its containers together or, while it starts,
/// the init container that needs most beside the sidecars before it; its own word where it gives one; and its overhead.
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
        // What has no limit does not get one by its overhead.
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
        let spec = machinery::json::parse(spec.as_bytes()).unwrap();
        let found =
            of_pod(&spec, "requests").iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>();
        assert_eq!(found.join(","), expect, "{}", machinery::json::to_string(&spec));
    }

    #[test]
    fn a_pod_needs_what_its_containers_need_together_or_its_greediest_start() {
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
