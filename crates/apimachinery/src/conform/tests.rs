use super::*;
use crate::schema::{Patch, Type, TypeId, Types};
use crate::value;

/// Types modeled on Go's: `type Pod struct { TypeMeta; Metadata Meta; Spec Spec; … }`.
struct Fixture {
    types: Types,
    pod: TypeId,
    props: TypeId,
}

fn field(name: &str, ty: TypeId, tags: &str) -> Field {
    Field {
        name: name.into(),
        ty,
        required: false,
        omit: match tags {
            _ if tags.contains("omitempty") => Omit::Empty,
            _ if tags.contains("omitzero") => Omit::Zero,
            _ => Omit::Never,
        },
        pointer: tags.contains('*'),
        default: None,
        patch: Patch::default(),
        inlined: tags.split_once("via ").map(|(_, name)| Box::from([Str::from(name)])).unwrap_or_default(),
    }
}

fn strukt(types: &mut Types, name: &str, mut fields: Vec<Field>) -> TypeId {
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    types.add(Type::new(name, Shape::Struct(Struct { fields: fields.into(), ..Struct::default() })))
}

fn list(types: &mut Types, name: &str, item: TypeId) -> TypeId {
    let kind = crate::schema::ListKind::Atomic;
    types.add(Type::new(name, Shape::List(List { item, kind, item_default: None })))
}

fn fixture() -> Fixture {
    let mut types = Types::new();
    let mut plain = |name: &str, shape: Shape| types.add(Type::new(name, shape));
    let string = plain("string", Shape::String);
    let int32 = plain("int32", Shape::Int32);
    let boolean = plain("bool", Shape::Bool);
    let float = plain("float64", Shape::Double);
    let bytes = plain("[]uint8", Shape::Bytes);
    let quantity = plain("resource.Quantity", Shape::Quantity);
    let time = plain("v1.Time", Shape::Time);
    let micro = plain("v1.MicroTime", Shape::MicroTime);
    let port = plain("intstr.IntOrString", Shape::IntOrString);
    let raw = plain("runtime.RawExtension", Shape::RawExtension);
    let json = plain("v1.JSON", Shape::Any);
    let labels = plain("map[string]string", Shape::Map(Map { value: string, atomic: false, value_default: None }));
    let limits = plain("v1.ResourceList", Shape::Map(Map { value: quantity, atomic: false, value_default: None }));
    let strings = list(&mut types, "[]string", string);
    let container = strukt(
        &mut types,
        "v1.Container",
        vec![
            field("name", string, ""),
            field("command", strings, "omitempty"),
            field("limits", limits, "omitempty"),
            field("port", port, "omitempty"),
            field("path", string, "omitempty via Handler"),
        ],
    );
    let containers = list(&mut types, "[]v1.Container", container);
    let spec = strukt(
        &mut types,
        "v1.Spec",
        vec![
            field("containers", containers, ""),
            field("replicas", int32, "* omitempty"),
            field("paused", boolean, "omitempty"),
            field("weight", float, "omitempty"),
            field("data", bytes, "omitempty"),
            field("raw", raw, "* omitempty"),
            field("any", json, "* omitempty"),
            field("at", micro, "* omitempty"),
        ],
    );
    let meta = strukt(
        &mut types,
        "v1.ObjectMeta",
        vec![
            field("name", string, "omitempty"),
            field("labels", labels, "omitempty"),
            field("creationTimestamp", time, "omitzero"),
        ],
    );
    let status = strukt(&mut types, "v1.Status", vec![field("phase", string, "omitempty")]);
    let pod = strukt(
        &mut types,
        "v1.Pod",
        vec![
            field("kind", string, "omitempty via TypeMeta"),
            field("metadata", meta, "omitempty"),
            field("spec", spec, ""),
            field("status", status, "omitempty"),
        ],
    );
    let props = props(&mut types, string, boolean);
    Fixture { types, pod, props }
}

/// Returns a type that contains itself through values of two types, as JSON schemas do.
fn props(types: &mut Types, string: TypeId, boolean: TypeId) -> TypeId {
    let schema = types.add(Type::new("", Shape::Any));
    let or_bool = types
        .add(Type::new("v1.PropsOrBool", Shape::Either(Either { object: schema, other: boolean, numbers: (1, 2) })));
    let schemas = list(types, "[]v1.Props", schema);
    let or_list = types
        .add(Type::new("v1.PropsOrArray", Shape::Either(Either { object: schema, other: schemas, numbers: (1, 2) })));
    let props = strukt(
        types,
        "v1.Props",
        vec![
            field("type", string, "omitempty"),
            field("items", or_list, "* omitempty"),
            field("additionalProperties", or_bool, "* omitempty"),
        ],
    );
    let tied = types.schema(props).ty().clone();
    types.set(schema, tied);
    props
}

#[test]
fn empty_lists_and_maps_are_dropped_when_stored() {
    let fixture = fixture();
    let check = |mut tree: Value, expect: Value| {
        drop_empty(&mut tree, fixture.types.schema(fixture.pod));
        assert_eq!(tree, expect);
    };
    let emptied = value!({"metadata": {"labels": {}}, "spec": {"containers": []}});
    check(emptied, value!({"metadata": {}, "spec": {"containers": null}}));
    let nested = value!({"spec": {"containers": [{"name": "a", "command": [], "limits": {}}]}});
    check(nested, value!({"spec": {"containers": [{"name": "a"}]}}));
    let full = value!({"metadata": {"labels": {"a": ""}}, "spec": {"containers": [{"name": "a"}], "raw": {"x": []}}});
    check(full.clone(), full);
}

fn run(mut tree: Value) -> Result<(Value, Vec<String>), Error> {
    let fixture = fixture();
    let unknown = conform(&mut tree, fixture.types.schema(fixture.pod))?;
    let mut again = tree.clone();
    assert_eq!(
        conform(&mut again, fixture.types.schema(fixture.pod)),
        Ok(vec![]),
        "conforming again finds no unknown fields"
    );
    assert_eq!(again, tree, "conforming twice is conforming once");
    Ok((tree, unknown))
}

fn check(spec: Value, expect: Value) {
    let (found, unknown) = run(value!({"spec": (spec)})).unwrap();
    assert_eq!(found, value!({"metadata": {}, "spec": (expect), "status": {}}));
    assert_eq!(unknown, [""; 0]);
}

fn fails(spec: Value, error: &str) {
    assert_eq!(run(value!({"spec": (spec)})).unwrap_err().to_string(), error);
}

#[test]
fn fields_are_omitted_and_added_as_go_encodes_them() {
    let (empty, _) = run(value!({})).unwrap();
    assert_eq!(empty, value!({"metadata": {}, "spec": {"containers": null}, "status": {}}));
    check(
        value!({"containers": [], "replicas": 0, "paused": false, "weight": 0, "data": ""}),
        value!({
            "containers": [], "replicas": 0
        }),
    );
    check(value!({"containers": [{}]}), value!({"containers": [{"name": "", "port": 0}]}));
}

#[test]
fn null_is_absence() {
    check(
        value!({"containers": null, "replicas": null, "raw": null, "any": null, "at": null}),
        value!({
            "containers": null
        }),
    );
    check(value!({"containers": [null]}), value!({"containers": [{"name": "", "port": 0}]}));
    check(
        value!({"containers": [{"command": [null], "limits": {"cpu": null}}]}),
        value!({
            "containers": [{"name": "", "command": [""], "limits": {"cpu": "0"}, "port": 0}]
        }),
    );
}

#[test]
fn scalars_take_their_canonical_form() {
    check(
        value!({"containers": [{"limits": {"cpu": (Value::Float(0.5)), "memory": 1024, "x": " 1.5Gi "}, "port": "http"}]}),
        value!({"containers": [
            {"name": "", "limits": {"cpu": "500m", "memory": "1024", "x": "1536Mi"}, "port": "http"}
        ]}),
    );
    check(
        value!({"containers": [], "at": "2026-01-01T01:00:00.500000+01:00", "data": "YR=="}),
        value!({
            "containers": [], "at": "2026-01-01T00:00:00.500000Z", "data": "YQ=="
        }),
    );
    check(
        value!({"containers": [], "raw": {"b": null}, "any": [1, null]}),
        value!({
            "containers": [], "raw": {"b": null}, "any": [1, null]
        }),
    );
}

#[test]
fn unknown_fields_are_removed_and_reported_by_path() {
    let (tree, unknown) = run(value!({
        "Kind": "x", "metadata": {"bogus": 1, "labels": {"any": "x"}}, "zzz": {},
        "spec": {"containers": [{"name": "a"}, {"name": "b", "x": 1, "": 2}]}
    }))
    .unwrap();
    assert_eq!(unknown, ["Kind", "metadata.bogus", "spec.containers[1].", "spec.containers[1].x", "zzz"]);
    assert_eq!(
        tree,
        value!({
            "metadata": {"labels": {"any": "x"}}, "status": {},
            "spec": {"containers": [{"name": "a", "port": 0}, {"name": "b", "port": 0}]}
        })
    );
}

#[test]
fn at_most_a_hundred_unknown_fields_are_listed() {
    let tree: Object = (0..500).map(|at| (format!("x{at}"), 1)).collect();
    assert_eq!(run(tree.into()).unwrap().1.len(), 100);
}

#[test]
fn wrong_values_fail_with_gos_messages() {
    let into = |found: &str, strukt: &str, ty: &str| {
        format!("json: cannot unmarshal {found} into Go struct field {strukt} of type {ty}")
    };
    fails(value!("word"), &into("string", "Pod.spec", "v1.Spec"));
    fails(value!({"containers": "x"}), &into("string", "Spec.spec.containers", "[]v1.Container"));
    fails(value!({"containers": [[]]}), &into("array", "Spec.spec.containers", "v1.Container"));
    fails(value!({"containers": [{"name": 1}]}), &into("number", "Container.spec.containers.name", "string"));
    fails(value!({"containers": [{"path": {}}]}), &into("object", "Container.spec.containers.Handler.path", "string"));
    fails(value!({"containers": [{"command": [true]}]}), &into("bool", "Container.spec.containers.command", "string"));
    fails(value!({"containers": [{"port": true}]}), &into("bool", "Container.spec.containers.port", "int32"));
    fails(value!({"replicas": (Value::Float(1.5))}), &into("number 1.5", "Spec.spec.replicas", "int32"));
    fails(value!({"replicas": (Value::Float(2.0))}), &into("number 2.0", "Spec.spec.replicas", "int32"));
    fails(value!({"replicas": 4_294_967_296_i64}), &into("number 4294967296", "Spec.spec.replicas", "int32"));
    fails(value!({"at": 5}), &into("number", "Spec.spec.at", "string"));
    fails(value!({"data": "YQ"}), "illegal base64 data at input byte 0");
    assert_eq!(run(value!([])).unwrap_err().to_string(), "json: cannot unmarshal array into Go value of type v1.Pod");
}

#[test]
fn errors_of_types_with_own_decoders_take_precedence() {
    let spec = value!({"containers": [{"limits": {"cpu": "x"}, "name": 1}], "at": 5, "replicas": "x"});
    fails(spec, "json: cannot unmarshal number into Go struct field Spec.spec.at of type string");
    let spec = value!({"containers": [{"limits": {"cpu": "x"}, "name": 1}], "a": 1});
    assert!(run(value!({"spec": (spec)})).unwrap_err().to_string().starts_with("quantities must match"));
    fails(
        value!({"containers": 1, "replicas": "x"}),
        "json: cannot unmarshal number into Go struct field \
         Spec.spec.containers of type []v1.Container",
    );
}

#[test]
fn is_zero_accepts_the_zero_value_of_every_type() {
    let fixture = fixture();
    let pod = fixture.types.schema(fixture.pod);
    assert!(is_zero(&zero(pod), pod));
    assert!(is_zero(&value!({"metadata": {"labels": {}}}), pod));
    assert!(!is_zero(&value!({"spec": {"replicas": 0}}), pod), "a pointer that is set is not zero");
    assert!(!is_zero(&value!({"metadata": {"name": "a"}}), pod));
}

#[test]
fn either_types_accept_both_forms() {
    let fixture = fixture();
    let check = |mut tree: Value, expect: Result<Value, &str>| {
        let result = conform(&mut tree, fixture.types.schema(fixture.props));
        assert_eq!(result.map(|_| tree).map_err(|error| error.to_string()), expect.map_err(str::to_owned));
    };
    check(value!({"items": {"type": "a"}}), Ok(value!({"items": {"type": "a"}})));
    check(value!({"items": [{"type": "a", "x": 1}]}), Ok(value!({"items": [{"type": "a"}]})));
    check(value!({"items": "word"}), Ok(value!({"items": null})));
    check(value!({"additionalProperties": false}), Ok(value!({"additionalProperties": false})));
    check(value!({"additionalProperties": "x"}), Err("boolean or JSON schema expected"));
    check(
        value!({"items": {"items": {"type": 1}}}),
        Err("json: cannot unmarshal number into Go struct field Props.items.items.type of type string"),
    );
}
