//! DaemonSet: runs one pod on every eligible node.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::table::Column;
use apimachinery::{At, Errors, Value, labels};

use crate::core::{object_meta, pod_template_spec};
use crate::field_rules::{
    column, default_empty_to, default_to, immutable_with_value, non_negative, raise_generation, same, start_generation,
};
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column, names};
use crate::{status, workload};

/// Annotation that replaces the v1beta1 field `spec.templateGeneration`.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ds"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::status()],
        field_annotations: &[TEMPLATE_GENERATION],
        rules: Arc::new(DaemonSet),
        ..Kind::stored("apps", "v1", "DaemonSet", "daemonsets")
    }
    .with_columns(&columns())
}

fn columns() -> Vec<Column> {
    let [containers, images] = workload::container_columns();
    vec![
        name_column(),
        column("Desired", "integer", "Nodes that should run a pod.", |object, _| {
            workload::int_cell(object, &["status", "desiredNumberScheduled"])
        }),
        column("Current", "integer", "Nodes that should run a pod and do.", |object, _| {
            workload::int_cell(object, &["status", "currentNumberScheduled"])
        }),
        column("Ready", "integer", "Number of nodes with a ready pod.", |object, _| {
            workload::int_cell(object, &["status", "numberReady"])
        }),
        column("Up-to-date", "integer", "Nodes that run a pod with the current template.", |object, _| {
            workload::int_cell(object, &["status", "updatedNumberScheduled"])
        }),
        column("Available", "integer", "Number of nodes with an available pod.", |object, _| {
            workload::int_cell(object, &["status", "numberAvailable"])
        }),
        column("Node Selector", "string", "Node selector of the pods.", |object, _| {
            labels::format_labels(object.at(&["spec", "template", "spec", "nodeSelector"])).into()
        }),
        age_column(),
        containers,
        images,
        workload::selector_column(),
    ]
}

#[derive(Debug)]
struct DaemonSet;

impl Rules for DaemonSet {
    fn default(&self, object: &mut Value, _version: &str) {
        // Upstream's conversion sets the annotation on every object, so every writer becomes its field manager.
        let generation = template_generation(object);
        set_template_generation(object, generation);
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "revisionHistoryLimit", 10);
        default_to(spec, "updateStrategy", Value::object());
        if let Some(strategy) = spec.get_mut("updateStrategy") {
            default_empty_to(strategy, "type", "RollingUpdate");
            if strategy.str_at(&["type"]) == Some("RollingUpdate") {
                default_to(strategy, "rollingUpdate", Value::object());
                if let Some(rolling) = strategy.get_mut("rollingUpdate") {
                    default_to(rolling, "maxUnavailable", 1);
                    default_to(rolling, "maxSurge", 0);
                }
            }
        }
        if let Some(template) = spec.get_mut("template") {
            pod_template_spec::default(template);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        status::reset(object);
        start_generation(object);
        let generation = template_generation(object).max(1);
        set_template_generation(object, generation);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if !status::separate(object, old, context) {
            return;
        }
        let template = |of: &Value| of.at(&["spec", "template"]).cloned().unwrap_or_default();
        let changed = !same(&template(object), &template(old));
        set_template_generation(object, template_generation(old) + i64::from(changed));
        raise_generation(object, old, &["spec"]);
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
        let selector = spec.get("selector");
        let bad_value = || workload::selector_bad_value(selector.value());
        immutable_with_value(&selector, &before.get("selector"), bad_value, errors);
        validate_spec(&spec, errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        if !context.subresource.is_empty() {
            return Vec::new();
        }
        let root = At::root(object);
        let spec = root.get("spec");
        let template = spec.get("template");
        workload::template_warnings(&template, object, old, &["spec", "template"])
    }
}

fn validate_spec(spec: &At<'_>, errors: &mut Errors) {
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    labels::validate_object(selector.value(), selector.path(), errors);
    if let Ok(read) = labels::from_object(Some(selector.value())) {
        workload::matches_template(&read, &template, errors);
    }
    if selector.is_present() {
        workload::not_empty(&selector, "daemonset", errors);
    }
    pod_template_spec::validate(&template, errors);
    workload::runs_forever(&template, "DaemonSet", errors);
    non_negative(&spec.get("minReadySeconds"), errors);
    validate_strategy(&spec.get("updateStrategy"), errors);
    non_negative(&spec.get("revisionHistoryLimit"), errors);
}

fn validate_strategy(strategy: &At<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").str() {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_absent() => errors.push(rolling.required("")),
        "RollingUpdate" => validate_rolling(&rolling, errors),
        _ => {
            // Upstream's internal type has zeros where v1 fields may be absent.
            let mut plain = strategy.value().clone();
            if let Some(rolling) = plain.get_mut("rollingUpdate") {
                default_to(rolling, "maxUnavailable", 0);
                default_to(rolling, "maxSurge", 0);
            }
            let plain = At::new(&plain, *strategy.path());
            let bad_value = workload::bad_value(&plain, ("apps", "v1", "DaemonSet"), &["spec", "updateStrategy"]);
            errors.push(Error::not_supported(strategy.path(), bad_value, &["RollingUpdate", "OnDelete"]));
        }
    }
}

fn validate_rolling(rolling: &At<'_>, errors: &mut Errors) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    for number in [&unavailable, &surge] {
        workload::int_or_percent(number, errors);
    }
    for number in [&unavailable, &surge] {
        workload::at_most_all(number, errors);
    }
    match [&unavailable, &surge].map(|at| workload::int_or_percent_value(at.value()) != 0) {
        [true, true] => errors.push(surge.invalid("may not be set when maxUnavailable is non-zero")),
        [false, false] => errors.push(unavailable.required("cannot be 0 when maxSurge is 0")),
        _ => {}
    }
}

fn validate_status(status: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    const NUMBERS: &[&str] = &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    status::non_negative(status, NUMBERS, errors);
    status::never_decremented(status, old, "collisionCount", errors);
}

fn template_generation(object: &Value) -> i64 {
    Meta::of(object).annotation(TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(mut meta) = MetaMut::of(object) {
        meta.set_annotation(TEMPLATE_GENERATION, &generation.to_string());
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn exactly_one_of_max_surge_and_max_unavailable_is_nonzero() {
        let check = |unavailable: Value, surge: Value, expect: &[&str]| {
            let mut errors = Errors::new();
            let rolling = value!({"maxUnavailable": (unavailable), "maxSurge": (surge)});
            validate_rolling(&At::root(&rolling), &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
        };
        check(value!(1), value!(0), &[]);
        check(value!(0), value!("10%"), &[]);
        check(value!(0), value!(0), &["maxUnavailable: Required value: cannot be 0 when maxSurge is 0"]);
        check(value!(1), value!(1), &["maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"]);
    }

    #[test]
    fn template_change_increments_template_generation() {
        let old = value!({"metadata": {"generation": 4, "annotations": {"deprecated.daemonset.template.generation": "2"}},
            "spec": {"template": {"spec": {"x": 1}}}});
        let mut new = value!({"metadata": {}, "spec": {"template": {"spec": {"x": 2}}}});
        let kind = kind();
        let requester = crate::kind::Requester::default();
        let now = apimachinery::time::Time::from_unix(0, 0);
        let context = Context { version: &kind.versions[0], subresource: "", now, requester: &requester };
        DaemonSet.prepare_update(&mut new, &old, &context);
        assert_eq!(Meta::of(&new).annotation(TEMPLATE_GENERATION), Some("3"));
        assert_eq!(Meta::of(&new).generation(), 5);
    }
}
