//! HorizontalPodAutoscaler: scales a workload by metrics.

mod metrics;
mod v1;

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::names::path_segment;
use apimachinery::table::Cell;
use apimachinery::{At, Errors, Value, value};

use crate::core::object_meta;
use crate::field_rules::{column, default_to, one_of_if_present, quantity, required_and_looks};
use crate::kind::{Context, Convert, Kind, Rules, Subresource, Version, age_column, name_column, names};
use crate::{status, workload};

const STABILIZATION_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;

pub fn kind() -> Kind {
    let mut kind = Kind {
        short_names: names(&["hpa"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::status()],
        field_annotations: &v1::ANNOTATIONS,
        rules: Arc::new(HorizontalPodAutoscaler),
        ..Kind::stored("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
    };
    let convert = Convert { to_stored: v1::to_v2, from_stored: v1::from_v2 };
    kind.versions
        .push(Version { convert: Some(convert), ..Version::built_in("autoscaling", "v1", "HorizontalPodAutoscaler") });
    kind = kind.with_columns(&[
        name_column(),
        column("Reference", "string", "Scaled object.", |object, _| {
            let text = |field: &str| object.text_at(&["spec", "scaleTargetRef", field]);
            format!("{}/{}", text("kind"), text("name")).into()
        }),
        column("Targets", "string", "Current and target values of the metrics.", metrics::cell),
        column("MinPods", "string", "Minimum number of pods.", |object, _| {
            let least = object.int_at(&["spec", "minReplicas"]);
            least.map_or_else(|| "<unset>".to_owned(), |least| least.to_string()).into()
        }),
        column("MaxPods", "string", "Maximum number of pods.", |object, _| {
            workload::int_cell(object, &["spec", "maxReplicas"])
        }),
        column("Replicas", "string", "Number of pods.", |object, _| {
            workload::int_cell(object, &["status", "currentReplicas"])
        }),
        age_column(),
    ]);
    for column in kind.versions[1].columns.iter_mut().filter(|column| column.name == "Targets") {
        column.cell = Cell::Function(v1::cell);
    }
    kind
}

#[derive(Debug)]
struct HorizontalPodAutoscaler;

impl Rules for HorizontalPodAutoscaler {
    fn default(&self, object: &mut Value, version: &str) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "minReplicas", 1);
        if version == "v1" {
            return v1::default(object);
        }
        if spec.get("metrics").and_then(Value::as_array).is_none_or(<[Value]>::is_empty)
            && let Some(spec) = spec.as_object_mut()
        {
            spec.insert("metrics", vec![default_metric()]);
        }
        if let Some(behavior) = spec.get_mut("behavior") {
            default_rules(
                behavior,
                "scaleUp",
                Some(0),
                value!([
                    {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}
                ]),
            );
            let policies = value!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
            default_rules(behavior, "scaleDown", None, policies);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        status::reset(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        status::separate(object, old, context);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_spec(&At::root(object).get("spec"), None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        let root = At::root(object);
        if context.subresource.is_empty() {
            validate_spec(&root.get("spec"), Some(&At::root(old).get("spec")), errors);
        } else {
            status::non_negative(&root.get("status"), &["currentReplicas", "desiredReplicas"], errors);
        }
    }
}

/// Returns the metric used if none is specified: CPU utilization.
fn default_metric() -> Value {
    value!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}})
}

fn default_rules(behavior: &mut Value, direction: &str, stabilization: Option<i64>, policies: Value) {
    default_to(behavior, direction, Value::object());
    let Some(rules) = behavior.get_mut(direction) else { return };
    if let Some(seconds) = stabilization {
        default_to(rules, "stabilizationWindowSeconds", seconds);
    }
    default_to(rules, "selectPolicy", "Max");
    default_to(rules, "policies", policies);
}

fn validate_spec(spec: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    // Scale to zero is disabled by default; an object that already has minReplicas 0 keeps it.
    let bound = i64::from(!old.is_some_and(|old| old.get("minReplicas").value() == &Value::Int(0)));
    if least.is_present() && least.int() < bound {
        errors.push(least.invalid(format!("must be greater than or equal to {bound}")));
    }
    match most.int() {
        0 => errors.push(most.required("must be set and greater than 0")),
        ..0 => errors.push(most.invalid("must be greater than or equal to 1")),
        _ => {}
    }
    if least.is_present() && most.int() < least.int() {
        let most = Error::invalid(most.path(), most.int(), "must be greater than or equal to `minReplicas`");
        errors.push(most);
    }
    let target = spec.get("scaleTargetRef");
    validate_reference(&target, errors);
    let was_wrong = old.is_some_and(|old| !has_group(&old.get("scaleTargetRef")));
    if !has_group(&target) && !was_wrong {
        let version = target.get("apiVersion");
        let error = Error::invalid(version.path(), version.str(), "apiVersion must specify API group");
        errors.push(error);
    }
    metrics::validate(spec, errors);
    let behavior = spec.get("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        validate_rules(&behavior.get(direction), errors);
    }
}

fn validate_reference(reference: &At<'_>, errors: &mut Errors) {
    required_and_looks(&reference.get("kind"), path_segment, errors);
    required_and_looks(&reference.get("name"), path_segment, errors);
}

/// Whether the target has an API group or is a ReplicationController, the only scalable kind of the core group.
fn has_group(reference: &At<'_>) -> bool {
    let version = reference.get("apiVersion");
    match version.str().split_once('/') {
        Some((group, _)) => !group.is_empty(),
        None => version.str() == "v1" && reference.get("kind").str() == "ReplicationController",
    }
}

fn validate_rules(rules: &At<'_>, errors: &mut Errors) {
    if rules.is_absent() {
        return;
    }
    let window = rules.get("stabilizationWindowSeconds");
    if window.int() < 0 {
        errors.push(window.invalid("must be greater than or equal to zero"));
    }
    if window.int() > STABILIZATION_SECONDS_MAX {
        errors.push(window.invalid(format!("must be less than or equal to {STABILIZATION_SECONDS_MAX}")));
    }
    one_of_if_present(&rules.get("selectPolicy"), &["Disabled", "Max", "Min"], errors);
    let policies = rules.get("policies");
    if policies.is_empty() {
        errors.push(policies.required("must specify at least one Policy"));
    }
    for policy in policies.items() {
        let (ty, amount, period) = (policy.get("type"), policy.get("value"), policy.get("periodSeconds"));
        crate::field_rules::one_of(&ty, &["Percent", "Pods"], errors);
        for number in [&amount, &period] {
            if number.int() <= 0 {
                errors.push(number.invalid("must be greater than zero"));
            }
        }
        if period.int() > PERIOD_SECONDS_MAX {
            errors.push(period.invalid(format!("must be less than or equal to {PERIOD_SECONDS_MAX}")));
        }
    }
    let tolerance = rules.get("tolerance");
    if quantity(tolerance.value()).is_negative() {
        errors.push(tolerance.invalid("must be greater or equal to zero"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &Value, expect: &[&str]) {
        let mut errors = Errors::new();
        validate_spec(&At::root(spec), None, &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn max_replicas_must_not_be_less_than_min_replicas() {
        let target = value!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
        check(&value!({"maxReplicas": 2, "minReplicas": 1, "scaleTargetRef": (target.clone())}), &[]);
        check(
            &value!({"maxReplicas": 0, "minReplicas": 0, "scaleTargetRef": (target)}),
            &[
                "minReplicas: Invalid value: 0: must be greater than or equal to 1",
                "maxReplicas: Required value: must be set and greater than 0",
                "metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
            ],
        );
    }

    #[test]
    fn replication_controller_is_the_only_scalable_core_kind() {
        let check = |version: &str, kind: &str, expect: bool| {
            let reference = value!({"apiVersion": version, "kind": kind});
            assert_eq!(has_group(&At::root(&reference)), expect, "{version} {kind}");
        };
        check("apps/v1", "Deployment", true);
        check("v1", "ReplicationController", true);
        check("v1", "Pod", false);
        check("", "Deployment", false);
    }

    #[test]
    fn behavior_is_defaulted_per_direction() {
        let mut object = value!({"spec": {"behavior": {"scaleDown": {"selectPolicy": "Min"}}}});
        HorizontalPodAutoscaler.default(&mut object, "v2");
        let behavior = &object["spec"]["behavior"];
        assert_eq!(behavior["scaleUp"]["stabilizationWindowSeconds"], value!(0));
        assert_eq!(behavior["scaleDown"]["selectPolicy"], value!("Min"));
        assert_eq!(behavior["scaleDown"].get("stabilizationWindowSeconds"), None);
    }
}
