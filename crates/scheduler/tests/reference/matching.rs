//! Reference evaluation of selectors, tolerations and terms, independent of the scheduler's code.

use apimachinery::Value;

/// Returns a text field; empty if absent.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    object.text_at(path)
}

/// Returns the items of a list; empty if absent.
pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    object.list_at(path)
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.str_at(&["metadata", "labels", key])
}

pub(crate) fn priority(pod: &Value) -> i64 {
    pod.int_at(&["spec", "priority"]).unwrap_or(0)
}

/// Returns the start time; RFC 3339 texts sort like the times.
pub(crate) fn started(pod: &Value) -> &str {
    text(pod, &["status", "startTime"])
}

pub(crate) fn is_going(pod: &Value) -> bool {
    pod.at(&["metadata", "deletionTimestamp"]).is_some()
}

/// Whether a label selector matches an object: an absent one matches nothing, an empty one everything.
pub(crate) fn selects(selector: Option<&Value>, object: &Value) -> bool {
    let Some(selector) = selector else { return false };
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    equal.is_none_or(|all| all.iter().all(|(key, value)| label(object, key) == value.as_str()))
        && list(selector, &["matchExpressions"]).iter().all(|it| holds(it, label(object, text(it, &["key"]))))
}

/// Whether a label selector has no requirement.
pub(crate) fn is_everything(selector: &Value) -> bool {
    selector.get("matchLabels").and_then(Value::as_object).is_none_or(apimachinery::Object::is_empty)
        && list(selector, &["matchExpressions"]).is_empty()
}

/// Whether a node matches all requirements of a term; a term without requirements matches no node.
pub(crate) fn meets(node: &Value, term: &Value) -> bool {
    let (labels, fields) = (list(term, &["matchExpressions"]), list(term, &["matchFields"]));
    labels.iter().all(|it| holds(it, label(node, text(it, &["key"]))))
        && fields.iter().all(|it| holds(it, Some(name(node))))
        && labels.len() + fields.len() > 0
}

/// Whether a value, if present, satisfies an expression.
fn holds(expression: &Value, have: Option<&str>) -> bool {
    let values: Vec<_> = list(expression, &["values"]).iter().map(|it| it.as_str().unwrap()).collect();
    let compared = |is: fn(i64, i64) -> bool| {
        let number = have.and_then(|have| have.parse::<i64>().ok());
        number.is_some_and(|number| is(number, values[0].parse().unwrap()))
    };
    match text(expression, &["operator"]) {
        "In" => have.is_some_and(|have| values.contains(&have)),
        "NotIn" => !have.is_some_and(|have| values.contains(&have)),
        "Exists" => have.is_some(),
        "DoesNotExist" => have.is_none(),
        "Gt" => compared(|have, bound| have > bound),
        "Lt" => compared(|have, bound| have < bound),
        other => panic!("{other} is not rolled"),
    }
}

/// Whether a pod tolerates a taint: a toleration must match its effect or all, its key or all, and its value unless the
/// operator is `Exists`.
pub(crate) fn tolerates(pod: &Value, taint: &Value) -> bool {
    list(pod, &["spec", "tolerations"]).iter().any(|toleration| {
        let same = |field: &str| text(toleration, &[field]) == text(taint, &[field]);
        let open = |field: &str| text(toleration, &[field]).is_empty();
        (open("effect") || same("effect"))
            && (open("key") || same("key"))
            && (text(toleration, &["operator"]) == "Exists" || same("value"))
    })
}

/// Returns the host ports of a pod: port, protocol and address.
pub(crate) fn ports(pod: &Value) -> Vec<(i64, &str, &str)> {
    let beside = list(pod, &["spec", "initContainers"]).iter().filter(|it| text(it, &["restartPolicy"]) == "Always");
    let containers = list(pod, &["spec", "containers"]).iter().chain(beside);
    containers
        .flat_map(|container| list(container, &["ports"]))
        .filter_map(|port| {
            let number = port.get("hostPort").and_then(Value::as_int)?;
            Some((number, port.str_at(&["protocol"]).unwrap_or("TCP"), port.str_at(&["hostIP"]).unwrap_or("0.0.0.0")))
        })
        .collect()
}

/// Returns the images of a pod as nodes name them.
pub(crate) fn images(pod: &Value) -> Vec<String> {
    let containers = list(pod, &["spec", "initContainers"]).iter().chain(list(pod, &["spec", "containers"]));
    let tagged = |image: &str| if image.contains(':') { image.to_owned() } else { format!("{image}:latest") };
    containers.map(|it| tagged(text(it, &["image"]))).collect()
}
