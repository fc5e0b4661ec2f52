//! ResourceQuota: limits the total resource usage of a namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Object, Value};

use crate::core::resource_names::{is_integer, is_quota_standard, validate_quota};
use crate::field_rules::{IMMUTABLE, column, drop_field, emptied, keep, keep_all_but, non_negative_quantity, quantity};
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column, names};

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

const CONFLICTS: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["NotTerminating", "Terminating"]];

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["quota"]),
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        rules: Arc::new(ResourceQuota),
        ..Kind::stored("", "v1", "ResourceQuota", "resourcequotas")
    }
    .with_columns(&[
        name_column(),
        column("Request", "string", "Used and hard limits of requests.", |object, _| usage(object, false).into()),
        column("Limit", "string", "Used and hard limits of limits.", |object, _| usage(object, true).into()),
        age_column(),
    ])
}

#[derive(Debug)]
struct ResourceQuota;

impl Rules for ResourceQuota {
    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        drop_field(object, "status");
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        match context.subresource {
            "status" => keep_all_but(object, old, "status"),
            _ => keep(object, old, "status"),
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        amounts(&spec.get("hard"), errors);
        scopes(&spec, errors);
        scope_selector(&spec, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        if context.subresource == "status" {
            let status = root.get("status");
            amounts(&status.get("hard"), errors);
            amounts(&status.get("used"), errors);
            return;
        }
        self.validate(object, context, errors);
        let set = |of: &Value| -> BTreeSet<String> {
            let scopes = of.list_at(&["spec", "scopes"]);
            scopes.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        if set(object) != set(old) {
            let (spec, before) = (root.get("spec"), At::root(old));
            let bad_value = emptied(&spec.get("scopes"), &before.get("spec").get("scopes"));
            errors.push(Error::invalid(spec.get("scopes").path(), bad_value, IMMUTABLE));
        }
    }
}

fn amounts(at: &At<'_>, errors: &mut Errors) {
    for (name, amount) in at.entries() {
        validate_quota(name, &amount, errors);
        non_negative_quantity(&amount, errors);
        let value = quantity(amount.value());
        if is_integer(name) && value.milli_value() % 1000 != 0 {
            errors.push(Error::invalid(amount.path(), value.to_string(), "must be an integer"));
        }
    }
}

fn scopes(spec: &At<'_>, errors: &mut Errors) {
    let scopes = spec.get("scopes");
    let mut seen = BTreeSet::new();
    for scope in scopes.items() {
        if !SCOPES.contains(&scope.str()) {
            errors.push(scopes.invalid("unsupported scope"));
        }
        for _ in misapplied(spec, scope.str()) {
            errors.push(scopes.invalid("unsupported scope applied to resource"));
        }
        seen.insert(scope.str());
    }
    conflicts(&seen, spec, scopes.path(), errors);
}

fn scope_selector(spec: &At<'_>, errors: &mut Errors) {
    let selector = spec.get("scopeSelector");
    let expressions = selector.get("matchExpressions");
    let mut seen = BTreeSet::new();
    for requirement in expressions.items() {
        let (scope, operator, values) =
            (requirement.get("scopeName"), requirement.get("operator"), requirement.get("values"));
        // Upstream reports the path of the list, not of the item.
        let blame = |field: &str, value: &At<'_>, detail: &str| {
            Error::invalid(expressions.get(field).path(), value.value(), detail)
        };
        if !SCOPES.contains(&scope.str()) {
            errors.push(blame("scopeName", &scope, "unsupported scope"));
        }
        for _ in misapplied(spec, scope.str()) {
            errors.push(Error::invalid(expressions.path(), selector.value(), "unsupported scope applied to resource"));
        }
        let valued = ["PriorityClass", "VolumeAttributesClass"].contains(&scope.str());
        if !valued && SCOPES.contains(&scope.str()) && operator.str() != "Exists" {
            errors.push(blame("operator", &operator, "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"));
        }
        match operator.str() {
            "In" | "NotIn" if values.is_empty() => errors.push(
                expressions
                    .get("values")
                    .required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(blame(
                "values",
                &values,
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(blame("operator", &operator, "not a valid selector operator")),
        }
        seen.insert(requirement.value().text_at(&["scopeName"]));
    }
    conflicts(&seen, spec, expressions.path(), errors);
}

/// Returns the limited resources that the scope does not support.
fn misapplied<'a>(spec: &At<'a>, scope: &'a str) -> impl Iterator<Item = &'a str> {
    let hard = spec.value().get("hard").and_then(Value::as_object).into_iter().flat_map(Object::keys);
    hard.filter(move |resource| is_quota_standard(resource) && !goes_with(scope, resource))
}

fn goes_with(scope: &str, resource: &str) -> bool {
    const COMPUTE: &[&str] = &["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&resource),
        _ if SCOPES.contains(&scope) => resource == "pods" || COMPUTE.contains(&resource),
        _ => true,
    }
}

fn conflicts(seen: &BTreeSet<&str>, spec: &At<'_>, path: &apimachinery::Path<'_>, errors: &mut Errors) {
    for pair in CONFLICTS {
        if pair.iter().all(|scope| seen.contains(scope)) {
            errors.push(Error::invalid(path, spec.get("scopes").value(), "conflicting scopes"));
        }
    }
}

/// Returns `pods: 1/10, requests.cpu: 0/4` for the resources that start with `limits`, or for the others.
fn usage(object: &Value, limits: bool) -> String {
    let root = At::root(object);
    let status = root.get("status");
    let (hard, used) = (status.get("hard"), status.get("used"));
    let entries = hard.entries().filter(|(name, _)| name.starts_with("limits") == limits);
    let entries: Vec<_> = entries
        .map(|(name, most)| format!("{name}: {}/{}", quantity(used.entry(name).value()), quantity(most.value())))
        .collect();
    entries.join(", ")
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::validation;

    fn check(spec: Value, expect: &[&str]) {
        assert_eq!(validation::create(&kind(), &value!({"spec": spec})), expect);
    }

    #[test]
    fn scopes_must_match_resources_and_each_other() {
        check(value!({"hard": {"pods": "1", "requests.cpu": "1"}, "scopes": ["NotBestEffort"]}), &[]);
        check(
            value!({"hard": {"pods": "1", "requests.cpu": "1"}, "scopes": ["BestEffort"]}),
            &["spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource"],
        );
        check(
            value!({"scopes": ["Terminating", "NotTerminating"]}),
            &["spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes"],
        );
        check(
            value!({"hard": {"pods": "1500m", "nope": "-1"}}),
            &[
                "spec.hard[nope]: Invalid value: \"nope\": must be a standard resource type or fully qualified",
                "spec.hard[nope]: Invalid value: \"nope\": must be a standard resource for quota",
                "spec.hard[nope]: Invalid value: \"-1\": must be greater than or equal to 0",
                "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
            ],
        );
    }

    #[test]
    fn spec_and_status_writes_do_not_affect_each_other() {
        let old = value!({"spec": {"hard": {"pods": "1"}}, "status": {"used": {"pods": "1"}}});
        let new = value!({"spec": {"hard": {"pods": "2"}}, "status": {"used": {"pods": "0"}}});
        let (whole, _) = validation::update(&kind(), "", &new, &old);
        assert_eq!((&whole["spec"], &whole["status"]), (&new["spec"], &old["status"]));
        let (status, _) = validation::update(&kind(), "status", &new, &old);
        assert_eq!((&status["spec"], &status["status"]), (&old["spec"], &new["status"]));
    }
}
