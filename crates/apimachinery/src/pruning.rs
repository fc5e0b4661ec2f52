//! Pruning: removes the fields of a custom resource that its schema does not specify.

use crate::schema::{Schema, Shape, Struct};
use crate::{Object, Path, Value};

/// Removes the fields that the schema does not specify, and returns their paths, sorted.
///
/// `apiVersion`, `kind` and `metadata` of the object and of every embedded resource are kept: no schema covers them.
pub fn prune(value: &mut Value, schema: Schema<'_>) -> Vec<String> {
    let mut pruned = Vec::new();
    prune_at(value, Some(schema), Keep::Known, &Path::ROOT, &mut pruned);
    pruned.sort_unstable();
    pruned
}

/// The fields of an object that are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// The fields that the schema specifies.
    Known,
    /// All fields; specified ones are pruned inside.
    All,
}

fn prune_at(value: &mut Value, schema: Option<Schema<'_>>, keep: Keep, path: &Path, pruned: &mut Vec<String>) {
    match value {
        Value::Object(object) => prune_object(object, schema, keep, path, pruned),
        Value::Array(items) => {
            let (item, keep) = match schema.map(|schema| (schema, schema.shape())) {
                Some((_, Shape::Any | Shape::RawExtension | Shape::FieldsV1)) => return,
                Some((schema, Shape::List(list))) => {
                    let preserve = schema.ty().rules.as_ref().is_some_and(|rules| rules.preserve);
                    (Some(schema.other(list.item)), if preserve { Keep::All } else { keep })
                }
                _ if keep == Keep::All => return,
                _ => (None, Keep::Known),
            };
            // The setting of a list applies to nested lists, but not to the contents of objects in them.
            for (index, value) in items.iter_mut().enumerate() {
                prune_at(value, item, keep, &path.index(index), pruned);
            }
        }
        _ => {}
    }
}

fn prune_object(object: &mut Object, schema: Option<Schema<'_>>, keep: Keep, path: &Path, pruned: &mut Vec<String>) {
    match schema.map(|schema| (schema, schema.shape())) {
        Some((_, Shape::Any | Shape::RawExtension | Shape::FieldsV1)) => {}
        Some((schema, Shape::Map(map))) => {
            for (key, value) in object.iter_mut() {
                prune_at(value, Some(schema.other(map.value)), Keep::Known, &path.field(key), pruned);
            }
        }
        Some((schema, Shape::Struct(shape))) => prune_struct(object, shape, schema, keep, path, pruned),
        _ if keep == Keep::All => {}
        _ => {
            pruned.extend(object.keys().map(|key| path.field(key).to_string()));
            *object = Object::new();
        }
    }
}

fn prune_struct(
    object: &mut Object,
    shape: &Struct,
    schema: Schema<'_>,
    keep: Keep,
    path: &Path,
    pruned: &mut Vec<String>,
) {
    let keep_all = keep == Keep::All || shape.open;
    let mut fields = shape.fields.iter().peekable();
    object.retain(|key, value| {
        if shape.embedded && matches!(key, "apiVersion" | "kind" | "metadata") {
            return true;
        }
        while fields.next_if(|field| field.name.as_str() < key).is_some() {}
        match fields.peek().filter(|field| field.name == key) {
            Some(field) => {
                prune_at(value, Some(schema.other(field.ty)), Keep::Known, &path.field(key), pruned);
                true
            }
            None if keep_all => true,
            None => {
                pruned.push(path.field(key).to_string());
                false
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::Structural;
    use crate::value;

    fn check(schema: &Value, mut object: Value, expect: &Value, paths: &[&str]) {
        let structural = Structural::new(schema).unwrap();
        assert_eq!(prune(&mut object, structural.schema()), paths);
        assert_eq!(object, *expect);
        assert_eq!(prune(&mut object, structural.schema()), [""; 0], "pruning twice is pruning once");
    }

    fn root(spec: &Value) -> Value {
        let mut schema = value!({"type": "object", "properties": {}});
        schema.get_mut("properties").unwrap().as_object_mut().unwrap().insert("spec", spec.clone());
        schema
    }

    #[test]
    fn unspecified_fields_are_pruned_with_their_contents() {
        let schema = root(&value!({"type": "object", "properties": {
            "a": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {"type": "string"}}}},
        }}));
        check(
            &schema,
            value!({"apiVersion": "x/v1", "kind": "K", "metadata": {"any": 1}, "status": {}, "spec": {
                "a": {"wrong": 1}, "x": {"y": 1}, "list": [{"b": 1, "d": 2}, 3], "map": {"k": {"c": "", "e": 1}}
            }}),
            &value!({"apiVersion": "x/v1", "kind": "K", "metadata": {"any": 1}, "spec": {
                "a": {}, "list": [{"b": 1}, 3], "map": {"k": {"c": ""}}
            }}),
            &["spec.a.wrong", "spec.list[0].d", "spec.map.k.e", "spec.x", "status"],
        );
    }

    #[test]
    fn preserve_unknown_fields_applies_to_its_level_only() {
        let schema = root(&value!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }));
        check(
            &schema,
            value!({"spec": {"any": {"b": 1}, "known": {"a": "", "b": 1}}}),
            &value!({"spec": {"any": {"b": 1}, "known": {"a": ""}}}),
            &["spec.known.b"],
        );
    }

    #[test]
    fn preserving_list_keeps_fields_of_its_items() {
        let schema = root(&value!({
            "type": "array", "x-kubernetes-preserve-unknown-fields": true,
            "items": {"type": "object", "properties": {"a": {"type": "object"}}},
        }));
        let pruned = value!({"spec": [{"a": {}, "b": {"c": 1}}]});
        check(&schema, value!({"spec": [{"a": {"x": 1}, "b": {"c": 1}}]}), &pruned, &["spec[0].a.x"]);
    }

    #[test]
    fn embedded_resources_keep_type_and_metadata() {
        let schema = root(&value!({
            "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}},
        }));
        check(
            &schema,
            value!({"spec": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"x": 1}, "status": 1}}),
            &value!({"spec": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}}),
            &["spec.spec.x", "spec.status"],
        );
    }

    #[test]
    fn objects_without_a_schema_are_emptied() {
        let schema = root(&value!({"type": "object", "additionalProperties": true}));
        check(&schema, value!({"spec": {"a": 1, "b": {"c": 1}}}), &value!({"spec": {"a": 1, "b": {}}}), &["spec.b.c"]);
    }
}
