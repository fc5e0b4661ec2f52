//! PodDisruptionBudget: limits the number of concurrently disrupted pods.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, meta};

use crate::field_rules::{column, label_selector, one_of_if_present, raise_generation, start_generation};
use crate::kind::{Context, Kind, Rules, Subresource, UpdateChecks, age_column, name_column, names};
use crate::{status, workload};

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["pdb"]),
        subresources: vec![Subresource::status()],
        name_rule: meta::name_is_path_segment,
        unconditional_update: false,
        rules: Arc::new(PodDisruptionBudget),
        update_checks: UpdateChecks { whole: 0, change: 0 },
        qualified_finalizers: false,
        ..Kind::stored("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
    }
    .with_columns(&[
        name_column(),
        column("Min Available", "string", "Pods that must be available.", |object, _| number(object, "minAvailable")),
        column("Max Unavailable", "string", "Pods that may be unavailable.", |object, _| {
            number(object, "maxUnavailable")
        }),
        column("Allowed Disruptions", "integer", "Disruptions that are allowed now.", |object, _| {
            workload::int_cell(object, &["status", "disruptionsAllowed"])
        }),
        age_column(),
    ])
}

#[derive(Debug)]
struct PodDisruptionBudget;

impl Rules for PodDisruptionBudget {
    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        status::reset(object);
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if status::separate(object, old, context) {
            raise_generation(object, old, &["spec"]);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_spec(&At::root(object).get("spec"), errors);
    }

    fn validate_update(&self, object: &Value, _old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        if context.subresource.is_empty() {
            return validate_spec(&root.get("spec"), errors);
        }
        let status = root.get("status");
        let conditions = status.get("conditions");
        meta::validate_conditions(conditions.list(), conditions.path(), errors);
        let numbers = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        status::non_negative(&status, &numbers, errors);
    }
}

fn validate_spec(spec: &At<'_>, errors: &mut Errors) {
    let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if least.is_present() && most.is_present() {
        let bad_value = workload::bad_value(spec, ("policy", "v1", "PodDisruptionBudget"), &["spec"]);
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(Error::invalid(spec.path(), bad_value, detail));
    }
    for number in [least, most].iter().filter(|number| number.is_present()) {
        workload::int_or_percent(number, errors);
        workload::at_most_all(number, errors);
    }
    label_selector(&spec.get("selector"), errors);
    let policy = spec.get("unhealthyPodEvictionPolicy");
    one_of_if_present(&policy, &["AlwaysAllow", "IfHealthyBudget"], errors);
}

fn number(object: &Value, field: &str) -> Value {
    match object.at(&["spec", field]) {
        None | Some(Value::Null) => "N/A".into(),
        Some(Value::Int(number)) => number.to_string().into(),
        Some(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn min_available_and_max_unavailable_are_mutually_exclusive() {
        let spec = value!({"minAvailable": 1, "maxUnavailable": "101%"});
        let mut errors = Errors::new();
        validate_spec(&At::root(&spec), &mut errors);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let expect = [
            r#"<nil>: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":"101%","UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set"#,
            r#"maxUnavailable: Invalid value: "101%": must not be greater than 100%"#,
        ];
        assert_eq!(texts, expect);
    }
}
