use super::*;
use crate::schema::structural::Structural;
use crate::value;

fn findings(spec: Value, object: &Value) -> Vec<String> {
    let schema = value!({"type": "object", "properties": {"spec": (spec)}});
    let structural = Structural::new(&schema).unwrap();
    validate(object, structural.schema()).iter().map(ToString::to_string).collect()
}

fn check(spec: Value, given: Value, expect: &[&str]) {
    assert_eq!(findings(spec, &value!({"spec": (given)})), expect);
}

fn fine(spec: &Value, given: &[Value]) {
    for given in given {
        assert_eq!(findings(spec.clone(), &value!({"spec": (given.clone())})), [""; 0], "{given}");
    }
}

fn float(float: f64) -> Value {
    Value::Float(float)
}

#[test]
fn type_errors_use_json_schema_names() {
    let integer = value!({"type": "integer"});
    check(
        integer.clone(),
        value!("x"),
        &[r#"spec: Invalid value: "string": spec in body must be of type integer: "string""#],
    );
    check(
        value!({"type": "integer"}),
        float(1.5),
        &[
            r#"spec: Invalid value: "number": spec in body must be of type integer: "number""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec"#,
        ],
    );
    check(
        value!({"type": "string"}),
        value!({}),
        &[r#"spec: Invalid value: "object": spec in body must be of type string: "object""#],
    );
    check(
        value!({"type": "string"}),
        Value::Null,
        &[r#"spec: Invalid value: "null": spec in body must be of type string: "null""#],
    );
    check(
        value!({"x-kubernetes-int-or-string": true}),
        value!(true),
        &[r#"spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean""#],
    );
    fine(&integer, &[value!(1), float(2.0)]);
    fine(&value!({"type": "number"}), &[value!(1), float(2.5)]);
    fine(&value!({"type": "string", "nullable": true}), &[Value::Null]);
    fine(&value!({"x-kubernetes-int-or-string": true}), &[value!(1), value!("1")]);
    fine(&value!({"x-kubernetes-preserve-unknown-fields": true}), &[value!(1), value!([]), value!({"a": 1})]);
}

#[test]
fn number_limits_are_validated() {
    let between = value!({"type": "integer", "minimum": 1, "maximum": 10});
    check(between.clone(), value!(11), &["spec: Invalid value: 11: spec in body should be less than or equal to 10"]);
    check(between, value!(0), &["spec: Invalid value: 0: spec in body should be greater than or equal to 1"]);
    check(
        value!({"type": "number", "maximum": 1, "exclusiveMaximum": true}),
        float(1.0),
        &["spec: Invalid value: 1: spec in body should be less than 1"],
    );
    check(
        value!({"type": "number", "minimum": (float(0.5)), "exclusiveMinimum": true}),
        float(0.25),
        &["spec: Invalid value: 0.25: spec in body should be greater than 0.5"],
    );
    check(
        value!({"type": "integer", "multipleOf": 2}),
        value!(3),
        &["spec: Invalid value: 3: spec in body should be a multiple of 2"],
    );
    fine(&value!({"type": "number", "multipleOf": (float(0.5))}), &[value!(3), float(1.5)]);
    check(
        value!({"type": "integer", "format": "int32"}),
        value!(4_294_967_296_i64),
        &[r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec"#],
    );
    let large = value!({"type": "integer", "maximum": 9_007_199_254_740_993_i64});
    fine(&large, &[value!(9_007_199_254_740_992_i64)]);
}

#[test]
fn string_length_pattern_and_format_are_validated() {
    check(value!({"type": "string", "maxLength": 2}), value!("äöü"), &["spec: Too long: may not be more than 2 bytes"]);
    fine(&value!({"type": "string", "maxLength": 3}), &[value!("äöü")]);
    check(
        value!({"type": "string", "minLength": 1}),
        value!(""),
        &[r#"spec: Invalid value: "": spec in body should be at least 1 chars long"#],
    );
    check(
        value!({"type": "string", "pattern": "^a+$"}),
        value!("b"),
        &[r#"spec: Invalid value: "b": spec in body should match '^a+$'"#],
    );
    check(
        value!({"type": "string", "enum": ["a", "b"]}),
        value!("c"),
        &[r#"spec: Unsupported value: "c": supported values: "a", "b""#],
    );
    check(
        value!({"type": "integer", "enum": [1, 2]}),
        value!(3),
        &[r#"spec: Unsupported value: 3: supported values: "1", "2""#],
    );
    check(
        value!({"type": "string", "format": "date-time"}),
        value!("now"),
        &[r#"spec: Invalid value: "now": spec in body must be of type date-time: "now""#],
    );
    check(
        value!({"type": "string", "format": "date"}),
        value!(5),
        &[r#"spec: Invalid value: "int64": spec in body must be of type date: "int64""#],
    );
    fine(&value!({"type": "string", "format": "unheard-of"}), &[value!("x")]);
    fine(&value!({"type": "integer", "enum": [1, (float(2.0))]}), &[float(1.0), value!(2)]);
}

#[test]
fn list_and_object_limits_are_validated_with_paths() {
    let list = value!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}});
    check(list.clone(), value!([]), &["spec: Invalid value: 0: spec in body should have at least 1 items"]);
    check(
        list,
        value!(["a", 1, "c"]),
        &[
            r#"spec[1]: Invalid value: "integer": spec[1] in body must be of type string: "integer""#,
            "spec: Too many: 3: must have at most 2 items",
        ],
    );
    let map =
        value!({"type": "object", "maxProperties": 1, "minProperties": 1, "additionalProperties": {"type": "string"}});
    check(
        map.clone(),
        value!({"a.b/c": 1}),
        &[r#"spec.a.b/c: Invalid value: "integer": spec.a.b/c in body must be of type string: "integer""#],
    );
    check(map.clone(), value!({}), &["spec: Invalid value: 0: spec in body should have at least 1 properties"]);
    check(map, value!({"a": "", "b": ""}), &["spec: Too many: 2: must have at most 1 item"]);
    let fields = value!({"type": "object", "required": ["b", "a"], "properties": {"a": {"type": "string"}}});
    check(fields, value!({"c": 1}), &["spec.b: Required value", "spec.a: Required value"]);
    check(
        value!({"type": "object", "additionalProperties": false}),
        value!({"a": 1}),
        &[r#"spec: Invalid value: "a": spec.a in body is a forbidden property"#],
    );
}

#[test]
fn junctors_report_the_branch_that_progressed_furthest() {
    let either = value!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "oneOf": [
        {"required": ["a"]}, {"required": ["b"]},
    ]});
    fine(&either, &[value!({"a": 1}), value!({"b": ""})]);
    check(
        either.clone(),
        value!({}),
        &[
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.a: Required value",
        ],
    );
    check(
        either,
        value!({"a": 1, "b": ""}),
        &[
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(
        value!({"type": "integer", "anyOf": [{"maximum": 1}, {"minimum": 5}]}),
        value!(3),
        &[
            r#"<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)"#,
            "spec: Invalid value: 3: spec in body should be less than or equal to 1",
        ],
    );
    check(
        value!({"type": "integer", "allOf": [{"maximum": 1}, {"minimum": 2}], "not": {"enum": [3]}}),
        value!(3),
        &[
            "spec: Invalid value: 3: spec in body should be less than or equal to 1",
            r#"<nil>: Invalid value: "": "spec" must validate all the schemas (allOf)"#,
            r#"<nil>: Invalid value: "": "spec" must not validate the schema (not)"#,
        ],
    );
    let nested = value!({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}, "allOf": [
        {"items": {"properties": {"n": {"minimum": 1}}}},
    ]});
    check(
        nested,
        value!([{"n": 0}]),
        &[
            "spec[0].n: Invalid value: 0: spec[0].n in body should be greater than or equal to 1",
            r#"<nil>: Invalid value: "": "spec" must validate all the schemas (allOf). None validated"#,
        ],
    );
}

#[test]
fn duplicate_items_of_sets_and_maps_are_rejected() {
    check(
        value!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
        value!(["a", "b", "a", "a"]),
        &[r#"spec[2]: Duplicate value: "a""#],
    );
    let map = value!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "l"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "l": {"type": "integer"}, "v": {"type": "string"}}}});
    check(
        map.clone(),
        value!([{"k": "a", "v": "1"}, {"k": "a", "l": 1}, {"k": "a", "v": "2"}]),
        &[r#"spec[2]: Duplicate value: {"k":"a"}"#],
    );
    check(
        map,
        value!([1]),
        &[
            r#"spec[0]: Invalid value: "integer": spec[0] in body must be of type object: "integer""#,
            "spec[0]: Invalid value: 1: must be an object for an array of list-type map",
        ],
    );
}

#[test]
fn embedded_resources_require_api_version_and_kind() {
    let embedded = value!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    fine(&embedded, &[value!({"apiVersion": "v1", "kind": "Pod", "any": 1})]);
    check(
        embedded,
        value!({"apiVersion": "a/b/c"}),
        &[
            r#"spec.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
            "spec.kind: Required value: must not be empty",
        ],
    );
}

#[test]
fn unchanged_invalid_values_are_not_reported_on_update() {
    let schema = value!({"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"type": "integer"},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
        "list": {"type": "array", "items": {"type": "integer"}},
    }});
    let structural = Structural::new(&schema).unwrap();
    let old = value!({"a": "x", "b": "x", "map": [{"k": "1", "v": "x"}, {"k": "2", "v": "x"}], "list": ["x"]});
    let new = value!({"a": "x", "b": "y", "map": [{"k": "2", "v": "x"}, {"k": "1", "v": "y"}], "list": ["x", 1]});
    let fields: Vec<_> =
        validate_update(&new, &old, structural.schema()).into_iter().map(|error| error.field).collect();
    assert_eq!(fields, ["b", "list[0]", "map[1].v"]);
    assert_eq!(validate_update(&old, &old, structural.schema()), []);
}

#[test]
fn base_path_prefixes_fields_but_not_messages() {
    let structural = Structural::new(&value!({"type": "object", "properties": {"a": {"type": "integer"}}})).unwrap();
    let base = Path::of("default");
    let at = |value: Value| validate_at(&value, structural.schema(), &base)[0].to_string();
    assert_eq!(
        at(value!({"a": ""})),
        r#"default.a: Invalid value: "string": a in body must be of type integer: "string""#
    );
    assert_eq!(at(value!(1)), r#"default: Invalid value: "integer":  in body must be of type object: "integer""#);
}

#[test]
fn number_of_errors_is_limited() {
    let items: Vec<Value> = (0..20_000).map(|_| value!("x")).collect();
    let spec = value!({"type": "array", "items": {"type": "integer"}});
    assert_eq!(findings(spec, &value!({"spec": (items)})).len(), FINDINGS_MAX);
}
