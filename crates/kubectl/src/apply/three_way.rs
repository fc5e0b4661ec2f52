//! Three-way patches of client-side apply: from the last applied, the new and the live configuration.
//!
//! ```text
//! original (annotation) ─┐
//! modified (file)        ├──> patch ──> server
//! current  (server)      ┘
//! ```
//!
//! Fields that the original has and the modified configuration lacks are removed; fields of the modified configuration
//! that differ from the live object are set; all other fields of the live object stay.

use apimachinery::patch::strategic::{self, OnConflict};
use apimachinery::patch::{merge, require_unchanged};
use apimachinery::{Object, Schema, Value, json, yaml};

pub use crate::generate::last_applied::ANNOTATION as LAST_APPLIED;

/// A patch that brings a live object to the applied configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// For kinds with a schema that knows how lists are merged.
    Strategic(Value),
    /// For custom resources.
    Merge(Value),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("At least one of apiVersion, kind and name was changed")]
    IdentityChanged,
    /// Others changed fields that the configuration changes.
    #[error(
        "patch:\n{}\nconflicts with changes made from original to current:\n{}\n", yaml::to_string(.patch),
        yaml::to_string(.changed)
    )]
    Conflict {
        patch: Value,
        /// The changes since the last apply.
        changed: Value,
    },
    #[error(transparent)]
    Strategic(strategic::Error),
    /// The last-applied annotation is not JSON.
    #[error("{0}")]
    Annotation(#[from] json::Error),
    #[error("Object 'Kind' is missing")]
    NotAnObject,
}

impl From<strategic::Error> for Error {
    fn from(error: strategic::Error) -> Self {
        match error.fault {
            strategic::Fault::Conflict { patch, changed } => Self::Conflict { patch, changed },
            _ => Self::Strategic(error),
        }
    }
}

impl Patch {
    pub const fn value(&self) -> &Value {
        match self {
            Self::Strategic(value) | Self::Merge(value) => value,
        }
    }

    /// Whether the live object already has the applied configuration.
    pub fn is_empty(&self) -> bool {
        self.value().as_object().is_some_and(Object::is_empty)
    }

    /// Applies the patch to a copy of the live object, for `--dry-run=client`.
    pub fn apply_to(&self, current: &Value, schema: Option<Schema<'_>>) -> Result<Value, Error> {
        match (self, current, schema) {
            (Self::Strategic(Value::Object(patch)), Value::Object(current), Some(schema)) => {
                Ok(strategic::apply(current.clone(), patch.clone(), schema)?.into())
            }
            (Self::Strategic(_), _, _) => Err(Error::NotAnObject),
            (Self::Merge(patch), current, _) => Ok(merge::apply(current.clone(), patch.clone())),
        }
    }
}

/// Returns the JSON text of a configuration: sorted by key, characters escaped like Go's encoder, with a newline.
pub fn encode(object: &Value) -> String {
    let mut out = Vec::with_capacity(512);
    json::Encoder::new(|_, _| None).write(object, &mut out);
    out.push(b'\n');
    String::from_utf8(out).expect("JSON of a tree of strings is UTF-8")
}

/// Returns the last applied configuration of an object, [`None`] without the annotation or if it is empty.
pub fn original(object: &Value) -> Option<&str> {
    object.str_at(&["metadata", "annotations", LAST_APPLIED]).filter(|text| !text.is_empty())
}

/// Returns the configuration without the last-applied annotation, as stored in the annotation. The annotations are
/// present even if empty, as in kubectl.
pub fn configuration(object: &Value) -> Value {
    let mut object = object.clone();
    annotations(&mut object).remove(LAST_APPLIED);
    object
}

/// Sets the last-applied annotation to the object's own configuration.
pub fn annotate(object: &mut Value) {
    let text = encode(&configuration(object));
    annotations(object).insert(LAST_APPLIED, text);
}

/// Creates the patch from `current` to `modified`, which has the last-applied annotation. `schema` is that of the kind,
/// [`None`] for a custom resource.
pub fn create(
    modified: &Value,
    current: &Value,
    schema: Option<Schema<'_>>,
    on_conflict: OnConflict,
) -> Result<Patch, Error> {
    let original = match original(current) {
        Some(text) => json::parse(text.as_bytes())?,
        None => Value::object(),
    };
    let (Some(original), Some(modified), Some(current)) =
        (original.as_object(), modified.as_object(), current.as_object())
    else {
        return Err(Error::NotAnObject);
    };
    if let Some(schema) = schema {
        let patch = strategic::create_three_way(original, modified, current, schema, on_conflict)?;
        return Ok(Patch::Strategic(patch.into()));
    }
    let patch = Value::Object(merge::three_way(original, modified, current));
    let identity: &[&[&str]] = &[&["apiVersion"], &["kind"], &["metadata", "name"]];
    require_unchanged(&patch, identity).map_err(|_| Error::IdentityChanged)?;
    Ok(Patch::Merge(patch))
}

/// Removes the fields with `null`, which stand for absence in a configuration that is created.
pub fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => object.retain(|_, value| {
            prune_nulls(value);
            !value.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

fn annotations(object: &mut Value) -> &mut Object {
    let metadata = child(object, "metadata");
    child(metadata, "annotations").as_object_mut().expect("a child is an object")
}

/// Returns the object under a key; anything else there is replaced with an empty object.
fn child<'a>(parent: &'a mut Value, key: &str) -> &'a mut Value {
    if parent.as_object().is_none() {
        *parent = Value::object();
    }
    let fields = parent.as_object_mut().expect("just made an object");
    let child = fields.get_or_insert_with(key, Value::object);
    if child.as_object().is_none() {
        *child = Value::object();
    }
    child
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn yaml(text: &str) -> Value {
        yaml::parse(text).unwrap()
    }

    fn patch(original: &str, modified: &str, current: &str) -> String {
        let (original, mut modified, mut current) = (yaml(original), yaml(modified), yaml(current));
        annotate(&mut modified);
        if !original.is_null() {
            annotations(&mut current).insert(LAST_APPLIED, encode(&configuration(&original)));
        }
        let schema =
            api::catalogue::find(modified.str_at(&["apiVersion"]).unwrap(), modified.str_at(&["kind"]).unwrap());
        let patch = create(&modified, &current, schema, OnConflict::Overwrite).unwrap();
        let mut patch = patch.value().clone();
        if let Some(Value::Object(metadata)) = patch.get_mut("metadata") {
            metadata.remove("annotations");
        }
        patch.to_string()
    }

    #[test]
    fn the_annotation_is_sorted_json_with_a_newline_and_gos_escapes() {
        let mut object =
            value!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "<&>"}});
        annotate(&mut object);
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
        let mut once = value!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}});
        annotate(&mut once);
        let mut twice = once.clone();
        annotate(&mut twice);
        assert_eq!(once, twice);
    }

    #[test]
    fn an_unchanged_configuration_gives_an_empty_patch() {
        let mut object =
            value!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
        annotate(&mut object);
        let mut live = object.clone();
        live.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("uid", "u");
        let schema = api::catalogue::find("v1", "ConfigMap");
        let patch = create(&object, &live, schema, OnConflict::Overwrite).unwrap();
        assert!(patch.is_empty(), "{patch:?}");
    }

    #[test]
    fn lists_with_a_merge_key_are_patched_by_item() {
        let pod = |containers: &str| {
            format!("{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {{containers: {containers}}}}}")
        };
        assert_eq!(
            patch(
                &pod("[{name: a, image: x}, {name: b, image: y}]"),
                &pod("[{name: b, image: z}]"),
                &pod("[{name: a, image: x}, {name: b, image: y}, {name: injected, image: i}]"),
            ),
            r#"{"metadata":{},"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"image":"z","name":"b"},{"$patch":"delete","name":"a"}]}}"#
        );
    }

    #[test]
    fn custom_resources_get_a_merge_patch() {
        let object = |spec: &str| format!("{{apiVersion: a.io/v1, kind: A, metadata: {{name: a}}, spec: {spec}}}");
        assert_eq!(
            patch(&object("{a: 1, b: 2}"), &object("{b: 3, l: [1]}"), &object("{a: 1, b: 2, c: 4, l: [2]}")),
            r#"{"metadata":{},"spec":{"a":null,"b":3,"l":[1]}}"#
        );
    }

    #[test]
    fn changes_by_others_conflict_without_overwrite() {
        let object = |text: &str| value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": text}});
        let mut modified = object("new");
        annotate(&mut modified);
        let mut current = object("old");
        annotate(&mut current);
        current.get_mut("data").unwrap().as_object_mut().unwrap().insert("k", "others");
        let schema = api::catalogue::find("v1", "ConfigMap");
        assert!(create(&modified, &current, schema, OnConflict::Refuse).is_err());
        assert!(create(&modified, &current, schema, OnConflict::Overwrite).is_ok());
    }

    #[test]
    fn nulls_are_not_created() {
        let mut object = value!({"a": null, "b": [{"c": null, "d": 1}]});
        prune_nulls(&mut object);
        assert_eq!(object, value!({"b": [{"d": 1}]}));
    }
}
