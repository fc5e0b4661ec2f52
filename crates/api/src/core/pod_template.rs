//! PodTemplate: a template for pods.

use std::sync::Arc;

use apimachinery::labels::format_labels;
use apimachinery::{At, Errors, Value};

use super::{object_meta, pod_template_spec};
use crate::field_rules::{column, raise_generation, start_generation};
use crate::kind::{Context, Kind, Rules, UpdateChecks, name_column};
use crate::workload::{names_of, template_warnings};

pub fn kind() -> Kind {
    Kind {
        returns_deleted: true,
        rules: Arc::new(PodTemplate),
        update_checks: UpdateChecks { whole: 0, change: 0 },
        ..Kind::stored("", "v1", "PodTemplate", "podtemplates")
    }
    .with_columns(&[
        name_column(),
        column("Containers", "string", "The names of the containers.", |object, _| {
            names_of(object.at(&["template", "spec"]), "name")
        }),
        column("Images", "string", "The images of the containers.", |object, _| {
            names_of(object.at(&["template", "spec"]), "image")
        }),
        column("Pod Labels", "string", "Labels of the pods.", |object, _| {
            format_labels(object.at(&["template", "metadata", "labels"])).into()
        }),
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
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        raise_generation(object, old, &["template"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        pod_template_spec::validate(&At::root(object).get("template"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        object_meta::updated(object, old, errors);
        pod_template_spec::validate(&At::root(object).get("template"), errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        template_warnings(&At::root(object).get("template"), object, old, &["template"])
    }
}
