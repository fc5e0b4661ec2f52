//! Defaulting and validation shared by both admission policy kinds.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use super::expressions::{self, Expressions, Uses};
use super::{match_conditions, match_resources};
use crate::field_rules::{default_to, one_of, same};

pub(super) fn default(object: &mut Value) {
    let Some(spec) = object.as_object_mut().map(|object| object.get_or_insert_with("spec", Value::object)) else {
        return;
    };
    default_to(spec, "failurePolicy", "Fail");
    match_resources::default(spec, "matchConstraints");
}

/// Returns the environment of a policy's expressions. Expressions that `old` already had may use more of CEL.
pub(super) fn expressions<'a>(spec: &At<'_>, old: Option<&'a Value>, mutation: bool) -> Expressions<'a> {
    let mut stored = BTreeSet::new();
    let old = old.and_then(|old| old.get("spec"));
    for (list, fields) in [
        ("matchConditions", &["expression"][..]),
        ("validations", &["expression", "messageExpression"]),
        ("auditAnnotations", &["valueExpression"]),
        ("variables", &["expression"]),
    ] {
        for field in fields {
            stored.extend(expressions::of_items(old.and_then(|old| old.get(list)), field));
        }
    }
    for mutation in old.and_then(|old| old.get("mutations")).and_then(Value::as_array).unwrap_or_default() {
        stored.extend(mutation.str_at(&["applyConfiguration", "expression"]));
        stored.extend(mutation.str_at(&["jsonPatch", "expression"]));
    }
    let params = spec.get("paramKind").is_present();
    Expressions::new(Uses { params, authorizer: true, mutation }, stored)
}

/// Validates the fields that all policies share, and adds the policy's variables to `expressions`.
pub(super) fn validate(
    spec: &At<'_>,
    old: Option<&Value>,
    expressions: &mut Expressions<'_>,
    mutating: bool,
    errors: &mut Errors,
) {
    let policy = spec.get("failurePolicy");
    if policy.is_absent() {
        errors.push(policy.required(""));
    } else {
        one_of(&policy, &["Fail", "Ignore"], errors);
    }
    if spec.get("paramKind").is_present() {
        validate_param_kind(&spec.get("paramKind"), errors);
    }
    let constraints = spec.get("matchConstraints");
    if constraints.is_absent() {
        errors.push(constraints.required(""));
    } else {
        match_resources::validate(&constraints, errors);
        if constraints.get("resourceRules").is_empty() {
            errors.push(constraints.get("resourceRules").required(""));
        }
        if mutating {
            match_resources::validate_mutating_operations(&constraints, errors);
        }
    }
    let unchanged = old.and_then(|old| old.get("spec")).is_some_and(|old| {
        let value = |of: &Value, field: &str| of.get(field).cloned().unwrap_or(Value::Null);
        ["paramKind", "matchConditions"].iter().all(|field| same(&value(spec.value(), field), &value(old, field)))
    });
    if !unchanged {
        let params = spec.get("paramKind").is_present();
        let plain = expressions.with(Uses { params, authorizer: true, mutation: false });
        match_conditions::validate(&spec.get("matchConditions"), &plain, errors);
    }
    let variables = spec.get("variables");
    for variable in variables.items() {
        validate_variable(&variable, expressions, errors);
    }
}

fn validate_variable(variable: &At<'_>, expressions: &mut Expressions<'_>, errors: &mut Errors) {
    let (name, expression) = (variable.get("name"), variable.get("expression"));
    if name.str().trim().is_empty() {
        errors.push(name.required("name is not specified"));
    } else if !is_identifier(name.str()) {
        errors.push(name.invalid("name is not a valid CEL identifier"));
    }
    if expression.str().trim().is_empty() {
        errors.push(expression.required("expression is not specified"));
    } else {
        expressions.add_variable(name.str(), expression.str(), &expression, errors);
    }
}

fn is_identifier(name: &str) -> bool {
    let is_identifier_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_identifier_char)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !cel::lexer::is_word(name)
}

fn validate_param_kind(kind: &At<'_>, errors: &mut Errors) {
    let (version, name) = (kind.get("apiVersion"), kind.get("kind"));
    let parts: Vec<_> = version.str().split('/').collect();
    match parts[..] {
        _ if version.is_empty() => errors.push(version.required("")),
        [one] => validate_group_version(&version, "", one, errors),
        [group, one] => validate_group_version(&version, group, one, errors),
        _ => errors.push(version.invalid(format!("unexpected GroupVersion string: {}", version.str()))),
    }
    if name.is_empty() {
        errors.push(name.required(""));
        return;
    }
    let wrong = names::dns1035_label(&name.str().to_lowercase());
    if !wrong.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.push(name.invalid(detail));
    }
}

fn validate_group_version(at: &At<'_>, group: &str, version: &str, errors: &mut Errors) {
    if !group.is_empty() {
        let wrong = names::dns1123_subdomain(group);
        if !wrong.is_empty() {
            errors.push(Error::invalid(at.path(), group, wrong.join(",")));
        }
    }
    if version.is_empty() {
        errors.push(at.invalid("version must be specified"));
        return;
    }
    let wrong = names::dns1035_label(version);
    if !wrong.is_empty() {
        errors.push(Error::invalid(at.path(), version, wrong.join(",")));
    }
}
