//! Deployment: rolling updates of ReplicaSets.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value};

use crate::core::{object_meta, pod_template_spec};
use crate::field_rules::{
    column, default_empty_to, default_to, immutable_with_value, keep, non_negative, raise_generation, same,
    start_generation,
};
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column, names};
use crate::status;
use crate::workload::{self, Shape};

pub fn kind() -> Kind {
    let [containers, images] = workload::container_columns();
    Kind {
        short_names: names(&["deploy"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::scale(), Subresource::status()],
        rules: Arc::new(Deployment),
        ..Kind::stored("apps", "v1", "Deployment", "deployments")
    }
    .with_columns(&[
        name_column(),
        column("Ready", "string", "Ready pods and desired pods.", ready),
        column("Up-to-date", "string", "Pods with the current template.", |object, _| count(object, "updatedReplicas")),
        column("Available", "string", "Number of available pods.", |object, _| count(object, "availableReplicas")),
        age_column(),
        containers,
        images,
        workload::selector_column(),
    ])
}

/// Template constraints of Deployments and ReplicaSets.
pub(super) const SHAPE: Shape =
    Shape { selects_for: "deployment", unreadable: "invalid label selector", endless: "ReplicaSet" };

#[derive(Debug)]
struct Deployment;

impl Rules for Deployment {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "replicas", 1);
        default_to(spec, "revisionHistoryLimit", 10);
        default_to(spec, "progressDeadlineSeconds", 600);
        default_to(spec, "strategy", Value::object());
        if let Some(strategy) = spec.get_mut("strategy") {
            default_empty_to(strategy, "type", "RollingUpdate");
            if strategy.str_at(&["type"]) == Some("RollingUpdate") {
                default_to(strategy, "rollingUpdate", Value::object());
            }
            if strategy.str_at(&["type"]) == Some("RollingUpdate")
                && let Some(rolling) = strategy.get_mut("rollingUpdate")
            {
                default_to(rolling, "maxUnavailable", "25%");
                default_to(rolling, "maxSurge", "25%");
            }
        }
        if let Some(template) = spec.get_mut("template") {
            pod_template_spec::default(template);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        status::reset(object);
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if !status::separate(object, old, context) {
            keep_labels(object, old);
            return;
        }
        let annotations = |of: &Value| of.at(&["metadata", "annotations"]).cloned().unwrap_or_default();
        let annotated = !same(&annotations(object), &annotations(old));
        raise_generation(object, old, if annotated { &["spec", "metadata"] } else { &["spec"] });
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_spec(&At::root(object).get("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        let (root, before) = (At::root(object), At::root(old));
        if context.subresource == "status" {
            return validate_status(&root.get("status"), &before.get("status"), errors);
        }
        let (spec, before) = (root.get("spec"), before.get("spec"));
        validate_spec(&spec, errors);
        let selector = spec.get("selector");
        let bad_value = || workload::selector_bad_value(selector.value());
        immutable_with_value(&selector, &before.get("selector"), bad_value, errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        if !context.subresource.is_empty() {
            return Vec::new();
        }
        let name = Meta::of(object).name();
        let mut warnings: Vec<_> =
            old.is_none().then(|| workload::pod_name_warning(name)).flatten().into_iter().collect();
        let root = At::root(object);
        let spec = root.get("spec");
        let template = spec.get("template");
        warnings.extend(workload::template_warnings(&template, object, old, &["spec", "template"]));
        warnings
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "" => &["status"],
            "status" => &["spec", "metadata.labels"],
            _ => &[],
        }
    }
}

fn validate_spec(spec: &At<'_>, errors: &mut Errors) {
    non_negative(&spec.get("replicas"), errors);
    validate_replicated(spec, errors);
    validate_strategy(&spec.get("strategy"), errors);
    non_negative(&spec.get("minReadySeconds"), errors);
    non_negative(&spec.get("revisionHistoryLimit"), errors);
    let deadline = spec.get("progressDeadlineSeconds");
    if deadline.is_present() {
        non_negative(&deadline, errors);
        if deadline.int() <= spec.get("minReadySeconds").int() {
            errors.push(deadline.invalid("must be greater than minReadySeconds"));
        }
    }
}

/// Validates the selector and template of a Deployment or ReplicaSet.
pub(super) fn validate_replicated(spec: &At<'_>, errors: &mut Errors) {
    workload::validate_selected(spec, &SHAPE, errors);
    if apimachinery::labels::from_object(Some(spec.get("selector").value())).is_ok() {
        workload::runs_forever(&spec.get("template"), SHAPE.endless, errors);
    }
}

fn validate_strategy(strategy: &At<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").str() {
        "Recreate" if rolling.is_present() => {
            errors.push(rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" if rolling.is_absent() => {
            errors.push(rolling.required("this should be defaulted and never be nil"));
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            workload::int_or_percent(&unavailable, errors);
            workload::int_or_percent(&surge, errors);
            if [&unavailable, &surge].iter().all(|at| workload::int_or_percent_value(at.value()) == 0) {
                errors.push(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
            }
            workload::at_most_all(&unavailable, errors);
        }
        _ => {
            let bad_value = workload::bad_value(strategy, ("apps", "v1", "Deployment"), &["spec", "strategy"]);
            errors.push(Error::not_supported(strategy.path(), bad_value, &["Recreate", "RollingUpdate"]));
        }
    }
}

fn validate_status(status: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    const NUMBERS: &[&str] = &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    status::non_negative(status, NUMBERS, errors);
    for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        status::at_most(status, field, "replicas", "status.replicas", errors);
    }
    status::at_most(status, "availableReplicas", "readyReplicas", "readyReplicas", errors);
    status::never_decremented(status, old, "collisionCount", errors);
}

fn keep_labels(object: &mut Value, old: &Value) {
    if let (Some(new), Some(old)) = (object.get_mut("metadata"), old.get("metadata")) {
        keep(new, old, "labels");
    }
}

fn ready(object: &Value, _now: Time) -> Value {
    let number = |path: &[&str]| object.at(path).and_then(Value::as_int).unwrap_or_default();
    format!("{}/{}", number(&["status", "readyReplicas"]), number(&["spec", "replicas"])).into()
}

fn count(object: &Value, field: &str) -> Value {
    workload::int_cell(object, &["status", field])
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn check(strategy: Value, expect: &[&str]) {
        let mut errors = Errors::new();
        validate_strategy(&At::root(&value!({"strategy": (strategy)})).get("strategy"), &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn max_surge_and_max_unavailable_cannot_both_be_zero() {
        check(value!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "1%"}}), &[]);
        check(
            value!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "0%", "maxUnavailable": 0}}),
            &["strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
        );
        check(
            value!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "200%", "maxUnavailable": "200%"}}),
            &["strategy.rollingUpdate.maxUnavailable: Invalid value: \"200%\": must not be greater than 100%"],
        );
    }

    #[test]
    fn unknown_strategies_and_recreate_with_rolling_update_are_rejected() {
        check(
            value!({"type": "Recreate", "rollingUpdate": {}}),
            &["strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
        );
        check(
            value!({"type": "X"}),
            &[
                r#"strategy: Unsupported value: {"Type":"X","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate""#,
            ],
        );
    }
}
