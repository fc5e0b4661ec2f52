use super::*;
use crate::schema::{Field, List, ListKind, Map, Omit, Patch, Type, Types};
use crate::{json, value};

fn field(name: &'static str, ty: crate::schema::TypeId) -> Field {
    Field {
        name: name.into(),
        ty,
        required: false,
        omit: Omit::Never,
        pointer: false,
        default: None,
        patch: Patch::default(),
        inlined: Box::default(),
    }
}

/// Returns a struct whose Go fields are declared in the given order.
fn structure(fields: &[(&'static str, crate::schema::TypeId)]) -> Shape {
    let mut sorted: Vec<(u16, Field)> = (0..).zip(fields).map(|(at, (name, ty))| (at, field(name, *ty))).collect();
    sorted.sort_by(|a, b| a.1.name.cmp(&b.1.name));
    let (order, fields): (Vec<u16>, Vec<Field>) = sorted.into_iter().unzip();
    Shape::Struct(Struct { fields: fields.into(), order: order.into(), ..Struct::default() })
}

fn widget() -> &'static Types {
    static TYPES: std::sync::OnceLock<Types> = std::sync::OnceLock::new();
    TYPES.get_or_init(|| {
        let mut types = Types::new();
        let text = types.add(Type::new("string", Shape::String));
        let raw = types.add(Type::new("runtime.RawExtension", Shape::RawExtension));
        let labels = types
            .add(Type::new("map[string]string", Shape::Map(Map { value: text, atomic: false, value_default: None })));
        let fields = types.add(Type::new("v1.FieldsV1", Shape::FieldsV1));
        let meta = types.add(Type::new(
            "v1.ObjectMeta",
            structure(&[
                ("name", text),
                ("uid", text),
                ("resourceVersion", text),
                ("labels", labels),
                ("fieldsV1", fields),
            ]),
        ));
        let port =
            types.add(Type::new("v1.Port", structure(&[("name", text), ("hostPort", text), ("containerPort", text)])));
        let list = Shape::List(List { item: port, kind: ListKind::Atomic, item_default: None });
        let ports = types.add(Type::new("[]v1.Port", list));
        types.add(Type::new(
            "v1.Widget",
            structure(&[("kind", text), ("apiVersion", text), ("metadata", meta), ("ports", ports), ("data", raw)]),
        ));
        types
    })
}

fn kinds(api_version: &str, kind: &str) -> Option<Schema<'static>> {
    let types = widget();
    (api_version == "v1" && kind == "Widget").then(|| types.schema(crate::schema::TypeId::from(types.len() - 1)))
}

fn check(object: &Value, expect: &str) {
    let mut out = Vec::new();
    Encoder::new(kinds).write(object, &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), expect);
}

#[test]
fn fields_are_written_in_go_order_at_every_level() {
    let object = value!({
        "apiVersion": "v1",
        "kind": "Widget",
        "metadata": {"labels": {"b": "1", "a": "2"}, "resourceVersion": "7", "name": "x", "uid": "u"},
        "ports": [{"containerPort": "80", "name": "http"}, {"hostPort": "1", "containerPort": "2"}],
    });
    check(
        &object,
        r#"{"kind":"Widget","apiVersion":"v1","metadata":{"name":"x","uid":"u","resourceVersion":"7","labels":{"a":"2","b":"1"}},"ports":[{"name":"http","containerPort":"80"},{"hostPort":"1","containerPort":"2"}]}"#,
    );
    let mut out = Vec::new();
    Encoder::new(kinds).write_without(&object, &["resourceVersion", "labels"], &mut out);
    assert!(out.starts_with(br#"{"kind":"Widget","apiVersion":"v1","metadata":{"name":"x","uid":"u"},"ports""#));
}

#[test]
fn object_that_is_not_built_in_is_sorted_at_every_level() {
    let object = value!({"kind": "Other", "apiVersion": "example.com/v1", "spec": {"b": "<", "a": [{"y": 1, "x": 2}]}});
    check(&object, r#"{"apiVersion":"example.com/v1","kind":"Other","spec":{"a":[{"x":2,"y":1}],"b":"\u003c"}}"#);
}

#[test]
fn embedded_object_is_written_by_its_own_kind() {
    let inner = value!({"apiVersion": "v1", "kind": "Widget", "metadata": {"uid": "u", "name": "n"}});
    check(
        &value!({"apiVersion": "v1", "kind": "Widget", "data": inner}),
        r#"{"kind":"Widget","apiVersion":"v1","data":{"kind":"Widget","apiVersion":"v1","metadata":{"name":"n","uid":"u"}}}"#,
    );
}

#[test]
fn values_of_the_wrong_type_are_still_written() {
    check(
        &value!({"apiVersion": "v1", "kind": "Widget", "metadata": ["b", {"y": 1, "x": 2}], "bogus": {"b": 1, "a": 2}}),
        r#"{"kind":"Widget","apiVersion":"v1","metadata":["b",{"x":2,"y":1}],"bogus":{"a":2,"b":1}}"#,
    );
}

#[test]
fn managed_fields_are_sorted_by_path_element() {
    let texts = [
        r#"{"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"k:{\"port\":443,\"protocol\":\"TCP\"}":{}}}"#,
        r#"{"f:finalizers":{".":{},"v:\"a\"":{},"v:\"a!\"":{}},"f:list":{"v:2":{},"v:10":{},"i:0":{}}}"#,
        r#"{"f:env":{".":{},"k:{\"name\":\"A\"}":{".":{},"f:name":{}},"k:{\"name\":\"B\"}":{}}}"#,
    ];
    for text in texts {
        let fields = json::parse(text.as_bytes()).unwrap();
        assert_eq!(crate::apply::FieldSet::from_value(&fields).unwrap().to_json(), text, "the order of upstream");
        check(
            &value!({"apiVersion": "v1", "kind": "Widget", "metadata": {"fieldsV1": fields}}),
            &format!(r#"{{"kind":"Widget","apiVersion":"v1","metadata":{{"fieldsV1":{text}}}}}"#),
        );
    }
}

#[test]
fn json_is_indented_by_two_spaces_and_empty_objects_stay_on_their_line() {
    let json = br#"{"a":{},"b":[],"c":["x, {y}: \"z\"",1],"d":{"e":null}}"#;
    let expect = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    \"x, {y}: \\\"z\\\"\",\n    1\n  ],\n  \"d\": {\n    \"e\": null\n  }\n}";
    assert_eq!(String::from_utf8(indent(json)).unwrap(), expect);
}
