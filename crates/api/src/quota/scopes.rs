//! Quota scopes: select the objects that a quota counts.

use std::fmt;

use apimachinery::Value;

use super::spec;
use crate::view::{Pod, QosClass};

/// A scope requirement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scope<'a> {
    /// Such as `PriorityClass`.
    pub name: &'a str,
    /// Such as `In`.
    pub operator: &'a str,
    values: &'a [Value],
}

/// Returns the scopes of a quota, from `scopes` and `scopeSelector`.
pub fn of_quota(quota: &Value) -> impl Iterator<Item = Scope<'_>> {
    let plain = spec(quota).list_at(&["scopes"]).iter().filter_map(Value::as_str);
    let plain = plain.map(|name| Scope { name, operator: "Exists", values: &[] });
    let selector = quota.at(&["spec", "scopeSelector"]).unwrap_or(&Value::Null);
    plain.chain(selector.list_at(&["matchExpressions"]).iter().map(Scope::of))
}

/// Whether all scopes of a quota match an object.
pub fn match_all(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    of_quota(quota).all(|scope| scope.matches(group, plural, object))
}

impl<'a> Scope<'a> {
    /// Reads a requirement: `{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}`.
    pub fn of(requirement: &'a Value) -> Self {
        let (name, operator) = (requirement.text_at(&["scopeName"]), requirement.text_at(&["operator"]));
        Self { name, operator, values: requirement.list_at(&["values"]) }
    }

    /// Whether the scope matches an object.
    pub fn matches(&self, group: &str, plural: &str, object: &Value) -> bool {
        matches((group, plural), object, self.name, self.operator, self.values)
    }
}

/// Formats a requirement like Go's `%v`.
impl fmt::Display for Scope<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<&str> = self.values.iter().filter_map(Value::as_str).collect();
        write!(out, "{{{} {} [{}]}}", self.name, self.operator, values.join(" "))
    }
}

fn matches(kind: (&str, &str), object: &Value, name: &str, operator: &str, values: &[Value]) -> bool {
    if kind == ("", "persistentvolumeclaims") && name == "VolumeAttributesClass" {
        let mut classes = volume_attributes_classes(object).peekable();
        return match classes.peek() {
            None => selects("", operator, values),
            Some(_) => classes.any(|class| selects(class, operator, values)),
        };
    }
    if kind != ("", "pods") {
        return false;
    }
    let terminates = spec(object).get("activeDeadlineSeconds").and_then(Value::as_int).is_some_and(|at| at >= 0);
    match name {
        "Terminating" => terminates,
        "NotTerminating" => !terminates,
        "BestEffort" => Pod(object).qos_class() == QosClass::BestEffort,
        "NotBestEffort" => Pod(object).qos_class() != QosClass::BestEffort,
        "PriorityClass" => selects(spec(object).text_at(&["priorityClassName"]), operator, values),
        "CrossNamespacePodAffinity" => crosses_namespaces(object),
        _ => false,
    }
}

/// Returns the classes of a claim: the desired one, the current one, and the one that the volume changes to. While a
/// change is in progress, the claim counts for the quotas of all of them.
fn volume_attributes_classes(claim: &Value) -> impl Iterator<Item = &str> {
    const FIELDS: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    FIELDS.into_iter().filter_map(|field| claim.at(field)?.as_str()).filter(|class| !class.is_empty())
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

fn crosses_namespaces(pod: &Value) -> bool {
    let affinity = &spec(pod)["affinity"];
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let kind = &affinity[*kind];
        let required = kind.list_at(&["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = kind.list_at(&["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        let mut terms = required.chain(preferred.map(|weighted| &weighted["podAffinityTerm"]));
        terms.any(|term| !term.list_at(&["namespaces"]).is_empty() || term.get("namespaceSelector").is_some())
    })
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn best_effort_scope_selects_pods_by_their_qos_class() {
        let check = |spec: Value, expect: bool| {
            let pod = value!({"spec": spec});
            for (name, expect) in [("BestEffort", expect), ("NotBestEffort", !expect)] {
                assert_eq!(Scope::of(&value!({"scopeName": name})).matches("", "pods", &pod), expect, "{name} {pod:?}");
            }
        };
        let requests = |cpu: &str| value!({"resources": {"requests": {"cpu": cpu}}});
        check(value!({"containers": [(requests("1m"))]}), false);
        check(value!({"containers": [(requests("0"))]}), true);
        check(value!({"containers": [(requests("0m"))]}), true);
        check(value!({"containers": [(requests("1"))], "resources": {"requests": {"cpu": "0"}}}), true);
    }

    #[test]
    fn claim_counts_for_its_desired_current_and_target_volume_attributes_class() {
        let check = |claim: &Value, operator: &str, values: Value, expect: bool| {
            let scope = value!({"scopeName": "VolumeAttributesClass", "operator": operator, "values": values});
            let found = Scope::of(&scope).matches("", "persistentvolumeclaims", claim);
            assert_eq!(found, expect, "{claim:?} {scope:?}");
        };
        let changing = value!({
            "spec": {"volumeAttributesClassName": "silver"},
            "status": {
                "currentVolumeAttributesClassName": "gold",
                "modifyVolumeStatus": {"targetVolumeAttributesClassName": "bronze"}
            }
        });
        for class in ["silver", "gold", "bronze"] {
            check(&changing, "In", value!([class]), true);
            check(&changing, "NotIn", value!([class]), true);
        }
        check(&changing, "In", value!(["iron"]), false);
        check(&changing, "NotIn", value!(["silver", "gold", "bronze"]), false);
        check(&changing, "Exists", value!([]), true);
        check(&changing, "DoesNotExist", value!([]), false);
        let without = value!({"spec": {"volumeAttributesClassName": ""}});
        check(&without, "In", value!(["gold"]), false);
        check(&without, "NotIn", value!(["gold"]), true);
        check(&without, "Exists", value!([]), false);
        check(&without, "DoesNotExist", value!([]), true);
    }
}
