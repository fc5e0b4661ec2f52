//! What a pod made from a template will be: the part that every workload shares.
//!
//! A pod's own rules and those of a template are the same but for what only exists once there is a pod.

use machinery::field::{BadValue, Error};
use machinery::{At, Errors, Value, meta};

use super::pod_spec::{self, Owner};
use crate::go_form::pods;

/// Fills in what a `PodTemplateSpec` leaves out.
pub fn default(template: &mut Value) {
    let Some(object) = template.as_object_mut() else { return };
    let spec = object.get_or_insert_with("spec", Value::object);
    if spec.is_null() {
        *spec = Value::object();
    }
    pod_spec::default(spec);
    pod_spec::default_metadata(template);
}

/// What is wrong with a `PodTemplateSpec`.
pub fn validate(template: &At<'_>, errors: &mut Errors) {
    let metadata = template.get("metadata");
    // Upstream blames labels and annotations as if they stood in the template itself.
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

/// What a client should know about a `PodTemplateSpec`. Paths in the texts start at the template's own.
pub fn warnings(template: &At<'_>, _old: Option<&At<'_>>) -> Vec<String> {
    if template.is_absent() { Vec::new() } else { pod_spec::warnings(template, Owner::Template) }
}

/// A template as a message shows it: by the names of upstream's internal types.
pub fn shown(template: &Value) -> BadValue {
    BadValue::Text(pods::print("PodTemplateSpec", template))
}

#[cfg(test)]
mod tests;
