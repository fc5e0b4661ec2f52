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

use crate::generate::last_applied::original;

/// A patch that brings a live object to the applied configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// For kinds whose schema defines the merge of lists.
    Strategic(Value),
    /// For custom resources.
    Merge(Value),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("At least one of apiVersion, kind and name was changed")]
    IdentityChanged,
    /// Other clients changed fields that the configuration changes.
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

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::generate::last_applied::{self, save_untyped};

    fn yaml(text: &str) -> Value {
        yaml::parse(text).unwrap()
    }

    fn patch(original: &str, modified: &str, current: &str) -> String {
        let (original, mut modified, mut current) = (yaml(original), yaml(modified), yaml(current));
        save_untyped(&mut modified);
        if !original.is_null() {
            let applied = last_applied::encode(&last_applied::configuration(&original));
            current = merge::apply(current, last_applied::patch(applied));
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
    fn unchanged_configuration_gives_an_empty_patch() {
        let mut object =
            value!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
        save_untyped(&mut object);
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
        save_untyped(&mut modified);
        let mut current = object("old");
        save_untyped(&mut current);
        current.get_mut("data").unwrap().as_object_mut().unwrap().insert("k", "others");
        let schema = api::catalogue::find("v1", "ConfigMap");
        assert!(create(&modified, &current, schema, OnConflict::Fail).is_err());
        assert!(create(&modified, &current, schema, OnConflict::Overwrite).is_ok());
    }

    #[test]
    fn nulls_are_not_created() {
        let mut object = value!({"a": null, "b": [{"c": null, "d": 1}]});
        prune_nulls(&mut object);
        assert_eq!(object, value!({"b": [{"d": 1}]}));
    }
}
