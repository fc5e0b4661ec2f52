//! JSON Merge Patch (RFC 7386): application, two-way diff, and three-way diff as in `kubectl apply`.

use crate::patch::Changes;
use crate::{Object, Str, Value};

/// Applies `patch` to `current`.
///
/// As in Kubernetes, nulls are also removed from objects inside a list, unless the list replaces an object.
pub fn apply(current: Value, patch: Value) -> Value {
    match (current, patch) {
        (Value::Object(mut current), Value::Object(patch)) => {
            merge(&mut current, patch);
            Value::Object(current)
        }
        (Value::Object(_), patch) => patch,
        (_, mut patch) => {
            discard_nulls(&mut patch);
            patch
        }
    }
}

/// Returns the minimal patch from `from` to `to`. A null in an object of `to` cannot be expressed: it means removal.
pub fn diff(from: &Value, to: &Value) -> Value {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => Value::Object(difference(from, to)),
        _ => to.clone(),
    }
}

/// Returns the patch that brings `current` to `modified`: fields that `modified` adds or changes are set, fields that
/// `original` has and `modified` lacks are removed, and fields that only `current` has stay.
///
/// Upstream checks its two partial patches for conflicts. There are none: a field that `modified` lacks occurs only in
/// the deletions, a field that it has only in the changes.
pub fn three_way(original: &Object, modified: &Object, current: &Object) -> Object {
    let mut patch = removals(difference(original, modified));
    merge(&mut patch, settings(difference(current, modified)));
    patch
}

/// Removes the nulls from every object in a tree; direct items of lists stay.
pub(super) fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => object.retain(|_, value| {
            discard_nulls(value);
            !value.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn merge(current: &mut Object, patch: Object) {
    let mut changes = Changes::default();
    for (key, value) in patch {
        match current.get_mut(&key) {
            Some(_) if value.is_null() => changes.removed.push(key),
            Some(target) => *target = apply(target.take(), value),
            None if value.is_null() => {}
            None => changes.added.push((key, apply(Value::Null, value))),
        }
    }
    changes.make(current);
}

fn difference(from: &Object, to: &Object) -> Object {
    let mut patch: Vec<(Str, Value)> = Vec::new();
    for (key, to) in to.iter() {
        match (from.get(key), to) {
            (Some(Value::Object(from)), Value::Object(to)) => {
                let inner = difference(from, to);
                if !inner.is_empty() {
                    patch.push((key.into(), inner.into()));
                }
            }
            (Some(from), to) if from == to => {}
            _ => patch.push((key.into(), to.clone())),
        }
    }
    let removed = from.keys().filter(|key| !to.contains_key(key));
    patch.extend(removed.map(|key| (key.into(), Value::Null)));
    patch.into_iter().collect()
}

/// Returns only the nulls of a patch, with the objects that contain them.
fn removals(patch: Object) -> Object {
    let retained = patch.into_iter().filter_map(|(key, value)| match value {
        Value::Null => Some((key, Value::Null)),
        Value::Object(inner) => some_unless_empty(key, removals(inner)),
        _ => None,
    });
    retained.collect()
}

/// Returns only the non-null values of a patch. An empty object is a value, not the absence of changes.
fn settings(patch: Object) -> Object {
    let retained = patch.into_iter().filter_map(|(key, value)| match value {
        Value::Null => None,
        Value::Object(inner) if !inner.is_empty() => some_unless_empty(key, settings(inner)),
        value => Some((key, value)),
    });
    retained.collect()
}

fn some_unless_empty(key: Str, object: Object) -> Option<(Str, Value)> {
    (!object.is_empty()).then_some((key, Value::Object(object)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::patch::notation::{any_value, read};
    use crate::value;

    #[test]
    fn rfc_7386_examples() {
        let check = |current: &str, patch: &str, expect: &str| {
            assert_eq!(apply(read(current), read(patch)), read(expect), "{current} + {patch}");
        };
        check("{a: b}", "{a: c}", "{a: c}");
        check("{a: b}", "{b: c}", "{a: b, b: c}");
        check("{a: b}", "{a: null}", "{}");
        check("{a: b, b: c}", "{a: null}", "{b: c}");
        check("{a: [b]}", "{a: c}", "{a: c}");
        check("{a: c}", "{a: [b]}", "{a: [b]}");
        check("{a: {b: c}}", "{a: {b: d, c: null}}", "{a: {b: d}}");
        check("{a: [{b: c}]}", "{a: [1]}", "{a: [1]}");
        check("[a, b]", "[c, d]", "[c, d]");
        check("{a: b}", "[c]", "[c]");
        check("{a: foo}", "null", "null");
        check("{a: foo}", "bar", "bar");
        check("{e: null}", "{a: 1}", "{e: null, a: 1}");
        check("[1, 2]", "{a: b, c: null}", "{a: b}");
        check("{}", "{a: {bb: {ccc: null}}}", "{a: {bb: {}}}");
        check(
            "{title: Goodbye!, author: {givenName: John, familyName: Doe}, tags: [example, sample], content: x}",
            "{title: Hello!, phoneNumber: '+01', author: {familyName: null}, tags: [example]}",
            "{title: Hello!, author: {givenName: John}, tags: [example], content: x, phoneNumber: '+01'}",
        );
    }

    #[test]
    fn nulls_in_lists_are_removed_unless_the_list_replaces_an_object() {
        let check = |current: &str, patch: &str, expect: &str| {
            assert_eq!(apply(read(current), read(patch)), read(expect), "{current} + {patch}");
        };
        check("{}", "{a: [{b: null}, null]}", "{a: [{}, null]}");
        check("{a: [1]}", "{a: [{b: null}]}", "{a: [{}]}");
        check("{a: 1}", "{a: {b: null, c: {d: null}}}", "{a: {c: {}}}");
        check("{a: {x: 1}}", "{a: [{b: null}]}", "{a: [{b: null}]}");
        check("{a: null}", "{a: {b: null}}", "{a: {}}");
    }

    #[test]
    fn patch_contains_only_differences() {
        let check = |from: &str, to: &str, expect: &str| assert_eq!(diff(&read(from), &read(to)), read(expect));
        check("{a: 1, b: {c: 2, d: 3}}", "{a: 1, b: {c: 2, d: 4}}", "{b: {d: 4}}");
        check("{a: 1, b: {c: 2}}", "{b: {c: 2}}", "{a: null}");
        check("{b: {c: 2}}", "{b: {}}", "{b: {c: null}}");
        check("{b: 1}", "{b: {}}", "{b: {}}");
        check("{a: [1, 2]}", "{a: [1, 2]}", "{}");
        check("{a: [1, 2]}", "{a: [2, 1]}", "{a: [2, 1]}");
        check("{a: 1}", "{a: 1.5}", "{a: 1.5}");
        assert_eq!(diff(&value!({"a": 1}), &value!({"a": 1.0})), value!({"a": 1.0}), "an integer is not a float");
        check("{a: 1}", "[1]", "[1]");
    }

    #[test]
    fn three_way_patch_examples() {
        let check = |original: &str, modified: &str, current: &str, expect: &str| {
            let object = |text: &str| read(text).as_object().cloned().unwrap();
            let patch = three_way(&object(original), &object(modified), &object(current));
            assert_eq!(Value::Object(patch), read(expect), "{original} -> {modified} onto {current}");
        };
        check("{}", "{a: 1}", "{b: 2}", "{a: 1}");
        check("{a: 1}", "{}", "{a: 1, b: 2}", "{a: null}");
        check("{a: 1}", "{a: 2}", "{a: 3, b: 2}", "{a: 2}");
        check("{a: 1}", "{a: 2}", "{a: 2}", "{}");
        check("{m: {a: 1, b: 1}}", "{m: {a: 2}}", "{m: {a: 1, b: 1, c: 1}}", "{m: {a: 2, b: null}}");
        check("{m: {a: 1}}", "{m: {}}", "{m: {a: 1, c: 1}}", "{m: {a: null}}");
        check("{m: {a: 1}}", "{m: x}", "{m: {a: 1}}", "{m: x}");
        check("{}", "{m: {}}", "{m: 1}", "{m: {}}");
        check("{l: [1, 2]}", "{l: [1]}", "{l: [1, 2, 3]}", "{l: [1]}");
    }

    fn without_nulls() -> impl Strategy<Value = Value> {
        any_value().prop_map(|mut value| {
            discard_nulls(&mut value);
            if value.is_null() { Value::object() } else { value }
        })
    }

    proptest! {
        #[test]
        fn applying_a_diff_gives_the_target(from in any_value(), to in without_nulls()) {
            let patch = diff(&from, &to);
            prop_assert_eq!(apply(from, patch), to);
        }

        #[test]
        fn applying_a_patch_is_idempotent(current in any_value(), patch in any_value()) {
            let once = apply(current, patch.clone());
            // A list that replaces an object keeps its nulls the first time only.
            let mut twice = apply(once.clone(), patch);
            let mut once = once;
            discard_nulls(&mut once);
            discard_nulls(&mut twice);
            prop_assert_eq!(twice, once);
        }

        #[test]
        fn three_way_merge_sets_removes_and_keeps_fields(
            original in without_nulls(), modified in without_nulls(), current in without_nulls(),
        ) {
            let (Value::Object(original), Value::Object(modified), Value::Object(current)) = (original, modified, current)
                else { return Ok(()) };
            let patch = three_way(&original, &modified, &current);
            let merged = apply(current.clone().into(), patch.into());
            for (key, value) in modified.iter() {
                if value.as_object().is_none() {
                    prop_assert_eq!(merged.get(key), Some(value));
                }
            }
            for key in original.keys().filter(|key| !modified.contains_key(key)) {
                prop_assert_eq!(merged.get(key), None);
            }
            for (key, value) in current.iter().filter(|(key, _)| !original.contains_key(key)) {
                if !modified.contains_key(key) {
                    prop_assert_eq!(merged.get(key), Some(value));
                }
            }
        }
    }
}
