//! Claim templates of generic ephemeral volumes.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Object, Value, meta};

use crate::core::persistent_volume_claim;

/// Metadata fields that a claim template may have.
const METADATA: [&str; 2] = ["annotations", "labels"];

pub(super) fn template(template: &At<'_>, errors: &mut Errors) {
    let metadata = template.get("metadata");
    if let Some(annotations) = metadata.value().get("annotations").and_then(Value::as_object) {
        meta::validate_annotations(annotations, &metadata.path().field("annotations"), errors);
    }
    if let Some(labels) = metadata.value().get("labels").and_then(Value::as_object) {
        meta::validate_labels(labels, &metadata.path().field("labels"), errors);
    }
    for (field, value) in metadata.value().as_object().into_iter().flat_map(Object::iter) {
        if !METADATA.contains(&field) && !value.is_null() {
            errors.push(Error::forbidden(&metadata.path().field(field), "cannot be set"));
        }
    }
    persistent_volume_claim::validate_spec(&template.get("spec"), errors);
}
