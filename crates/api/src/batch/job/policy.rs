//! Job podFailurePolicy and successPolicy.

use std::collections::BTreeSet;

use apimachinery::field::{BadValue, Error};
use apimachinery::{At, Errors, Value, go, names};

use super::indexes;
use crate::field_rules::{looks, non_negative};
use crate::workload;

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const PATTERNS_MAX: usize = 20;
const INDEXES_LENGTH_MAX: usize = 64 << 10;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];

pub(super) fn validate_failure(spec: &At<'_>, errors: &mut Errors) {
    let policy = spec.get("podFailurePolicy");
    if policy.is_absent() {
        return;
    }
    let rules = policy.get("rules");
    if rules.len() > RULES_MAX {
        errors.push(Error::too_many(rules.path(), rules.len(), RULES_MAX));
    }
    let pod = spec.value().at(&["template", "spec"]).unwrap_or(&Value::Null);
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| {
        let containers = pod.get(list).and_then(Value::as_array).unwrap_or_default();
        containers.iter().filter_map(|container| container.str_at(&["name"]))
    });
    let containers: BTreeSet<&str> = containers.collect();
    for rule in rules.items() {
        validate_rule(spec, &rule, &containers, errors);
    }
}

pub(super) fn validate_success(spec: &At<'_>, errors: &mut Errors) {
    let policy = spec.get("successPolicy");
    if policy.is_absent() {
        return;
    }
    if spec.get("completionMode").str() != "Indexed" {
        let bad_value = workload::bad_value(&policy, ("batch", "v1", "Job"), &["spec", "successPolicy"]);
        errors.push(Error::invalid(policy.path(), bad_value, "requires indexed completion mode"));
        return;
    }
    let rules = policy.get("rules");
    if rules.is_empty() {
        errors.push(rules.required("at least one rules must be specified when the successPolicy is specified"));
    }
    if rules.len() > RULES_MAX {
        errors.push(Error::too_many(rules.path(), rules.len(), RULES_MAX));
    }
    for rule in rules.items() {
        validate_success_rule(spec.get("completions").int(), &rule, errors);
    }
}

fn validate_rule(spec: &At<'_>, rule: &At<'_>, containers: &BTreeSet<&str>, errors: &mut Errors) {
    let action = rule.get("action");
    match action.str() {
        "FailIndex" if spec.get("backoffLimitPerIndex").is_absent() => {
            errors.push(action.invalid("requires the backoffLimitPerIndex to be set"));
        }
        _ => one_of_required(&action, ACTIONS, errors),
    }
    let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
    if codes.is_present() {
        validate_exit_codes(&codes, containers, errors);
    }
    validate_conditions(&conditions, errors);
    let problem = match (codes.is_present(), conditions.is_empty()) {
        (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(Error::invalid(rule.path(), BadValue::Omitted, problem));
}

fn validate_conditions(conditions: &At<'_>, errors: &mut Errors) {
    if conditions.len() > PATTERNS_MAX {
        errors.push(Error::too_many(conditions.path(), conditions.len(), PATTERNS_MAX));
    }
    for pattern in conditions.items() {
        looks(&pattern.get("type"), names::qualified_name, errors);
        one_of_required(&pattern.get("status"), STATUSES, errors);
    }
}

fn validate_exit_codes(codes: &At<'_>, containers: &BTreeSet<&str>, errors: &mut Errors) {
    let operator = codes.get("operator");
    one_of_required(&operator, OPERATORS, errors);
    let container = codes.get("containerName");
    if container.is_present() && !containers.contains(container.str()) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(container.invalid(detail));
    }
    let values = codes.get("values");
    if values.is_empty() {
        errors.push(values.invalid("at least one value is required"));
    } else if values.len() > EXIT_CODES_MAX {
        errors.push(Error::too_many(values.path(), values.len(), EXIT_CODES_MAX));
    }
    let (mut seen, mut last, mut ordered) = (BTreeSet::new(), None, true);
    for value in values.items() {
        let code = value.int();
        if operator.str() == "In" && code == 0 {
            errors.push(Error::invalid(value.path(), 0, "must not be 0 for the In operator"));
        }
        if !seen.insert(code) {
            errors.push(value.duplicate());
        }
        ordered &= last.replace(code).is_none_or(|last| last <= code);
    }
    if !ordered {
        errors.push(values.invalid("must be ordered"));
    }
}

fn validate_success_rule(completions: i64, rule: &At<'_>, errors: &mut Errors) {
    let (count, succeeded) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
    if count.is_absent() && succeeded.is_absent() {
        errors.push(rule.required("at least one of succeededCount or succeededIndexes must be specified"));
    }
    let mut total = 0;
    if succeeded.is_present() {
        if succeeded.len() > INDEXES_LENGTH_MAX {
            errors.push(Error::too_long(succeeded.path(), INDEXES_LENGTH_MAX));
        }
        match indexes::parse(succeeded.str(), completions) {
            Ok(intervals) => total = indexes::total(&intervals),
            Err(error) => errors.push(succeeded.invalid(format!("error parsing succeededIndexes: {error}"))),
        }
    }
    if count.is_absent() {
        return;
    }
    non_negative(&count, errors);
    if count.int() > completions {
        let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
        errors.push(count.invalid(detail));
    }
    if succeeded.is_present() && count.int() > total {
        let of = "(the number of indexes in the specified succeededIndexes field)";
        errors.push(count.invalid(format!("must be less than or equal to {total} {of}")));
    }
}

/// Requires one of the `known` values and lists them in the error.
fn one_of_required(at: &At<'_>, known: &[&str], errors: &mut Errors) {
    if at.str().is_empty() {
        let known: Vec<_> = known.iter().map(|one| go::quote(one)).collect();
        errors.push(at.required(format!("valid values: [{}]", known.join(" "))));
    } else if !known.contains(&at.str()) {
        errors.push(at.not_supported(known));
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn check(validate: fn(&At<'_>, &mut Errors), spec: &Value, expect: &[&str]) {
        let mut errors = Errors::new();
        validate(&At::root(spec), &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn failure_rule_has_exit_codes_or_pod_conditions() {
        let spec = value!({"podFailurePolicy": {"rules": [{"action": "Ignore"}]}});
        let detail = "specifying one of OnExitCodes and OnPodConditions is required";
        check(validate_failure, &spec, &[&format!("podFailurePolicy.rules[0]: Invalid value: {detail}")]);
        let spec = value!({"podFailurePolicy": {"rules": [
            {"action": "", "onExitCodes": {"operator": "In", "values": [2, 0, 2]}}
        ]}});
        check(
            validate_failure,
            &spec,
            &[
                r#"podFailurePolicy.rules[0].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#,
                "podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
                "podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 2",
                "podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
            ],
        );
    }

    #[test]
    fn succeeded_count_cannot_exceed_completions() {
        let spec = value!({"completionMode": "Indexed", "completions": 3, "successPolicy": {"rules": [
            {"succeededIndexes": "0-1", "succeededCount": 4}
        ]}});
        check(
            validate_success,
            &spec,
            &[
                "successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of specified completions)",
                "successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
            ],
        );
    }
}
