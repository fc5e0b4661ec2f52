//! The annotation with the last applied configuration, which `--save-config` and `kubectl apply` write and `apply`
//! reads.

use apimachinery::json::Encoder;
use apimachinery::{Object, Value, go, value};

use super::put;

/// The annotation with the last configuration that a user applied.
pub const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotates an object of a built-in kind with its own configuration, in the order of its Go type.
pub fn save(object: &mut Value) {
    remove_annotation(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("annotations").and_then(Value::as_object).is_some_and(Object::is_empty)
    {
        metadata.remove("annotations");
    }
    let mut json = Vec::new();
    Encoder::new(api::catalogue::find).write(object, &mut json);
    let text = format!("{}\n", String::from_utf8_lossy(&json));
    put(object, &["metadata", "annotations", ANNOTATION], text);
}

/// Annotates an object with its own configuration, sorted by key.
pub fn save_untyped(object: &mut Value) {
    let text = encode(&configuration(object));
    put(object, &["metadata", "annotations", ANNOTATION], text);
}

/// Returns the configuration of an object in the stored form: without this annotation, and with `annotations` even if
/// it is empty.
pub fn configuration(object: &Value) -> Value {
    let mut object = object.clone();
    remove_annotation(&mut object);
    if object.at(&["metadata", "annotations"]).is_none_or(|annotations| annotations.as_object().is_none()) {
        put(&mut object, &["metadata", "annotations"], Value::object());
    }
    object
}

/// Returns the JSON text of a configuration: sorted by key, characters escaped like Go's encoder, with a newline.
pub fn encode(object: &Value) -> String {
    go::json(object) + "\n"
}

/// Returns the patch that sets the annotation.
pub fn patch(text: String) -> Value {
    let annotations: Object = [(ANNOTATION, text)].into_iter().collect();
    value!({"metadata": {"annotations": annotations}})
}

/// Returns the last applied configuration of an object; [`None`] without the annotation or if it is empty.
pub fn original(object: &Value) -> Option<&str> {
    object.str_at(&["metadata", "annotations", ANNOTATION]).filter(|text| !text.is_empty())
}

/// Whether an object has the annotation.
pub fn is_saved(object: &Value) -> bool {
    let annotations = object.at(&["metadata", "annotations"]).and_then(Value::as_object);
    annotations.is_some_and(|annotations: &Object| annotations.contains_key(ANNOTATION))
}

fn remove_annotation(object: &mut Value) {
    if let Some(Value::Object(annotations)) = object.get_mut("metadata").and_then(|meta| meta.get_mut("annotations")) {
        annotations.remove(ANNOTATION);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_is_sorted_json_with_a_newline_and_escapes_of_go() {
        let mut object =
            value!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "<&>"}});
        save_untyped(&mut object);
        assert_eq!(
            original(&object),
            Some(
                "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"\\u003c\\u0026\\u003e\"},\"kind\":\"ConfigMap\",\
                 \"metadata\":{\"annotations\":{},\"name\":\"a\"}}\n"
            )
        );
    }

    #[test]
    fn annotating_twice_does_not_nest_the_annotation() {
        let mut once =
            value!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "annotations": null}});
        save_untyped(&mut once);
        let mut twice = once.clone();
        save_untyped(&mut twice);
        assert_eq!(once, twice);
    }
}
