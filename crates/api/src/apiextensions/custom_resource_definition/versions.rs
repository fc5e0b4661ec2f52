//! Validation of a CRD version's deprecation, subresources, printer columns and selectable fields.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, go};

use crate::apiextensions::custom_resource::field_path::{self, Notation};

/// Maximum number of selectable fields per version.
const SELECTABLE_MAX: usize = 8;

/// Printer column types, sorted.
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
/// Printer column formats, sorted.
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Whether the status subresource is enabled.
pub(super) fn has_status(subresources: Option<&Value>) -> bool {
    subresources.and_then(|all| all.get("status")).is_some_and(|status| !status.is_null())
}

pub(super) fn validate_deprecation(version: &At<'_>, errors: &mut Errors) {
    let warning = version.get("deprecationWarning");
    if warning.is_absent() {
        return;
    }
    if !version.get("deprecated").bool() {
        return errors.push(warning.invalid("can only be set for deprecated versions"));
    }
    if warning.len() > 256 {
        errors.push(warning.invalid("must be <= 256 characters long"));
    }
    if warning.is_empty() {
        errors.push(warning.invalid("must not be an empty string"));
    }
    if let Some((at, _)) = warning.str().char_indices().find(|(_, char)| !go::is_printable(*char)) {
        let detail =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {at}");
        errors.push(warning.invalid(detail));
    }
}

pub(super) fn validate_subresources(all: &At<'_>, errors: &mut Errors) {
    let scale = all.get("scale");
    if scale.is_absent() {
        return;
    }
    for (field, parents) in [("specReplicasPath", [".spec."].as_slice()), ("statusReplicasPath", &[".status."])] {
        let path = scale.get(field);
        if path.is_empty() {
            errors.push(path.required(""));
        } else {
            validate_under(&path, parents, errors);
        }
    }
    let selector = scale.get("labelSelectorPath");
    if !selector.is_empty() {
        validate_under(&selector, &[".spec.", ".status."], errors);
    }
}

fn validate_under(path: &At<'_>, parents: &[&str], errors: &mut Errors) {
    if !path.str().starts_with('.') {
        return errors.push(path.invalid("must be a simple json path starting with ."));
    }
    if parents.iter().any(|parent| path.str().starts_with(parent)) {
        return;
    }
    let names: Vec<_> = parents.iter().map(|parent| parent.trim_end_matches('.')).collect();
    let detail = match names.as_slice() {
        [one] => format!("should be a json path under {one}"),
        _ => format!("should be a json path under either {}", names.join(" or ")),
    };
    errors.push(path.invalid(detail));
}

pub(super) fn validate_columns(all: &At<'_>, errors: &mut Errors) {
    for column in all.items() {
        if column.get("name").is_empty() {
            errors.push(column.get("name").required(""));
        }
        let (ty, format, path) = (column.get("type"), column.get("format"), column.get("jsonPath"));
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        if ty.is_empty() {
            errors.push(ty.required(types));
        } else if !COLUMN_TYPES.contains(&ty.str()) {
            errors.push(ty.invalid(types));
        }
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format.str()) {
            errors.push(format.invalid(format!("must be one of {}", COLUMN_FORMATS.join(","))));
        }
        // The Go name of the field.
        let at = column.path().field("JSONPath");
        if path.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if !path.str().starts_with('.') {
            errors.push(Error::invalid(&at, path.str(), "must be a simple json path starting with ."));
        }
    }
}

/// Validates selectable fields against the `schema` of the version.
pub(super) fn validate_selectable(all: &At<'_>, schema: &Value, errors: &mut Errors) {
    static NOTHING: Value = Value::Null;
    let schema = schema.get("openAPIV3Schema").unwrap_or(&NOTHING);
    let mut seen: Vec<String> = Vec::new();
    for field in all.items() {
        let path = field.get("jsonPath");
        if path.is_empty() {
            errors.push(path.required(""));
            continue;
        }
        let found = match field_path::resolve(path.str(), schema, Notation::Dots) {
            Ok(found) => found,
            Err(error) => {
                errors.push(path.invalid(format!("is an invalid path: {error}")));
                continue;
            }
        };
        if found.steps.first().is_some_and(|step| step == "metadata") {
            errors.push(path.invalid("must not point to fields in metadata"));
        }
        let ty = found.schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if !matches!(ty, "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.push(path.invalid(detail));
        }
        if seen.contains(&found.printed) {
            errors.push(path.duplicate());
        } else {
            seen.push(found.printed);
        }
    }
    if seen.len() > SELECTABLE_MAX {
        errors.push(Error::too_many(all.path(), seen.len(), SELECTABLE_MAX));
    }
}
