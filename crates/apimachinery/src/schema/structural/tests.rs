use super::*;
use crate::schema::{ListKind, Shape};
use crate::value;

fn findings(schema: &Value) -> Vec<String> {
    check_at_root(schema).iter().map(ToString::to_string).collect()
}

fn check_at_root(schema: &Value) -> Errors {
    super::check(schema, &Path::ROOT)
}

fn check(spec: Value, expect: &[&str]) {
    let found = findings(&value!({"type": "object", "properties": {"spec": (spec)}}));
    assert_eq!(found, expect);
}

#[test]
fn schemas_convert_to_types() {
    let structural = Structural::new(&value!({"type": "object", "properties": {
        "n": {"type": "integer", "format": "int32", "nullable": true, "default": 1},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 3}}}},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "port": {"x-kubernetes-int-or-string": true},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
    }, "x-kubernetes-validations": [{"rule": "self.n > 0", "message": "no", "optionalOldSelf": true}]}))
    .unwrap();
    let root = structural.schema();
    let (field, n) = root.field("n").unwrap();
    assert!(matches!(n.shape(), Shape::Int32) && n.ty().nullable);
    assert_eq!(field.default, Some(value!(1)));
    let list = root.field("list").unwrap().1;
    let Shape::List(shape) = list.shape() else { panic!("{list:?}") };
    assert_eq!(shape.kind, ListKind::Map(["k".into()].into()));
    let (key, ty) = list.item().unwrap().field("k").unwrap();
    assert!(key.required);
    assert_eq!(ty.ty().rules.as_ref().unwrap().string.characters_max, Some(3));
    assert!(matches!(root.field("map").unwrap().1.child("x").unwrap().shape(), Shape::Double));
    assert!(matches!(root.field("open").unwrap().1.shape(), Shape::Struct(shape) if shape.open));
    assert!(matches!(root.field("port").unwrap().1.shape(), Shape::IntOrString));
    assert!(matches!(root.field("any").unwrap().1.shape(), Shape::Any));
    let validation = &root.ty().rules.as_ref().unwrap().validations[0];
    assert_eq!((validation.rule.as_str(), validation.optional_old_self), ("self.n > 0", Some(true)));
}

#[test]
fn invalid_patterns_fail() {
    let error = Structural::new(&value!({"type": "string", "pattern": "("})).unwrap_err();
    assert_eq!(error.to_string(), "pattern \"(\" is not a regular expression");
}

#[test]
fn every_part_needs_a_type() {
    assert_eq!(findings(&value!({})), ["type: Required value: must not be empty at the root"]);
    assert_eq!(findings(&value!({"type": "string"})), [r#"type: Invalid value: "string": must be object at the root"#]);
    check(
        value!({"type": "array", "items": {}}),
        &["properties[spec].items.type: Required value: must not be empty for specified array items"],
    );
    check(value!({"type": "array"}), &["properties[spec].items: Required value: must be specified"]);
    check(
        value!({"type": "word"}),
        &[
            r#"properties[spec].type: Unsupported value: "word": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ],
    );
    check(
        value!({"x-kubernetes-embedded-resource": true}),
        &[
            "properties[spec].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            "properties[spec].type: Required value: must be object if x-kubernetes-embedded-resource is true",
        ],
    );
    check(value!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}), &[]);
    check(
        value!({"x-kubernetes-int-or-string": true, "allOf": [
            {"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"minimum": 1},
        ]}),
        &[],
    );
}

#[test]
fn junctors_restrict_and_do_not_describe() {
    check(
        value!({"type": "string", "anyOf": [{"type": "string", "description": "x", "minLength": 1}]}),
        &[
            "properties[spec].anyOf[0].description: Forbidden: must be empty to be structural",
            "properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
        ],
    );
    assert_eq!(
        findings(&value!({"type": "object", "not": {"properties": {"a": {"default": 1}}}})),
        [
            "not.properties[a].default: Forbidden: must be undefined to be structural",
            "properties[a]: Required value: because it is defined in not.properties[a]",
        ],
    );
}

#[test]
fn metadata_may_only_restrict_names() {
    let with = |metadata: Value| value!({"type": "object", "properties": {"metadata": (metadata)}});
    assert_eq!(
        findings(&with(value!({"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}}))),
        [""; 0]
    );
    assert_eq!(
        findings(&with(value!({"type": "object", "properties": {"labels": {"type": "object"}}}))),
        [
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ]
    );
}

#[test]
fn defaults_are_values_of_their_schema() {
    check(
        value!({"type": "integer", "default": "x"}),
        &[r#"properties[spec].default: Invalid value: "string":  in body must be of type integer: "string""#],
    );
    check(
        value!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"a": 1, "b": 2}}),
        &[
            r#"properties[spec].default: Invalid value: {"a":1,"b":2}: must not have unknown fields"#,
            r#"properties[spec].default.a: Invalid value: "integer": a in body must be of type string: "integer""#,
        ],
    );
    check(
        value!({"type": "array", "items": {"type": "string", "enum": ["a"], "default": "b"}}),
        &[r#"properties[spec].items.default: Unsupported value: "b": supported values: "a""#],
    );
}

#[test]
fn unsupported_openapi_features_are_forbidden() {
    check(
        value!({"type": "object", "$ref": "#/x", "patternProperties": {"a": {}}}),
        &[
            "properties[spec].patternProperties: Forbidden: patternProperties is not supported",
            "properties[spec].$ref: Forbidden: $ref is not supported",
        ],
    );
    check(
        value!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
        &[
            "properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ],
    );
    check(
        value!({"type": "object", "additionalProperties": {"type": "string"}, "properties": {"a": {"type": "string"}}}),
        &["properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    );
    check(
        value!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
        &["properties[spec].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
    );
}

#[test]
fn list_types_are_validated() {
    check(
        value!({"type": "object", "x-kubernetes-list-type": "set", "x-kubernetes-map-type": "x"}),
        &[
            r#"properties[spec].x-kubernetes-map-type: Unsupported value: "x": supported values: "atomic", "granular""#,
            r#"properties[spec].type: Invalid value: "object": must be array if x-kubernetes-list-type is specified"#,
        ],
    );
    check(
        value!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
        &[
            "properties[spec].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ],
    );
    check(
        value!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b", "a"], "items": {
            "type": "object", "nullable": true, "properties": {"a": {"type": "array", "items": {"type": "string"}}},
        }}),
        &[
            r#"properties[spec].items.properties[a].type: Invalid value: "object": must be a scalar type if parent array's x-kubernetes-list-type is map"#,
            r#"properties[spec].x-kubernetes-list-map-keys: Invalid value: ["a","b","a"]: entries must all be names of item properties"#,
            r#"properties[spec].items.properties[a].type: Invalid value: "object": must be a scalar type if parent array's x-kubernetes-list-type is map"#,
            r#"properties[spec].x-kubernetes-list-map-keys: Invalid value: ["a","b","a"]: must not contain duplicate entries"#,
            "properties[spec].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is map",
            "properties[spec].items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            "properties[spec].items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ],
    );
}

#[test]
fn cel_rules_are_validated() {
    check(
        value!({"type": "object", "x-kubernetes-validations": [
            {"rule": " "}, {"rule": "a\nb"}, {"rule": "a", "message": "x\ny", "reason": "Why", "fieldPath": " "},
        ]}),
        &[
            "properties[spec].x-kubernetes-validations[0].rule: Required value: rule is not specified",
            "properties[spec].x-kubernetes-validations[1].message: Required value: message must be specified if rule contains line breaks",
            r#"properties[spec].x-kubernetes-validations[2].message: Invalid value: "x\ny": message must not contain line breaks"#,
            r#"properties[spec].x-kubernetes-validations[2].reason: Unsupported value: "Why": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
            r#"properties[spec].x-kubernetes-validations[2].fieldPath: Invalid value: " ": fieldPath must be non-empty if specified"#,
        ],
    );
}
