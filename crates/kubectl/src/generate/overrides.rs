//! `--overrides`: a patch of a generated object.

use apimachinery::Value;
use apimachinery::patch::{Error as PatchError, PatchType, apply_patch};

use super::{Error, typed};

/// Applies an inline patch, `kind` being the value of `--override-type`. An empty patch changes nothing.
pub fn apply(object: Value, patch: &str, kind: &str) -> Result<Value, Error> {
    if patch.is_empty() {
        return Ok(object);
    }
    let patch_type = match kind {
        "json" => PatchType::Json,
        "" | "merge" => PatchType::Merge,
        "strategic" => PatchType::Strategic,
        other => return Err(Error::new(format!("invalid override type: {other}"))),
    };
    let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let schema = api::catalogue::find(text("apiVersion"), text("kind"));
    let patched =
        apply_patch(patch_type, object, patch.as_bytes(), schema).map_err(|error| fault(patch_type, &error))?;
    Ok(typed(patched))
}

/// Formats an error like the library of the patch type.
fn fault(patch_type: PatchType, error: &PatchError) -> Error {
    match (patch_type, error) {
        // A list replaces the object, which then has no kind.
        (PatchType::Merge, PatchError::NotAnObject("array")) => Error::new(
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        ),
        (PatchType::Merge, PatchError::Syntax(_) | PatchError::NotAnObject(_)) => Error::new("Invalid JSON Patch"),
        (PatchType::Strategic, PatchError::Syntax(_) | PatchError::NotAnObject(_)) => {
            Error::new("invalid JSON document")
        }
        (_, PatchError::Syntax(cause)) => Error::new(cause.to_string()),
        (_, other) => Error::new(other.to_string()),
    }
}
