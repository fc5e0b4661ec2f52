//! Pod placement: node selectors, required node affinity, taints and tolerations.

use apimachinery::meta::Meta;
use apimachinery::{Object, Value};

/// Whether the nodeSelector and the required node affinity of a pod spec match the node.
pub fn fits_node(spec: &Value, node: &Value) -> bool {
    let labels = Meta::of(node);
    let selector = spec.get("nodeSelector").and_then(Value::as_object).into_iter().flat_map(Object::iter);
    let mut selected = selector.map(|(key, value)| labels.label(key) == value.as_str());
    if !selected.all(|fits| fits) {
        return false;
    }
    let required = &["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    match spec.at(required) {
        None | Some(Value::Null) => true,
        Some(required) => list(Some(required), "nodeSelectorTerms").iter().any(|term| fits_term(term, node)),
    }
}

/// Returns the first taint with one of the effects that is not tolerated.
pub fn untolerated<'a>(taints: &'a [Value], tolerations: &[Value], effects: &[&str]) -> Option<&'a Value> {
    let counts = |taint: &&Value| taint.str_at(&["effect"]).is_some_and(|effect| effects.contains(&effect));
    taints.iter().filter(counts).find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

pub fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let stated = |field| toleration.str_at(&[field]).filter(|text| !text.is_empty());
    let of_taint = |field| taint.str_at(&[field]).unwrap_or_default();
    if stated("effect").is_some_and(|effect| effect != of_taint("effect")) {
        return false;
    }
    if stated("key").is_some_and(|key| key != of_taint("key")) {
        return false;
    }
    match stated("operator").unwrap_or("Equal") {
        "Exists" => true,
        "Equal" => stated("key").is_some() && stated("value").unwrap_or_default() == of_taint("value"),
        "Lt" => compared(toleration, taint, |tainted, tolerated| tainted < tolerated),
        "Gt" => compared(toleration, taint, |tainted, tolerated| tainted > tolerated),
        _ => false,
    }
}

fn compared(toleration: &Value, taint: &Value, fits: impl Fn(i64, i64) -> bool) -> bool {
    let number = |of: &Value| of.str_at(&["value"]).and_then(|text| text.parse().ok());
    number(taint).zip(number(toleration)).is_some_and(|(tainted, tolerated)| fits(tainted, tolerated))
}

/// Whether a node selector term matches. A term without requirements matches no node.
fn fits_term(term: &Value, node: &Value) -> bool {
    let (labels, fields) = (list(Some(term), "matchExpressions"), list(Some(term), "matchFields"));
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    let meta = Meta::of(node);
    labels.iter().all(|one| fits(one, |key| meta.label(key)))
        && fields.iter().all(|one| fits(one, |key| (key == "metadata.name").then(|| meta.name())))
}

fn fits<'a>(requirement: &Value, value: impl Fn(&str) -> Option<&'a str>) -> bool {
    let have = value(requirement.str_at(&["key"]).unwrap_or_default());
    let values = list(Some(requirement), "values");
    let among = || have.is_some_and(|have| values.iter().any(|value| value.as_str() == Some(have)));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let limit = || number(values.first().and_then(Value::as_str));
    match requirement.str_at(&["operator"]).unwrap_or_default() {
        "In" => among(),
        "NotIn" => !among(),
        "Exists" => have.is_some(),
        "DoesNotExist" => have.is_none(),
        "Gt" => number(have).zip(limit()).is_some_and(|(have, limit)| have > limit),
        "Lt" => number(have).zip(limit()).is_some_and(|(have, limit)| have < limit),
        _ => false,
    }
}

fn list<'a>(of: Option<&'a Value>, field: &str) -> &'a [Value] {
    of.and_then(|of| of.get(field)).and_then(Value::as_array).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn a_pod_fits_if_its_selector_and_one_term_match() {
        let node = value!({"metadata": {"name": "n1", "labels": {"zone": "a", "size": "5"}}});
        let check = |spec: Value, expect: bool| assert_eq!(fits_node(&spec, &node), expect, "{spec}");
        let affinity = |terms: Value| value!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        check(value!({}), true);
        check(value!({"nodeSelector": {"zone": "a"}}), true);
        check(value!({"nodeSelector": {"zone": "b"}}), false);
        check(affinity(value!([])), false);
        check(affinity(value!([{}])), false);
        check(
            affinity(value!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "a"]}]}])),
            true,
        );
        check(affinity(value!([{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["5"]}]}])), false);
        check(affinity(value!([{"matchExpressions": [{"key": "size", "operator": "Lt", "values": ["6"]}]}])), true);
        check(affinity(value!([{"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}])), true);
        check(
            affinity(value!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}])),
            false,
        );
        check(
            affinity(value!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}]}])),
            true,
        );
    }

    #[test]
    fn a_taint_is_tolerated_by_key_value_and_effect() {
        let taint = value!({"key": "k", "value": "v", "effect": "NoSchedule"});
        let check =
            |toleration: Value, expect: bool| assert_eq!(tolerates(&toleration, &taint), expect, "{toleration}");
        check(value!({"operator": "Exists"}), true);
        check(value!({"key": "k", "operator": "Exists"}), true);
        check(value!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false);
        check(value!({"key": "k", "value": "v"}), true);
        check(value!({"key": "k", "value": "w"}), false);
        check(value!({"key": "x", "operator": "Exists"}), false);
    }
}
