//! The last-applied-configuration annotation: compatibility with kubectl's client-side apply.

use super::collect::field_set;
use super::compare::compare;
use super::fieldset::FieldSet;
use super::gotext;
use super::validate::{Duplicates, validate};
use crate::{Schema, Value, json};

/// The field manager of `kubectl apply --server-side`; the annotation is honored only for this manager.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Maximum total size of an object's annotations in bytes.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// Returns the fields that client-side apply set and that are unchanged since. Server-side apply takes them over
/// without a conflict.
pub(super) fn unchanged_fields(schema: Schema<'_>, api_version: &str, live: &Value) -> Option<FieldSet> {
    let text = annotation(live)?;
    let applied = json::parse(text.as_bytes()).ok()?;
    if applied.str_at(&["apiVersion"]) != Some(api_version) {
        return None;
    }
    validate(schema, &applied, Duplicates::Rejected).ok()?;
    let changes = compare(schema, &applied, live);
    let fields = field_set(schema, &applied);
    Some(fields.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

/// Updates the annotation, if the object has one, to the configuration applied now, so that a later client-side apply
/// computes a correct diff.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(metadata)) = config.get_mut("metadata")
        && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
    {
        annotations.remove(ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    let mut text = String::new();
    gotext::write_json(&mut text, &config);
    text.push('\n');
    let Some(Value::Object(annotations)) = object.get_mut("metadata").and_then(|it| it.get_mut("annotations")) else {
        return;
    };
    annotations.insert(ANNOTATION, text);
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    object.str_at(&["metadata", "annotations", ANNOTATION]).filter(|text| !text.is_empty())
}
