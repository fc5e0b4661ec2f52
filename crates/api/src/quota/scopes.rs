//! Which objects a quota is about.

use machinery::Value;

use super::{containers, items, spec, text};

/// Whether all scopes of a quota match an object of a kind.
pub fn match_all(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let plain = items(spec(quota), "scopes").iter().filter_map(Value::as_str).map(|name| (name, "Exists", &[][..]));
    let selector = quota.at(&["spec", "scopeSelector"]).unwrap_or(&Value::Null);
    let selected = items(selector, "matchExpressions").iter();
    let selected = selected.map(|one| (text(one, "scopeName"), text(one, "operator"), items(one, "values")));
    let mut scopes = plain.chain(selected);
    scopes.all(|(name, operator, values)| matches((group, plural), object, name, operator, values))
}

fn matches(kind: (&str, &str), object: &Value, name: &str, operator: &str, values: &[Value]) -> bool {
    if kind == ("", "persistentvolumeclaims") && name == "VolumeAttributesClass" {
        let class = text(spec(object), "volumeAttributesClassName");
        return selects(class, operator, values);
    }
    if kind != ("", "pods") {
        return false;
    }
    let terminates = spec(object).get("activeDeadlineSeconds").and_then(Value::as_int).is_some_and(|at| at >= 0);
    match name {
        "Terminating" => terminates,
        "NotTerminating" => !terminates,
        "BestEffort" => is_best_effort(object),
        "NotBestEffort" => !is_best_effort(object),
        "PriorityClass" => selects(text(spec(object), "priorityClassName"), operator, values),
        "CrossNamespacePodAffinity" => crosses_namespaces(object),
        _ => false,
    }
}

fn selects(value: &str, operator: &str, values: &[Value]) -> bool {
    let among = || values.iter().any(|one| one.as_str() == Some(value));
    match operator {
        "In" => !value.is_empty() && among(),
        "NotIn" => value.is_empty() || !among(),
        "DoesNotExist" => value.is_empty(),
        _ => !value.is_empty(),
    }
}

/// Neither requests nor limits of processor or memory anywhere.
fn is_best_effort(pod: &Value) -> bool {
    let says = |of: &Value| {
        let of = |field: &str| of.at(&["resources", field]).and_then(Value::as_object);
        let fields = [of("requests"), of("limits")];
        fields.iter().flatten().any(|amounts| {
            ["cpu", "memory"].iter().any(|name| amounts.get(name).is_some_and(|amount| amount.as_str() != Some("0")))
        })
    };
    !says(spec(pod)) && !containers(spec(pod)).any(says)
}

fn crosses_namespaces(pod: &Value) -> bool {
    let affinity = &spec(pod)["affinity"];
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let kind = &affinity[*kind];
        let required = items(kind, "requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred = items(kind, "preferredDuringSchedulingIgnoredDuringExecution").iter();
        let mut terms = required.chain(preferred.map(|weighted| &weighted["podAffinityTerm"]));
        terms.any(|term| !items(term, "namespaces").is_empty() || term.get("namespaceSelector").is_some())
    })
}
