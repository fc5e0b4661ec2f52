//! Test notation for trees: YAML flow style, `{containers: [{name: a}], $patch: delete}`.

use proptest::prelude::*;

use crate::{Object, Str, Value, yaml};

pub(super) fn read(text: &str) -> Value {
    yaml::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(super) fn object(text: &str) -> Object {
    read(text).as_object().cloned().unwrap_or_else(|| panic!("not an object: {text}"))
}

/// Generates small trees with so few keys that two of them often share some.
pub(super) fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_i64..4).prop_map(Value::from),
        Just(Value::Float(1.0)),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Object>())),
        ]
    })
}

fn key() -> impl Strategy<Value = Str> {
    "[abc/~]{1,2}".prop_map(Str::from)
}
