//! Property tests that hold for any tree and any schema.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::Structural;
use crate::conform::conform;
use crate::defaulting::default;
use crate::pruning::prune;
use crate::schema::{Field, List, ListKind, Map, Omit, Patch, Shape, Struct, Type, TypeId, Types};
use crate::validate::{validate, validate_update};
use crate::{Object, Path, Value};

const NAMES: [&str; 5] = ["", "a", "b", "metadata", "x.y"];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![-3_i64..4, any::<i64>()].prop_map(Value::from),
        (-3.0..3.0).prop_map(Value::Float),
        prop::sample::select(vec!["", "a", "x y", "1Gi", "2026-01-01T00:00:00Z", "YQ==", "0"]).prop_map(Value::from),
    ]
}

fn tree() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(prop::sample::select(&NAMES[..]), inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Object>())),
        ]
    })
}

/// Generates a schema as a client may send it: mostly valid, with some misplaced keywords.
fn openapi() -> impl Strategy<Value = Value> {
    let word = |name: &'static str, value: BoxedStrategy<Value>| {
        prop::option::weighted(0.2, value).prop_map(move |value| value.map(|value| (name, value)))
    };
    let leaf = (
        prop::sample::select(vec!["string", "integer", "number", "boolean", "object", "array", "word", ""]),
        word("default", tree().boxed()),
        word("nullable", any::<bool>().prop_map(Value::from).boxed()),
        word("enum", vec(scalar(), 1..3).prop_map(Value::from).boxed()),
        word("maximum", (-2_i64..3).prop_map(Value::from).boxed()),
        word("multipleOf", prop_oneof![Just(Value::Float(0.5)), (0_i64..3).prop_map(Value::from)].boxed()),
        word("pattern", prop::sample::select(vec!["^a$", "\\d", "x"]).prop_map(Value::from).boxed()),
        word("maxItems", (0_i64..3).prop_map(Value::from).boxed()),
        word(
            "required",
            vec(prop::sample::select(&NAMES[..]).prop_map(Value::from), 0..2).prop_map(Value::from).boxed(),
        ),
        word("x-kubernetes-preserve-unknown-fields", any::<bool>().prop_map(Value::from).boxed()),
    )
        .prop_map(|(name, a, b, c, d, e, f, g, h, i)| {
            let keywords = [a, b, c, d, e, f, g, h, i].into_iter().flatten();
            keywords.chain([("type", Value::from(name))]).collect::<Object>()
        });
    leaf.prop_map(Value::Object).prop_recursive(3, 24, 4, |inner| {
        (
            inner.clone(),
            prop::option::of(btree_map(prop::sample::select(&NAMES[..]), inner.clone(), 0..3)),
            prop::option::of(inner.clone()),
            prop::option::weighted(0.2, inner.clone()),
            prop::option::weighted(0.3, vec(inner, 0..3)),
            prop::sample::select(vec!["anyOf", "allOf", "oneOf"]),
        )
            .prop_map(|(mut schema, fields, items, others, branches, junctor)| {
                let keywords = schema.as_object_mut().expect("a schema is an object");
                if let Some(fields) = fields {
                    keywords.insert("properties", fields.into_iter().collect::<Object>());
                }
                for (word, value) in [("items", items), ("additionalProperties", others)] {
                    value.map(|value| keywords.insert(word, value));
                }
                branches.map(|branches| keywords.insert(junctor, branches));
                schema
            })
    })
}

/// Generates types like the built-in ones, bottom up: each refers to earlier types.
fn types() -> impl Strategy<Value = (Types, TypeId)> {
    vec((0_usize..14, vec((0_usize..5, any::<prop::sample::Index>(), 0_usize..3, any::<bool>()), 0..4)), 1..12)
        .prop_map(|recipes| {
            let mut types = Types::new();
            let mut last = types.add(Type::new("string", Shape::String));
            for (kind, parts) in recipes {
                let part = |at: &prop::sample::Index| TypeId::from(at.index(types.len()));
                let first = parts.first().map_or(TypeId::from(0), |(_, at, ..)| part(at));
                let shape = match kind {
                    0 => Shape::Any,
                    1 => Shape::Bool,
                    2 => Shape::Int32,
                    3 => Shape::Int64,
                    4 => Shape::Double,
                    5 => Shape::Bytes,
                    6 => Shape::IntOrString,
                    7 => Shape::Quantity,
                    8 => Shape::Time,
                    9 => Shape::MicroTime,
                    10 => Shape::RawExtension,
                    11 => Shape::List(List { item: first, kind: ListKind::Atomic, item_default: None }),
                    12 => Shape::Map(Map { value: first, atomic: false, value_default: None }),
                    _ => {
                        let mut fields: Vec<Field> = Vec::new();
                        for (name, at, omit, pointer) in &parts {
                            let name = ["a", "b", "metadata", "x.y", "z"][*name];
                            if fields.iter().any(|field| field.name == name) {
                                continue;
                            }
                            fields.push(Field {
                                name: name.into(),
                                ty: part(at),
                                required: false,
                                omit: [Omit::Never, Omit::Empty, Omit::Zero][*omit],
                                pointer: *pointer,
                                default: None,
                                patch: Patch::default(),
                                inlined: Box::default(),
                            });
                        }
                        fields.sort_by(|a, b| a.name.cmp(&b.name));
                        Shape::Struct(Struct { fields: fields.into(), ..Struct::default() })
                    }
                };
                last = types.add(Type::new("v1.T", shape));
            }
            (types, last)
        })
}

proptest! {
    #[test]
    fn conform_is_idempotent((types, id) in types(), tree in tree()) {
        let schema = types.schema(id);
        let mut once = tree;
        if conform(&mut once, schema).is_ok() {
            let mut twice = once.clone();
            prop_assert_eq!(conform(&mut twice, schema), Ok(vec![]));
            prop_assert_eq!(&twice, &once);
            prop_assert_eq!(validate(&once, schema), vec![], "a conforming value has the shapes of its type");
        }
    }

    #[test]
    fn pruning_is_idempotent(schema in openapi(), tree in tree()) {
        if let Ok(structural) = Structural::new(&schema) {
            let mut pruned = tree.clone();
            let removed = prune(&mut pruned, structural.schema());
            prop_assert_eq!(removed.is_empty(), pruned == tree);
            let mut again = pruned.clone();
            prop_assert_eq!(prune(&mut again, structural.schema()), Vec::<String>::new());
            prop_assert_eq!(again, pruned);
        }
    }

    #[test]
    fn defaulting_is_idempotent(schema in openapi(), tree in tree()) {
        if let Ok(structural) = Structural::new(&schema) {
            let mut once = tree;
            default(&mut once, structural.schema());
            let mut twice = once.clone();
            default(&mut twice, structural.schema());
            prop_assert_eq!(twice, once);
        }
    }

    #[test]
    fn validation_terminates_and_an_unchanged_object_has_no_type_errors(schema in openapi(), tree in tree()) {
        super::check(&schema, &Path::ROOT);
        if let Ok(structural) = Structural::new(&schema) {
            validate(&tree, structural.schema());
            let changed = validate_update(&tree, &tree, structural.schema());
            prop_assert!(changed.iter().all(|error| error.reason != crate::field::Reason::TypeInvalid));
        }
    }

    #[test]
    fn schema_without_errors_converts_to_types(schema in openapi()) {
        if super::check(&schema, &Path::ROOT).is_empty() {
            prop_assert!(Structural::new(&schema).is_ok());
        }
    }
}
