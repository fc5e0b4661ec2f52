//! Tests of JSON Patch: the examples of RFC 6902 and Kubernetes' extensions.

use proptest::prelude::*;

use super::*;
use crate::patch::notation::{any_value, read};

fn apply(current: &str, patch: &str) -> Result<Value, Error> {
    Patch::new(read(patch))?.apply(read(current))
}

fn check(current: &str, patch: &str, expect: &str) {
    match apply(current, patch) {
        Ok(value) => assert_eq!(value, read(expect), "{current} + {patch}"),
        Err(error) => panic!("{current} + {patch}: {error}: {:?}", std::error::Error::source(&error)),
    }
}

/// Asserts that the operation at index `at` fails with the error `expect`.
fn check_fault(current: &str, patch: &str, at: usize, expect: &str) {
    match apply(current, patch) {
        Err(Error::Failed { index, fault, .. }) => {
            assert_eq!((index, fault.to_string().as_str()), (at, expect), "{current} + {patch}");
        }
        other => panic!("{current} + {patch}: {other:?}"),
    }
}

#[test]
fn rfc_6902_examples() {
    check("{foo: bar}", "[{op: add, path: /baz, value: qux}]", "{baz: qux, foo: bar}");
    check("{foo: [bar, baz]}", "[{op: add, path: /foo/1, value: qux}]", "{foo: [bar, qux, baz]}");
    check("{baz: qux, foo: bar}", "[{op: remove, path: /baz}]", "{foo: bar}");
    check("{foo: [bar, qux, baz]}", "[{op: remove, path: /foo/1}]", "{foo: [bar, baz]}");
    check("{baz: qux, foo: bar}", "[{op: replace, path: /baz, value: boo}]", "{baz: boo, foo: bar}");
    check(
        "{foo: {bar: baz, waldo: fred}, qux: {corge: grault}}",
        "[{op: move, from: /foo/waldo, path: /qux/thud}]",
        "{foo: {bar: baz}, qux: {corge: grault, thud: fred}}",
    );
    check(
        "{foo: [all, grass, cows, eat]}",
        "[{op: move, from: /foo/1, path: /foo/3}]",
        "{foo: [all, cows, eat, grass]}",
    );
    check(
        "{baz: qux, foo: [a, 2, c]}",
        "[{op: test, path: /baz, value: qux}, {op: test, path: /foo/1, value: 2}]",
        "{baz: qux, foo: [a, 2, c]}",
    );
    check_fault("{baz: qux}", "[{op: test, path: /baz, value: bar}]", 0, "testing value /baz failed: test failed");
    check("{foo: bar}", "[{op: add, path: /child, value: {grandchild: {}}}]", "{foo: bar, child: {grandchild: {}}}");
    check("{foo: bar}", "[{op: add, path: /baz, value: qux, xyz: 123}]", "{foo: bar, baz: qux}");
    check_fault(
        "{foo: bar}",
        "[{op: add, path: /baz/bat, value: qux}]",
        0,
        r#"doc is missing path: "/baz/bat": missing value"#,
    );
    check("{/: 9, '~1': 10}", "[{op: test, path: /~01, value: 10}]", "{/: 9, '~1': 10}");
    check_fault(
        "{/: 9, '~1': 10}",
        "[{op: test, path: /~01, value: '10'}]",
        0,
        "testing value /~01 failed: test failed",
    );
    check("{foo: [bar]}", "[{op: add, path: /foo/-, value: [abc, def]}]", "{foo: [bar, [abc, def]]}");
}

#[test]
fn pointer_escapes_are_decoded() {
    check("{a/b: 1}", "[{op: replace, path: /a~1b, value: 2}]", "{a/b: 2}");
    check("{a~b: 1}", "[{op: replace, path: /a~0b, value: 2}]", "{a~b: 2}");
    check("{'': 1}", "[{op: replace, path: /, value: 2}]", "{'': 2}");
    check("{a: {'': 1}}", "[{op: remove, path: /a/}]", "{a: {}}");
    check("{'~2': 1}", "[{op: remove, path: /~2}]", "{}");
    check(
        "{metadata: {annotations: {}}}",
        "[{op: add, path: /metadata/annotations/example.com~1a, value: b}]",
        "{metadata: {annotations: {example.com/a: b}}}",
    );
    check("{b: 1}", "[{op: remove, path: a/b}]", "{}");
    check_fault("{b: 1}", "[{op: remove, path: b}]", 0, r#"doc is missing path: "b": missing value"#);
}

#[test]
fn list_indexes_count_from_either_end() {
    check("[1, 2, 3]", "[{op: remove, path: /-1}]", "[1, 2]");
    check("[1, 2, 3]", "[{op: replace, path: /-3, value: 0}]", "[0, 2, 3]");
    check("[1, 2]", "[{op: add, path: /-1, value: 3}]", "[1, 2, 3]");
    check("[1, 2]", "[{op: add, path: /-2, value: 3}]", "[1, 3, 2]");
    check("[1, 2]", "[{op: add, path: /2, value: 3}]", "[1, 2, 3]");
    check("[[1], 2]", "[{op: add, path: /-2/0, value: 0}]", "[[0, 1], 2]");
    check("[1, 2]", "[{op: test, path: /-1, value: 2}]", "[1, 2]");
    let invalid_index = |index: i64| format!("Unable to access invalid index: {index}: invalid index referenced");
    check_fault("[1, 2]", "[{op: remove, path: /2}]", 0, &invalid_index(2));
    check_fault("[1, 2]", "[{op: remove, path: /-3}]", 0, &invalid_index(-3));
    check_fault("[1, 2]", "[{op: add, path: /3, value: 1}]", 0, &invalid_index(3));
    check_fault("[1, 2]", "[{op: add, path: /-4, value: 1}]", 0, &invalid_index(-4));
    check_fault("[1, 2]", "[{op: replace, path: /2, value: 1}]", 0, &invalid_index(2));
    check_fault("[]", "[{op: replace, path: /0, value: 1}]", 0, &invalid_index(0));
    check_fault("[1]", "[{op: remove, path: /x}]", 0, "value was not a proper array index: 'x'");
    check_fault("[1]", "[{op: remove, path: /-}]", 0, "value was not a proper array index: '-'");
    check_fault(
        "[1]",
        "[{op: test, path: /99999999999999999999, value: 1}]",
        0,
        "value was not a proper array index: '99999999999999999999'",
    );
    check_fault(
        "{a: [1]}",
        "[{op: add, path: /a/9/b, value: 1}]",
        0,
        r#"doc is missing path: "/a/9/b": missing value"#,
    );
}

#[test]
fn absent_values_are_null() {
    check("{}", "[{op: test, path: /a, value: null}]", "{}");
    check("{}", "[{op: test, path: /a}]", "{}");
    check("{a: null}", "[{op: test, path: /a}]", "{a: null}");
    check_fault("{a: 1}", "[{op: test, path: /a}]", 0, "testing value /a failed: test failed");
    check_fault("{}", "[{op: test, path: /a, value: 1}]", 0, "testing value /a failed: test failed");
    check_fault("{}", "[{op: test, path: /a/b}]", 0, r#"doc is missing path: "/a/b": missing value"#);
    check("{}", "[{op: copy, from: /a, path: /b}]", "{b: null}");
    check("{}", "[{op: add, path: /a}]", "{a: null}");
    check("{}", "[{op: replace, path: /a, value: 1}]", "{a: 1}");
    check_fault("{}", "[{op: remove, path: /a}]", 0, "Unable to remove nonexistent key: a: missing value");
    check_fault("{}", "[{op: move, from: /a, path: /b}]", 0, "Unable to remove nonexistent key: a: missing value");
    check_fault("{a: null}", "[{op: add, path: /a/b, value: 1}]", 0, r#"doc is missing path: "/a/b": missing value"#);
    check_fault("{a: 1}", "[{op: add, path: /a/b, value: 1}]", 0, r#"doc is missing path: "/a/b": missing value"#);
}

#[test]
fn document_root_can_be_tested_and_replaced_but_not_added_or_removed() {
    check("{a: 1}", "[{op: test, path: '', value: {a: 1}}]", "{a: 1}");
    check("{a: 1}", "[{op: replace, path: '', value: {b: 2}}]", "{b: 2}");
    check("{a: 1}", "[{op: replace, path: '', value: [2]}]", "[2]");
    check_fault("{a: 1}", "[{op: replace, path: '', value: 2}]", 0, "replace operation value must be object or array");
    check_fault("{a: 1}", "[{op: test, path: '', value: {a: 2}}]", 0, "testing value  failed: test failed");
    check_fault("{a: 1}", "[{op: add, path: '', value: {}}]", 0, r#"doc is missing path: "": missing value"#);
    check_fault("{a: 1}", "[{op: remove, path: ''}]", 0, r#"doc is missing path: "": missing value"#);
    check_fault("{a: 1}", "[{op: copy, from: '', path: /b}]", 0, r#"doc is missing from path: "": missing value"#);
}

#[test]
fn move_and_copy_read_before_they_write() {
    check("{a: 1}", "[{op: copy, from: /a, path: /b}]", "{a: 1, b: 1}");
    check("{a: {b: 1}}", "[{op: copy, from: /a, path: /a/c}]", "{a: {b: 1, c: {b: 1}}}");
    check("{a: [1, 2]}", "[{op: copy, from: /a/0, path: /a/-}]", "{a: [1, 2, 1]}");
    check("{a: 1}", "[{op: move, from: /a, path: /a}]", "{a: 1}");
    check_fault(
        "{a: {b: 1}}",
        "[{op: move, from: /a, path: /a/b}]",
        0,
        r#"doc is missing destination path: "/a/b": missing value"#,
    );
    check_fault(
        "{a: 1}",
        "[{op: copy, from: /x/y, path: /b}]",
        0,
        r#"doc is missing from path: "/x/y": missing value"#,
    );
    check_fault(
        "{a: 1}",
        "[{op: copy, from: /a, path: /x/y}]",
        0,
        r#"doc is missing destination path: "/x/y": missing value"#,
    );
}

#[test]
fn later_operations_see_the_effects_of_earlier_ones() {
    check("{}", "[{op: add, path: /a, value: {}}, {op: add, path: /a/b, value: 1}]", "{a: {b: 1}}");
    check("{a: 1}", "[{op: remove, path: /a}, {op: test, path: /a, value: null}]", "{}");
    check_fault(
        "{a: 1}",
        "[{op: remove, path: /a}, {op: remove, path: /a}]",
        1,
        "Unable to remove nonexistent key: a: missing value",
    );
}

#[test]
fn malformed_patches_are_rejected() {
    let check = |patch: &str, expect: &str| assert_eq!(Patch::new(read(patch)).unwrap_err().to_string(), expect);
    check("{}", "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp");
    check("[1]", "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp");
    check("[{op: 1}]", "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string");
    check("[{path: []}]", "json: cannot unmarshal array into Go struct field jsonPatchOp.path of type string");
    assert_eq!(apply("{a: 1}", "null").unwrap(), read("{a: 1}"));
    assert_eq!(apply("{a: 1}", "[]").unwrap(), read("{a: 1}"));
    check_fault("{}", "[{op: jump, path: /a}]", 0, "Unexpected kind: jump");
    check_fault("{}", "[{path: /a}]", 0, "Unexpected kind: unknown");
    check_fault("{}", "[null]", 0, "Unexpected kind: unknown");
    check_fault("{}", "[{op: add}]", 0, "operation missing path field: missing value");
    check_fault("{}", "[{op: move, path: /a}]", 0, "operation missing from field: missing value");
    check_fault("{}", "[{op: copy, path: /a}]", 0, "operation missing from field: missing value");
}

#[test]
fn error_names_the_operation_and_its_path() {
    let error = apply("{a: 1}", "[{op: test, path: /a, value: 1}, {op: remove, path: /b/c}]").unwrap_err();
    assert_eq!(error.to_string(), r#"operation 1 (remove "/b/c") does not apply"#);
}

#[test]
fn unknown_fields_of_operations_are_reported() {
    let patch = Patch::new(read("[{op: test, path: /a}, {op: add, path: /a, vaule: 1}]")).unwrap();
    assert_eq!(patch.unknown_fields(), ["[1].vaule"]);
}

#[test]
fn more_than_ten_thousand_operations_are_rejected() {
    let test = read("{op: test, path: /a}");
    assert!(Patch::new(Value::Array(vec![test.clone(); OPERATIONS_MAX])).is_ok());
    let error = Patch::new(Value::Array(vec![test; OPERATIONS_MAX + 1])).unwrap_err();
    assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");
}

#[test]
fn total_size_of_copies_is_limited() {
    let double = read("[{op: copy, from: /a, path: /b}, {op: copy, from: /b, path: /a/-}]");
    let Value::Array(double) = double else { unreachable!() };
    let patch = Value::Array(double.iter().cloned().cycle().take(200).collect());
    let current = read("{a: [x]}");
    let error = Patch::new(patch).unwrap().apply(current).unwrap_err();
    let Error::Failed { fault: Fault::Copied(size), .. } = error else { panic!("{error:?}") };
    assert!(size > COPIED_MAX && size < 3 * COPIED_MAX, "{size}");
}

#[test]
fn nesting_is_limited_to_the_depth_of_the_decoder() {
    let deepen = read("[{op: copy, from: /a, path: /b}, {op: move, from: /b, path: /a/a}]");
    let Value::Array(deepen) = deepen else { unreachable!() };
    let mut pointer = String::new();
    let mut patch = Vec::new();
    for _ in 0..200 {
        pointer.push_str("/a");
        patch.push(value_of(&pointer));
    }
    let error = Patch::new(Value::Array(patch)).unwrap().apply(read("{}")).unwrap_err();
    // The root and the added value are one level each.
    const FIRST_TOO_DEEP: usize = DEPTH_MAX - 1;
    assert!(matches!(error, Error::Failed { index: FIRST_TOO_DEEP, fault: Fault::Depth, .. }), "{error:?}");
    let ok = Patch::new(Value::Array(deepen)).unwrap().apply(read("{a: {}}")).unwrap();
    assert_eq!(ok, read("{a: {a: {}}}"));
}

fn value_of(pointer: &str) -> Value {
    crate::value!({"op": "add", "path": pointer, "value": {}})
}

#[test]
fn excessive_list_shifting_is_rejected() {
    let insert = read("{op: add, path: /0, value: 1}");
    let patch = Patch::new(Value::Array(vec![insert; OPERATIONS_MAX])).unwrap();
    let error = patch.apply(Value::Array(vec![Value::Int(0); 300_000])).unwrap_err();
    assert!(matches!(error, Error::Failed { fault: Fault::Work, .. }), "{error:?}");
}

/// Generates an operation for a tree of [`any_value`], which has so few keys that many operations apply.
fn any_operation() -> impl Strategy<Value = Value> {
    let pointer = || "(/([abc]{1,2}|0|1|-|~0|~1)){0,3}";
    let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
    (op, pointer(), pointer(), any_value())
        .prop_map(|(op, path, from, value)| crate::value!({"op": op, "path": path, "from": from, "value": value}))
}

proptest! {
    #[test]
    fn patch_applies_like_its_single_operations_up_to_the_first_failure(
        current in any_value(), patch in prop::collection::vec(any_operation(), 0..6),
    ) {
        let mut expect = Ok(current.clone());
        for (at, operation) in patch.iter().enumerate() {
            let Ok(so_far) = expect else { break };
            let one = Patch::new(Value::Array(vec![operation.clone()])).unwrap();
            expect = one.apply(so_far).map_err(|_| at);
        }
        let all = Patch::new(Value::Array(patch)).unwrap().apply(current);
        prop_assert_eq!(all.map_err(|error| match error {
            Error::Failed { index, .. } => index,
            other => panic!("{other}"),
        }), expect);
    }

    #[test]
    fn added_values_can_be_tested_and_removed(current in any_value(), value in any_value()) {
        let Value::Object(mut before) = current else { return Ok(()) };
        before.remove("new");
        let steps = crate::value!([
            {"op": "add", "path": "/new", "value": (value.clone())},
            {"op": "test", "path": "/new", "value": value},
            {"op": "remove", "path": "/new"},
        ]);
        let after = Patch::new(steps).unwrap().apply(before.clone().into()).unwrap();
        prop_assert_eq!(after, Value::Object(before));
    }
}
