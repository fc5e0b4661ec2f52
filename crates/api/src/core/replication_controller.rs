//! ReplicationController: runs a number of pod replicas; the predecessor of ReplicaSet.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::labels::format_labels;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::table::Column;
use apimachinery::{At, Errors, GroupVersion, Object, Value};

use super::{object_meta, pod_template_spec};
use crate::field_rules::{column, non_negative, raise_generation, start_generation, wide_column};
use crate::kind::{
    Context, Dependents, Kind, Persistence, Rules, Selectable, Subresource, UpdateChecks, age_column, name_column,
    names,
};
use crate::status;
use crate::workload::{container_columns, int_cell, pod_name_warning, runs_forever, template_warnings};

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["rc"]),
        categories: names(&["all"]),
        persistence: Persistence::Stored {
            prefix: "controllers".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![Subresource::scale(), Subresource::status()],
        dependents: Dependents::Orphan,
        selectable: vec![Selectable::new("status.replicas", |object| {
            int_cell(object, &["status", "replicas"]).to_string().into()
        })],
        rules: Arc::new(ReplicationController),
        update_checks: UpdateChecks { whole: 0, change: 0 },
        ..Kind::stored("", "v1", "ReplicationController", "replicationcontrollers")
    }
    .with_columns(&columns())
}

#[derive(Debug)]
struct ReplicationController;

impl Rules for ReplicationController {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(controller) = object.as_object_mut() else { return };
        let spec = controller.get_or_insert_with("spec", Value::object);
        if let Some(template) = spec.get_mut("template").filter(|template| !template.is_null()) {
            pod_template_spec::default(template);
        }
        // The schema's default is 0, which upstream does not store because it equals the absent value.
        if let Some(spec) = spec.as_object_mut()
            && spec.get("minReadySeconds") == Some(&Value::Int(0))
        {
            spec.remove("minReadySeconds");
        }
        labels_from_template(object);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        start_generation(object);
        status::reset(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        status::separate(object, old, context);
        raise_generation(object, old, &["spec"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        spec(&At::root(object).get("spec"), &At::root(&Value::Null), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::updated(object, old, errors);
        let (root, before) = (At::root(object), At::root(old));
        match context.subresource {
            "status" => validate_status(&root.get("status"), errors),
            _ => spec(&root.get("spec"), &before.get("spec"), errors),
        }
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        let root = At::root(object);
        let spec = root.get("spec");
        let name = old.is_none().then(|| pod_name_warning(Meta::of(object).name())).flatten();
        let mut warnings: Vec<_> = name.into_iter().collect();
        if context.subresource.is_empty() {
            warnings.extend(template_warnings(&spec.get("template"), object, old, &["spec", "template"]));
        }
        warnings
    }
}

/// Defaults an absent selector and absent labels from the template's labels.
fn labels_from_template(object: &mut Value) {
    let Some(Value::Object(labels)) = object.at(&["spec", "template", "metadata", "labels"]).cloned() else { return };
    let is_empty = |map: Option<&Value>| map.and_then(Value::as_object).is_none_or(Object::is_empty);
    if is_empty(object.at(&["spec", "selector"]))
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("selector", labels.clone());
    }
    if is_empty(object.at(&["metadata", "labels"]))
        && let Some(mut metadata) = MetaMut::of(object)
    {
        metadata.set("labels", labels);
    }
}

fn spec(spec: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    non_negative(&spec.get("minReadySeconds"), errors);
    let (selector, replicas, template) = (spec.get("selector"), spec.get("replicas"), spec.get("template"));
    if selector.is_empty() {
        errors.push(selector.required(""));
    }
    if replicas.is_absent() {
        errors.push(replicas.required(""));
    } else {
        non_negative(&replicas, errors);
    }
    if template.is_absent() {
        errors.push(template.required(""));
        return;
    }
    let metadata = template.get("metadata");
    let labels = metadata.get("labels");
    if selector.entries().any(|(key, value)| labels.value().get(key) != Some(value.value())) {
        // Decoding drops a map that became empty; upstream reports it as an empty map.
        let had = old.value().at(&["template", "metadata", "labels"]).is_some();
        let bad_value = if labels.is_absent() && had { Value::object() } else { labels.value().clone() };
        errors.push(Error::invalid(labels.path(), bad_value, "`selector` does not match template `labels`"));
    }
    pod_template_spec::validate(&template, errors);
    runs_forever(&template, "ReplicationController", errors);
}

fn validate_status(replicas: &At<'_>, errors: &mut Errors) {
    let numbers = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    status::non_negative(replicas, &numbers, errors);
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        status::at_most(replicas, field, "replicas", "status.replicas", errors);
    }
    status::at_most(replicas, "availableReplicas", "readyReplicas", "readyReplicas", errors);
}

fn columns() -> Vec<Column> {
    let [containers, images] = container_columns();
    vec![
        name_column(),
        column("Desired", "integer", "Desired number of pods.", |object, _| int_cell(object, &["spec", "replicas"])),
        column("Current", "integer", "Number of pods.", |object, _| int_cell(object, &["status", "replicas"])),
        column("Ready", "integer", "Number of ready pods.", |object, _| int_cell(object, &["status", "readyReplicas"])),
        age_column(),
        containers,
        images,
        wide_column("Selector", "string", "Label selector of the pods.", |object, _| {
            format_labels(object.at(&["spec", "selector"])).into()
        }),
    ]
}
