//! Query and path parameters of operations.

use api::catalogue;
use apimachinery::GroupVersionKind;
use apimachinery::schema::{Schema, Shape, Struct};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub name: String,
    pub location: ParameterLocation,
    /// `string`, `integer` or `boolean`.
    pub json_type: &'static str,
    pub description: String,
}

/// The location of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ParameterLocation {
    /// In the path; required.
    Path,
    /// In the query; optional.
    Query,
}

/// The common query parameters: name, type and description, sorted by name.
const QUERY: &[(&str, &str, &str)] = &[
    ("allowWatchBookmarks", "boolean", "Whether the watch may send BOOKMARK events."),
    ("continue", "string", "The continue token of the previous part of the list."),
    ("dryRun", "string", "If set to All, the request is processed completely but nothing is stored."),
    ("fieldManager", "string", "Name of the client that becomes the owner of the changed fields."),
    (
        "fieldSelector",
        "string",
        "A selector that restricts the list of returned objects by their fields. Defaults to everything.",
    ),
    ("fieldValidation", "string", "Handling of unknown and duplicate fields: Ignore, Warn (the default) or Strict."),
    ("force", "boolean", "Take ownership of fields that other managers own. Only for apply patches."),
    ("gracePeriodSeconds", "integer", "Seconds before the object is deleted; 0 deletes it immediately."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Delete an object that can no longer be read, without finalizers and preconditions.",
    ),
    (
        "labelSelector",
        "string",
        "A selector that restricts the list of returned objects by their labels. Defaults to everything.",
    ),
    ("limit", "integer", "Maximum number of objects in the response; the continue token returns the rest."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    ("pretty", "string", "If true, the response is indented."),
    ("propagationPolicy", "string", "Handling of dependents: Orphan, Background or Foreground."),
    ("resourceVersion", "string", "Resource version that constrains how recent the response is."),
    ("resourceVersionMatch", "string", "Interpretation of resourceVersion: Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Start the watch with an event for each existing object."),
    ("timeoutSeconds", "integer", "Time limit of the request in seconds."),
    ("watch", "boolean", "Watch for changes to the described resources: the response is a stream of events."),
];

/// Query parameters of a list.
pub(super) const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
/// Query parameters of a get.
pub(super) const READ: &[&str] = &["pretty"];
/// Query parameters of a create or replace.
pub(super) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "pretty"];
/// Query parameters of a patch.
pub(super) const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force", "pretty"];
/// Query parameters of a delete.
pub(super) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
];
/// Query parameters of a deletecollection.
pub(super) const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];

/// Returns the query parameters with these names.
pub(super) fn query(names: &[&str]) -> Vec<Parameter> {
    let one = |name: &&str| {
        let at = QUERY.binary_search_by(|(have, ..)| have.cmp(name)).expect("every parameter is in the table");
        let (name, json_type, description) = QUERY[at];
        Parameter {
            name: name.to_owned(),
            location: ParameterLocation::Query,
            json_type,
            description: description.to_owned(),
        }
    };
    names.iter().map(one).collect()
}

/// Returns a path parameter.
pub(super) fn path(name: &str, description: String) -> Parameter {
    Parameter { name: name.to_owned(), location: ParameterLocation::Path, json_type: "string", description }
}

/// Returns the fields of an options kind as query parameters.
pub(super) fn options(kind: &GroupVersionKind) -> Vec<Parameter> {
    let Some(schema) = catalogue::schema(kind) else { return Vec::new() };
    let Shape::Struct(Struct { fields, .. }) = schema.shape() else { return Vec::new() };
    let named = fields.iter().filter(|field| !matches!(field.name.as_str(), "apiVersion" | "kind"));
    named.filter_map(|field| option(&field.name, schema.other(field.ty))).collect()
}

fn option(name: &str, schema: Schema<'_>) -> Option<Parameter> {
    let json_type = match schema.item().unwrap_or(schema).shape() {
        Shape::Bool => "boolean",
        Shape::Int32 | Shape::Int64 => "integer",
        Shape::String => "string",
        _ => return None,
    };
    Some(Parameter { name: name.to_owned(), location: ParameterLocation::Query, json_type, description: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_table_is_sorted_and_complete() {
        assert!(QUERY.is_sorted_by(|a, b| a.0 < b.0));
        for names in [LIST, READ, WRITE, PATCH, DELETE, DELETE_COLLECTION] {
            assert_eq!(query(names).len(), names.len());
        }
    }

    #[test]
    fn connect_options_are_query_parameters() {
        let exec = options(&GroupVersionKind::of("", "v1", "PodExecOptions"));
        let names: Vec<_> = exec.iter().map(|one| (one.name.as_str(), one.json_type)).collect();
        assert_eq!(
            names,
            [
                ("command", "string"),
                ("container", "string"),
                ("stderr", "boolean"),
                ("stdin", "boolean"),
                ("stdout", "boolean"),
                ("tty", "boolean")
            ]
        );
    }
}
