//! The annotation that `--save-config` writes and `kubectl apply` reads.

use apimachinery::json::Encoder;
use apimachinery::{Object, Value, go};

use super::put;

/// The annotation with the last configuration that a user applied.
pub const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotates an object of a built-in kind with its own configuration, in the order of its Go type.
pub fn save(object: &mut Value) {
    forget(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("annotations").and_then(Value::as_object).is_some_and(Object::is_empty)
    {
        metadata.remove("annotations");
    }
    save_as(object, |object| {
        let mut json = Vec::new();
        Encoder::new(api::catalogue::find).write(object, &mut json);
        String::from_utf8_lossy(&json).into_owned()
    });
}

/// Annotates an object with its own configuration, sorted by key.
pub fn save_untyped(object: &mut Value) {
    forget(object);
    // The saved configuration has a map of annotations, even if it is empty.
    if object.at(&["metadata", "annotations"]).is_none_or(Value::is_null) {
        put(object, &["metadata", "annotations"], Value::object());
    }
    save_as(object, go::json);
}

/// Whether an object has the annotation.
pub fn is_saved(object: &Value) -> bool {
    let annotations = object.at(&["metadata", "annotations"]).and_then(Value::as_object);
    annotations.is_some_and(|annotations: &Object| annotations.contains_key(ANNOTATION))
}

fn forget(object: &mut Value) {
    if let Some(Value::Object(annotations)) = object.get_mut("metadata").and_then(|meta| meta.get_mut("annotations")) {
        annotations.remove(ANNOTATION);
    }
}

fn save_as(object: &mut Value, encode: impl FnOnce(&Value) -> String) {
    let json = encode(object);
    put(object, &["metadata", "annotations", ANNOTATION], format!("{json}\n"));
}
