//! The annotation that `--save-config` writes and `kubectl apply` reads.

use apimachinery::json::Encoder;
use apimachinery::{Object, Value};

use super::put;

/// The annotation with the last configuration that a user applied.
pub const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotates an object of a built-in kind with its own configuration.
pub fn save(object: &mut Value) {
    if let Some(Value::Object(annotations)) = object.get_mut("metadata").and_then(|meta| meta.get_mut("annotations")) {
        annotations.remove(ANNOTATION);
        if annotations.is_empty()
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("annotations");
        }
    }
    let mut json = Vec::new();
    Encoder::new(api::catalogue::find).write(object, &mut json);
    json.push(b'\n');
    put(object, &["metadata", "annotations", ANNOTATION], String::from_utf8_lossy(&json).into_owned());
}

/// Annotates an object if `create` is set or if it has the annotation already.
pub fn save_if(create: bool, object: &mut Value) {
    let annotations = object.at(&["metadata", "annotations"]).and_then(Value::as_object);
    if create || annotations.is_some_and(|annotations: &Object| annotations.contains_key(ANNOTATION)) {
        save(object);
    }
}
