//! Compares the rules of roles.

use apimachinery::{Object, Value, go};

/// Returns the parts of `rules` that `owner` does not grant, each with one verb, one resource and at most one name.
pub(super) fn uncovered(owner: &[Value], rules: &[Value]) -> Vec<Value> {
    let parts = rules.iter().flat_map(break_down);
    parts.filter(|part| !owner.iter().any(|rule| covers(rule, part))).collect()
}

fn texts<'a>(rule: &'a Value, key: &str) -> Vec<&'a str> {
    let items = rule.get(key).and_then(Value::as_array).unwrap_or_default();
    items.iter().filter_map(Value::as_str).collect()
}

fn break_down(rule: &Value) -> Vec<Value> {
    let one = |entries: &[(&str, &str)]| {
        let entries = entries.iter().map(|(key, value)| (*key, Value::Array(vec![Value::from(*value)])));
        Value::Object(entries.collect::<Object>())
    };
    let (verbs, names) = (texts(rule, "verbs"), texts(rule, "resourceNames"));
    let mut parts = Vec::new();
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for verb in &verbs {
                let part = [("apiGroups", group), ("resources", resource), ("verbs", *verb)];
                if names.is_empty() {
                    parts.push(one(&part));
                }
                for name in &names {
                    parts.push(one(&[part[0], part[1], part[2], ("resourceNames", name)]));
                }
            }
        }
    }
    for url in texts(rule, "nonResourceURLs") {
        parts.extend(verbs.iter().map(|verb| one(&[("nonResourceURLs", url), ("verbs", verb)])));
    }
    parts
}

/// Whether a rule grants a part of another.
fn covers(rule: &Value, part: &Value) -> bool {
    let has = |key: &str, all: &str| {
        let set = texts(rule, key);
        set.contains(&all) || texts(part, key).iter().all(|item| set.contains(item))
    };
    let resources = texts(rule, "resources");
    let resource = texts(part, "resources").iter().all(|requested| {
        let subresource = requested.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        resources.contains(&"*")
            || resources.contains(requested)
            || subresource.is_some_and(|subresource| resources.contains(&subresource.as_str()))
    });
    let names = texts(rule, "resourceNames");
    let requested = texts(part, "resourceNames");
    let name = names.is_empty() || !requested.is_empty() && requested.iter().all(|name| names.contains(name));
    let urls = texts(rule, "nonResourceURLs");
    let url = texts(part, "nonResourceURLs").iter().all(|requested| {
        let matches =
            |url: &&str| url == requested || url.ends_with('*') && requested.starts_with(url.trim_end_matches('*'));
        urls.iter().any(matches)
    });
    has("verbs", "*") && has("apiGroups", "*") && resource && name && url
}

/// Formats a rule like Go's `%+v`.
pub(super) fn show_rule(rule: &Value) -> String {
    let list = |key: &str| format!("[{}]", texts(rule, key).join(" "));
    format!(
        "{{Verbs:{} APIGroups:{} Resources:{} ResourceNames:{} NonResourceURLs:{}}}",
        list("verbs"),
        list("apiGroups"),
        list("resources"),
        list("resourceNames"),
        list("nonResourceURLs")
    )
}

/// Formats a subject like Go's `%+v`.
pub(super) fn show_subject(subject: &Value) -> String {
    let text = |key: &str| subject.get(key).map(go::display).unwrap_or_default();
    let [kind, group, name, namespace] = ["kind", "apiGroup", "name", "namespace"].map(text);
    format!("{{Kind:{kind} APIGroup:{group} Name:{name} Namespace:{namespace}}}")
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn rules_cover_parts() {
        let part = value!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]}]);
        let check = |owner: Value, missing: &[&str]| {
            let found = uncovered(owner.as_array().unwrap(), part.as_array().unwrap());
            let found: Vec<_> =
                found.iter().map(|rule| format!("{} {}", rule["verbs"][0], rule["resources"][0])).collect();
            assert_eq!(found, missing, "{owner}");
        };
        check(value!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]), &[]);
        check(part.clone(), &[]);
        check(
            value!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/log"]}]),
            &["\"list\" \"pods\"", "\"list\" \"pods/log\""],
        );
        check(
            value!([{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]),
            &["\"get\" \"pods\"", "\"list\" \"pods\"", "\"get\" \"pods/log\"", "\"list\" \"pods/log\""],
        );
    }

    #[test]
    fn rules_are_printed_like_go_values() {
        let rule = value!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        assert_eq!(show_rule(&rule), "{Verbs:[get] APIGroups:[] Resources:[pods] ResourceNames:[] NonResourceURLs:[]}");
        let subject = value!({"kind": "User", "name": "a", "apiGroup": "rbac.authorization.k8s.io"});
        assert_eq!(show_subject(&subject), "{Kind:User APIGroup:rbac.authorization.k8s.io Name:a Namespace:}");
    }
}
