//! PodTemplate: what a pod made from it will be.

use std::sync::Arc;

use machinery::labels::format_labels;
use machinery::meta::MetaMut;
use machinery::table::{Cell, Column};
use machinery::{At, Errors, Value};

use super::{object_meta, pod_template_spec};
use crate::kind::{Context, Kind, Rules, name_column};

/// The row of PodTemplate.
pub fn kind() -> Kind {
    Kind {
        returns_deleted: true,
        rules: Arc::new(PodTemplate),
        ..Kind::stored("", "v1", "PodTemplate", "podtemplates")
    }
    .with_columns(&[
        name_column(),
        Column::new(
            "Containers",
            "string",
            "The names of the containers.",
            Cell::Function(|object, _| pod_template_spec::container_names(&object["template"]).into()),
        ),
        Column::new(
            "Images",
            "string",
            "The images of the containers.",
            Cell::Function(|object, _| pod_template_spec::container_images(&object["template"]).into()),
        ),
        Column::new(
            "Pod Labels",
            "string",
            "The labels that pods will have.",
            Cell::Function(|object, _| format_labels(object.at(&["template", "metadata", "labels"])).into()),
        ),
    ])
}

#[derive(Debug)]
struct PodTemplate;

impl Rules for PodTemplate {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(object) = object.as_object_mut() else { return };
        let template = object.get_or_insert_with("template", Value::object);
        if template.is_null() {
            *template = Value::object();
        }
        pod_template_spec::default(template);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        if let Some(mut metadata) = MetaMut::of(object) {
            metadata.set("generation", 1);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        let before = old.at(&["metadata", "generation"]).and_then(Value::as_int).unwrap_or_default();
        if object.get("template") != old.get("template")
            && let Some(mut metadata) = MetaMut::of(object)
        {
            metadata.set("generation", before + 1);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        pod_template_spec::validate(&At::root(object).get("template"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        object_meta::updated(object, old, errors);
        pod_template_spec::validate(&At::root(object).get("template"), errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        let unchanged = old.is_some_and(|old| old.get("template") == object.get("template"));
        let root = At::root(object);
        if unchanged { Vec::new() } else { pod_template_spec::warnings(&root.get("template"), None) }
    }
}
