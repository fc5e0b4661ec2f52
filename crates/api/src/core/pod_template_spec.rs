//! PodTemplateSpec, used by all workloads.
//!
//! Templates have the same rules as pods, except for those that require an existing pod.

use apimachinery::field::{BadValue, Error};
use apimachinery::{At, Errors, Value, meta};

use super::pod_spec::{self, Owner};
use crate::go_form::pods;

pub fn default(template: &mut Value) {
    let Some(object) = template.as_object_mut() else { return };
    let spec = object.get_or_insert_with("spec", Value::object);
    if spec.is_null() {
        *spec = Value::object();
    }
    pod_spec::default(spec);
    pod_spec::default_metadata(template);
}

pub fn validate(template: &At<'_>, errors: &mut Errors) {
    let metadata = template.get("metadata");
    // Upstream reports labels and annotations without `metadata` in the path.
    if let Some(labels) = metadata.value().get("labels").and_then(Value::as_object) {
        meta::validate_labels(labels, &template.path().field("labels"), errors);
    }
    let at = template.path().field("annotations");
    if let Some(annotations) = metadata.value().get("annotations").and_then(Value::as_object) {
        meta::validate_annotations(annotations, &at, errors);
    }
    let spec = template.get("spec");
    let annotations = metadata.get("annotations");
    pod_spec::validate_annotations(annotations.value(), &spec, &at, errors);
    pod_spec::validate(&spec, Owner::Template, errors);
    pod_spec::agree(annotations.value(), &spec, errors);
    if !spec.get("ephemeralContainers").is_empty() {
        let path = spec.path().field("ephemeralContainers");
        errors.push(Error::forbidden(&path, "ephemeral containers not allowed in pod template"));
    }
}

/// Returns warnings; their paths start at the template's path.
pub fn warnings(template: &At<'_>, _old: Option<&At<'_>>) -> Vec<String> {
    if template.is_absent() { Vec::new() } else { pod_spec::warnings(template, Owner::Template) }
}

/// Formats a template for error messages, with the field names of upstream's internal types.
pub fn bad_value(template: &Value) -> BadValue {
    BadValue::Text(pods::print("PodTemplateSpec", template))
}

#[cfg(test)]
mod tests;
