//! Every kind is serialized in the field order of its Go type at all levels, and decodes to the same tree.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use apimachinery::json::{self, RawEntries};
use apimachinery::schema::{Schema, Shape};
use apimachinery::{Object, Value};

/// Maximum nesting depth; some types are recursive.
const DEPTH_MAX: usize = 9;

/// Generates a value with every field for which `has` returns true.
fn made(schema: Schema<'static>, depth: usize, has: &mut impl FnMut() -> bool) -> Value {
    match schema.shape() {
        Shape::Struct(_) | Shape::Map(_) | Shape::List(_) | Shape::Either(_) if depth == 0 => Value::Null,
        Shape::Struct(shape) => {
            let fields = shape.fields.iter().filter(|_| has());
            let fields: Vec<_> = fields.collect();
            Value::Object(
                fields
                    .into_iter()
                    .map(|field| (field.name.clone(), made(schema.other(field.ty), depth - 1, has)))
                    .collect(),
            )
        }
        Shape::Map(map) => {
            let value = schema.other(map.value);
            Value::Object(["b", "a<"].into_iter().map(|key| (key, made(value, depth - 1, has))).collect())
        }
        Shape::List(list) => {
            let item = schema.other(list.item);
            Value::Array((0..2).map(|_| made(item, depth - 1, has)).collect())
        }
        Shape::Either(either) => made(schema.other(either.object), depth - 1, has),
        Shape::Bool => Value::Bool(true),
        Shape::Int32 | Shape::Int64 => Value::Int(1),
        Shape::Double => Value::Float(1.5),
        Shape::Any | Shape::RawExtension | Shape::FieldsV1 => {
            Value::Object([("f:b", Value::object()), ("f:a", Value::object())].into_iter().collect::<Object>())
        }
        _ => Value::from("text"),
    }
}

/// Asserts that the keys of all objects are in the order of their Go type; returns the number of keys.
fn check_order(json: &[u8], at: usize, schema: Schema<'static>, path: &str) -> usize {
    match (schema.shape(), json[at]) {
        (Shape::Struct(shape), b'{') => {
            let mut last = None;
            let mut seen = 0;
            for entry in RawEntries::new(json, at) {
                let key = std::str::from_utf8(entry.key).unwrap();
                let field = shape.fields.iter().position(|field| field.name == key).unwrap();
                assert!(last < Some(shape.order[field]), "{path}.{key} stands behind a later field");
                last = Some(shape.order[field]);
                seen +=
                    1 + check_order(json, entry.value, schema.other(shape.fields[field].ty), &format!("{path}.{key}"));
            }
            seen
        }
        (Shape::Map(map), b'{') => {
            let entries: Vec<_> = RawEntries::new(json, at).collect();
            assert!(entries.is_sorted_by(|a, b| a.key < b.key), "{path}: keys of a map are sorted");
            entries.iter().map(|entry| check_order(json, entry.value, schema.other(map.value), path)).sum()
        }
        (Shape::List(list), b'[') => check_order(json, at + 1, schema.other(list.item), path),
        (Shape::Either(either), b'{') => check_order(json, at, schema.other(either.object), path),
        _ => 0,
    }
}

#[test]
fn every_kind_is_serialized_in_go_field_order() {
    let mut seen = 0;
    for (kind, schema) in api::catalogue::kinds() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            !state.is_multiple_of(3)
        };
        for mut has in [Box::new(|| true) as Box<dyn FnMut() -> bool>, Box::new(&mut random), Box::new(|| false)] {
            let object = made(schema, DEPTH_MAX, &mut has);
            let mut line = Vec::new();
            api::codec::JSON.write_as(&object, schema, &mut line);
            assert_eq!(json::parse(&line).unwrap(), object, "{kind}");
            seen += check_order(&line, 0, schema, &kind.to_string());
        }
    }
    assert!(seen > 10_000, "only {seen} fields were seen");
}

#[test]
fn objects_start_with_kind_and_api_version() {
    for (kind, schema) in api::catalogue::kinds() {
        let Shape::Struct(shape) = schema.shape() else { panic!("{kind} is a struct") };
        let position = |name: &str| shape.fields.iter().position(|field| field.name == name).map(|at| shape.order[at]);
        if position("metadata").is_some() {
            assert_eq!(
                (position("kind"), position("apiVersion"), position("metadata")),
                (Some(0), Some(1), Some(2)),
                "{kind}"
            );
        }
    }
    let meta = api::catalogue::find("v1", "Pod").unwrap().field("metadata").unwrap().1;
    let Shape::Struct(shape) = meta.shape() else { panic!("metadata is a struct") };
    let mut names: Vec<_> =
        shape.fields.iter().zip(&shape.order).map(|(field, order)| (order, field.name.as_str())).collect();
    names.sort();
    let names: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
    assert_eq!(names[..6], ["name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"]);
}
