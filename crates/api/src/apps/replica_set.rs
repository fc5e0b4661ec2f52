//! ReplicaSet: runs a number of pod replicas.

use std::sync::Arc;

use apimachinery::meta::Meta;
use apimachinery::{At, Errors, Value};

use super::deployment::validate_replicated;
use crate::core::{object_meta, pod_template_spec};
use crate::field_rules::{column, default_to, immutable_with_value, non_negative, raise_generation, start_generation};
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column, names};
use crate::{status, workload};

pub fn kind() -> Kind {
    let [containers, images] = workload::container_columns();
    Kind {
        short_names: names(&["rs"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::scale(), Subresource::status()],
        rules: Arc::new(ReplicaSet),
        ..Kind::stored("apps", "v1", "ReplicaSet", "replicasets")
    }
    .with_columns(&[
        name_column(),
        column("Desired", "integer", "Desired number of pods.", |object, _| {
            workload::int_cell(object, &["spec", "replicas"])
        }),
        column("Current", "integer", "Number of pods.", |object, _| {
            workload::int_cell(object, &["status", "replicas"])
        }),
        column("Ready", "integer", "Number of ready pods.", |object, _| {
            workload::int_cell(object, &["status", "readyReplicas"])
        }),
        age_column(),
        containers,
        images,
        workload::selector_column(),
    ])
}

#[derive(Debug)]
struct ReplicaSet;

impl Rules for ReplicaSet {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "replicas", 1);
        if let Some(template) = spec.get_mut("template") {
            pod_template_spec::default(template);
        }
    }

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

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        let (root, before) = (At::root(object), At::root(old));
        if context.subresource == "status" {
            return validate_status(&root.get("status"), errors);
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
}

fn validate_spec(spec: &At<'_>, errors: &mut Errors) {
    non_negative(&spec.get("replicas"), errors);
    non_negative(&spec.get("minReadySeconds"), errors);
    validate_replicated(spec, errors);
}

fn validate_status(status: &At<'_>, errors: &mut Errors) {
    const NUMBERS: &[&str] = &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    status::non_negative(status, NUMBERS, errors);
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        status::at_most(status, field, "replicas", "status.replicas", errors);
    }
    status::at_most(status, "availableReplicas", "readyReplicas", "readyReplicas", errors);
}
