//! ReplicationController: so many pods of a template, the old way.

use std::sync::Arc;

use machinery::field::Error;
use machinery::labels::format_labels;
use machinery::meta::MetaMut;
use machinery::table::{Cell, Column};
use machinery::time::Time;
use machinery::{At, Errors, GroupVersion, Object, Value, names as rules};

use super::pod_spec::{invalid_int, not_negative};
use super::{object_meta, pod_template_spec};
use crate::kind::{Context, Dependents, Keeping, Kind, Rules, Selectable, Subresource, age_column, name_column, names};

/// The row of ReplicationController.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["rc"]),
        categories: names(&["all"]),
        keeping: Keeping::Stored {
            prefix: "controllers".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![Subresource::scale(), Subresource::status()],
        dependents: Dependents::Orphan,
        selectable: vec![Selectable::new("status.replicas", |object| {
            number(object, &["status", "replicas"]).to_string().into()
        })],
        rules: Arc::new(ReplicationController),
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
        // The schema declares 0, which is not kept, being what no value means.
        if let Some(spec) = spec.as_object_mut()
            && spec.get("minReadySeconds") == Some(&Value::Int(0))
        {
            spec.remove("minReadySeconds");
        }
        labels_from_template(object);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        if let Some(mut metadata) = MetaMut::of(object) {
            metadata.set("generation", 1);
        }
        // The number of replicas is said even where it is none.
        if let Some(controller) = object.as_object_mut() {
            controller.insert("status", machinery::value!({"replicas": 0}));
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        let kept = if context.subresource == "status" { "spec" } else { "status" };
        if let Some(controller) = object.as_object_mut() {
            match old.get(kept) {
                Some(part) => controller.insert(kept, part.clone()),
                None => controller.remove(kept),
            };
        }
        if object.get("spec") != old.get("spec")
            && let Some(mut metadata) = MetaMut::of(object)
        {
            metadata.set("generation", number(old, &["metadata", "generation"]) + 1);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        spec(&At::root(object).get("spec"), &At::root(&Value::Null), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::updated(object, old, errors);
        let (root, before) = (At::root(object), At::root(old));
        match context.subresource {
            "status" => status(&root.get("status"), errors),
            _ => spec(&root.get("spec"), &before.get("spec"), errors),
        }
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        let root = At::root(object);
        let spec = root.get("spec");
        let mut warnings = Vec::new();
        let wrong = rules::dns1123_label(object.str_at(&["metadata", "name"]).unwrap_or_default());
        if old.is_none() && !wrong.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
                wrong.join(" ")
            ));
        }
        let unchanged = old.is_some_and(|old| old.get("spec") == object.get("spec"));
        if context.subresource.is_empty() && !unchanged {
            warnings.extend(pod_template_spec::warnings(&spec.get("template"), None));
        }
        warnings
    }
}

/// A controller without a selector selects the pods that it makes, and has their labels if it has none.
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
    not_negative(&spec.get("minReadySeconds"), errors);
    let (selector, replicas, template) = (spec.get("selector"), spec.get("replicas"), spec.get("template"));
    if selector.is_empty() {
        errors.push(selector.required(""));
    }
    if replicas.is_absent() {
        errors.push(replicas.required(""));
    } else {
        not_negative(&replicas, errors);
    }
    if template.is_absent() {
        errors.push(template.required(""));
        return;
    }
    let metadata = template.get("metadata");
    let labels = metadata.get("labels");
    if selector.entries().any(|(key, value)| labels.value().get(key) != Some(value.value())) {
        // Decoding has dropped a map that lost its last entry; upstream shows it as empty.
        let had = old.value().at(&["template", "metadata", "labels"]).is_some();
        let shown = if labels.is_absent() && had { Value::object() } else { labels.value().clone() };
        errors.push(Error::invalid(labels.path(), shown, "`selector` does not match template `labels`"));
    }
    pod_template_spec::validate(&template, errors);
    let pod = template.get("spec");
    let (policy, deadline) = (pod.get("restartPolicy"), pod.get("activeDeadlineSeconds"));
    if policy.str() != "Always" {
        errors.push(Error::not_supported(policy.path(), policy.str(), &["Always"]));
    }
    if deadline.is_present() {
        errors.push(deadline.forbidden("activeDeadlineSeconds in ReplicationController is not Supported"));
    }
}

fn status(status: &At<'_>, errors: &mut Errors) {
    for field in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"] {
        not_negative(&status.get(field), errors);
    }
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        let some = status.get(field);
        if some.int() > status.get("replicas").int() {
            errors.push(invalid_int(&some, "cannot be greater than status.replicas"));
        }
    }
    let available = status.get("availableReplicas");
    if available.int() > status.get("readyReplicas").int() {
        errors.push(invalid_int(&available, "cannot be greater than readyReplicas"));
    }
}

fn number(object: &Value, path: &[&str]) -> i64 {
    object.at(path).and_then(Value::as_int).unwrap_or_default()
}

fn columns() -> Vec<Column> {
    type Make = fn(&Value, Time) -> Value;
    let count =
        |name: &str, description: &str, make: Make| Column::new(name, "integer", description, Cell::Function(make));
    let wide = |name: &str, description: &str, make: Make| Column {
        priority: 1,
        ..Column::new(name, "string", description, Cell::Function(make))
    };
    vec![
        name_column(),
        count("Desired", "How many pods there should be.", |object, _| number(object, &["spec", "replicas"]).into()),
        count("Current", "How many pods there are.", |object, _| number(object, &["status", "replicas"]).into()),
        count("Ready", "How many pods are ready.", |object, _| number(object, &["status", "readyReplicas"]).into()),
        age_column(),
        wide("Containers", "The names of the containers.", |object, _| {
            pod_template_spec::container_names(&object["spec"]["template"]).into()
        }),
        wide("Images", "The images of the containers.", |object, _| {
            pod_template_spec::container_images(&object["spec"]["template"]).into()
        }),
        wide("Selector", "Which pods are counted.", |object, _| format_labels(object.at(&["spec", "selector"])).into()),
    ]
}
