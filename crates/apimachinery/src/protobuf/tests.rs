use super::*;
use crate::schema::{
    Either, Field, List, ListKind, Map, Message, Omit, Patch, Shape, Struct, Type, TypeId, Types, Wire,
};
use crate::{Str, json, value};

/// A field of the struct under test: JSON name, number, type, and `*` for a pointer, `?` for omitempty, `??` for
/// omitzero.
type Row = (&'static str, u32, TypeId, &'static str);

fn structure(rows: &[Row], wire: impl Fn(u16, &str) -> Wire) -> Shape {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.0);
    let fields = rows.iter().map(|(name, _, ty, flags)| Field {
        name: Str::const_new(name),
        ty: *ty,
        required: false,
        omit: match flags.trim_start_matches('*') {
            "?" => Omit::Empty,
            "??" => Omit::Zero,
            _ => Omit::Never,
        },
        pointer: flags.starts_with('*'),
        default: None,
        patch: Patch::default(),
        inlined: Box::default(),
    });
    let mut numbers: Vec<_> =
        rows.iter().zip(0..).filter(|(row, _)| row.1 > 0).map(|(row, at)| (row.1, wire(at, row.0))).collect();
    numbers.sort_by_key(|(number, _)| *number);
    Shape::Struct(Struct { fields: fields.collect(), message: Message { fields: numbers.into() }, ..Struct::default() })
}

/// One type of each shape, and a struct with a field of each type.
struct Zoo {
    types: Types,
    every: TypeId,
    lean: TypeId,
    inline: TypeId,
    tree: TypeId,
}

fn zoo() -> Zoo {
    let mut types = Types::new();
    let mut add = |name: &str, shape: Shape| types.add(Type::new(name, shape));
    let string = add("string", Shape::String);
    let bytes = add("[]uint8", Shape::Bytes);
    let (bool, int32) = (add("bool", Shape::Bool), add("int32", Shape::Int32));
    let (int64, double) = (add("int64", Shape::Int64), add("float64", Shape::Double));
    let (time, micro) = (add("v1.Time", Shape::Time), add("v1.MicroTime", Shape::MicroTime));
    let (quantity, port) = (add("resource.Quantity", Shape::Quantity), add("intstr.IntOrString", Shape::IntOrString));
    let (raw, fields) = (add("runtime.RawExtension", Shape::RawExtension), add("v1.FieldsV1", Shape::FieldsV1));
    let list = |item| Shape::List(List { item, kind: ListKind::Atomic, item_default: None });
    let map = |value| Shape::Map(Map { value, atomic: false, value_default: None });
    let (strings, ints) = (add("[]string", list(string)), add("[]int64", list(int64)));
    let (labels, data) = (add("map[string]string", map(string)), add("map[string][]uint8", map(bytes)));
    let limits = add("v1.ResourceList", map(quantity));
    let extra = add("map[string]v1.ExtraValue", map(strings));
    let inner = add("v1.Inner", structure(&[("a", 1, string, ""), ("b", 2, int32, "*?")], |at, _| Wire::Field(at)));
    let inners = add("[]v1.Inner", list(inner));
    let plain = |at, name: &str| if matches!(name, "verbs" | "extra") { Wire::Wrapped(at) } else { Wire::Field(at) };
    let rows: Vec<Row> = vec![
        ("kind", 0, string, "?"),
        ("string", 1, string, ""),
        ("bytes", 2, bytes, ""),
        ("bool", 3, bool, ""),
        ("int32", 4, int32, ""),
        ("int64", 5, int64, ""),
        ("double", 6, double, ""),
        ("time", 7, time, ""),
        ("micro", 8, micro, ""),
        ("quantity", 9, quantity, ""),
        ("port", 10, port, ""),
        ("raw", 11, raw, ""),
        ("fields", 12, fields, "*"),
        ("strings", 13, strings, ""),
        ("ints", 14, ints, ""),
        ("labels", 15, labels, ""),
        ("data", 16, data, ""),
        ("limits", 17, limits, ""),
        ("extra", 18, extra, ""),
        ("verbs", 19, strings, ""),
        ("inner", 20, inner, ""),
        ("inners", 21, inners, ""),
        ("pointer", 100, inner, "*"),
    ];
    let every = add("v1.Every", structure(&rows, plain));
    let lean: Vec<Row> = rows
        .iter()
        .map(|(name, number, ty, flags)| {
            let flags = if flags.starts_with('*') { "*?" } else { "?" };
            (*name, *number, *ty, if *name == "time" { "??" } else { flags })
        })
        .collect();
    let lean = add("v1.Lean", structure(&lean, plain));
    let inline = inlined(&mut types, string, int32);
    let tree = recursive(&mut types, string);
    Zoo { types, every, lean, inline, tree }
}

/// Returns a volume type: a name, and in field 2 a message of sources that JSON inlines.
fn inlined(types: &mut Types, string: TypeId, int32: TypeId) -> TypeId {
    let mut shape =
        structure(&[("name", 1, string, ""), ("path", 0, string, "*?"), ("size", 0, int32, "?")], |at, _| {
            Wire::Field(at)
        });
    let Shape::Struct(volume) = &mut shape else { unreachable!() };
    let source = Message { fields: [(1, Wire::Field(1)), (3, Wire::Field(2))].into() };
    volume.message.fields = [(1, Wire::Field(0)), (2, Wire::Inline { pointer: false, message: source })].into();
    types.add(Type::new("v1.Volume", shape))
}

/// Returns a struct that may contain itself, or a boolean or a list of itself in its place.
fn recursive(types: &mut Types, string: TypeId) -> TypeId {
    let tree = types.add(Type::new("v1.Tree", Shape::Any));
    let bool = types.add(Type::new("bool", Shape::Bool));
    let trees = Shape::List(List { item: tree, kind: ListKind::Atomic, item_default: None });
    let trees = types.add(Type::new("[]v1.Tree", trees));
    let or_bool = Shape::Either(Either { object: tree, other: bool, numbers: (2, 1) });
    let or_bool = types.add(Type::new("v1.TreeOrBool", or_bool));
    let or_list = Shape::Either(Either { object: tree, other: trees, numbers: (1, 2) });
    let or_list = types.add(Type::new("v1.TreeOrArray", or_list));
    let rows =
        [("name", 1, string, "?"), ("child", 2, tree, "*?"), ("more", 3, or_bool, "*?"), ("items", 4, or_list, "*?")];
    types.set(tree, Type::new("v1.Tree", structure(&rows, |at, _| Wire::Field(at))));
    tree
}

impl Zoo {
    #[track_caller]
    fn decodes(&self, ty: TypeId, bytes: &[u8], json: &str) {
        let found = decode(bytes, self.types.schema(ty)).unwrap();
        assert_eq!(found, json::parse(json.as_bytes()).unwrap(), "{found}");
    }

    #[track_caller]
    fn encodes(&self, ty: TypeId, json: &str, bytes: &[u8]) {
        let mut found = Vec::new();
        encode(&json::parse(json.as_bytes()).unwrap(), self.types.schema(ty), &mut found).unwrap();
        assert_eq!(found.escape_ascii().to_string(), bytes.escape_ascii().to_string());
    }

    #[track_caller]
    fn assert_rejects(&self, ty: TypeId, bytes: &[u8], error: &str) {
        assert_eq!(decode(bytes, self.types.schema(ty)).unwrap_err().to_string(), error);
    }

    #[track_caller]
    fn rejects(&self, ty: TypeId, json: &str, error: &str) {
        let mut out = b"kept".to_vec();
        let value = json::parse(json.as_bytes()).unwrap();
        assert_eq!(encode(&value, self.types.schema(ty), &mut out).unwrap_err().to_string(), error);
        assert_eq!(out, b"kept");
    }
}

const ZEROS: &str = r#"{"bool":false,"bytes":null,"data":null,"double":0,"extra":null,"fields":null,
    "inner":{"a":""},"inners":null,"int32":0,"int64":0,"ints":null,"labels":null,"limits":null,"micro":null,
    "pointer":null,"port":0,"quantity":"0","raw":null,"string":"","strings":null,"time":null,"verbs":null}"#;

#[test]
fn empty_message_decodes_to_gos_zero_values() {
    let zoo = zoo();
    zoo.decodes(zoo.every, b"", ZEROS);
    // `omitempty` never omits a Go struct.
    zoo.decodes(zoo.lean, b"", r#"{"inner":{"a":""},"micro":null,"port":0,"quantity":"0","raw":null}"#);
}

#[test]
fn non_pointer_scalars_and_structs_are_always_encoded() {
    let zoo = zoo();
    let zeros = b"\x0a\0\x18\0\x20\0\x28\0\x31\0\0\0\0\0\0\0\0\x3a\0\x42\0\x4a\x03\x0a\x010\
        \x52\x06\x08\0\x10\0\x1a\0\x5a\0\xa2\x01\x02\x0a\0";
    zoo.encodes(zoo.every, "{}", zeros);
    zoo.encodes(zoo.every, ZEROS, zeros);
    zoo.encodes(zoo.lean, "{}", zeros);
}

#[test]
fn every_type_round_trips() {
    let zoo = zoo();
    let json = r#"{"bool":true,"bytes":"aGk=","data":{"k":"aGk=","l":""},"double":1.5,"extra":{"e":["x"],"f":[]},
        "fields":{"f:a":{}},"inner":{"a":"x","b":0},"inners":[{"a":""},{"a":"y","b":-1}],"int32":-1,
        "int64":9223372036854775807,"ints":[1,-1],"labels":{"a":"","b":"c"},"limits":{"cpu":"100m"},
        "micro":"2001-01-01T01:01:01.000001Z","pointer":{"a":""},"port":"http","quantity":"1Gi",
        "raw":{"apiVersion":"v1","kind":"X"},"string":"é","strings":["","a"],"time":"1969-12-31T23:59:59Z","verbs":[]}"#;
    let minus = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    let bytes = [
        &b"\x0a\x02\xc3\xa9\x12\x02hi\x18\x01\x20"[..],
        minus,
        b"\x28\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x31\0\0\0\0\0\0\xf8\x3f\x3a\x0d\x08",
        minus,
        b"\x10\0\x42\x09\x08\xcd\xad\xbf\xd2\x03\x10\xe8\x07\x4a\x05\x0a\x031Gi\x52\x0a\x08\x01\x10\0\x1a\x04http",
        b"\x5a\x20\x0a\x1e{\"apiVersion\":\"v1\",\"kind\":\"X\"}\x62\x0c\x0a\x0a{\"f:a\":{}}\x6a\0\x6a\x01a\x70\x01\x70",
        minus,
        b"\x7a\x05\x0a\x01a\x12\0\x7a\x06\x0a\x01b\x12\x01c\x82\x01\x07\x0a\x01k\x12\x02hi\x82\x01\x05\x0a\x01l\x12\0",
        b"\x8a\x01\x0d\x0a\x03cpu\x12\x06\x0a\x04100m\x92\x01\x08\x0a\x01e\x12\x03\x0a\x01x\x92\x01\x05\x0a\x01f\x12\0",
        b"\x9a\x01\0\xa2\x01\x05\x0a\x01x\x10\0\xaa\x01\x02\x0a\0\xaa\x01\x0e\x0a\x01y\x10",
        minus,
        b"\xa2\x06\x02\x0a\0",
    ]
    .concat();
    zoo.encodes(zoo.every, json, &bytes);
    zoo.decodes(zoo.every, &bytes, json);
}

#[test]
fn quantities_are_canonical_and_times_are_truncated() {
    let zoo = zoo();
    zoo.decodes(
        zoo.lean,
        b"\x4a\x07\x0a\x051000m",
        r#"{"inner":{"a":""},"micro":null,"port":0,"quantity":"1","raw":null}"#,
    );
    let decoded = |bytes: &[u8], key: &str| decode(bytes, zoo.types.schema(zoo.every)).unwrap()[key].clone();
    assert_eq!(decoded(b"\x3a\x06\x08\x01\x10\xff\xff\x03", "time"), value!("1970-01-01T00:00:01Z"));
    assert_eq!(decoded(b"\x42\x06\x08\x01\x10\xff\xff\x03", "micro"), value!("1970-01-01T00:00:01.000065Z"));
    assert_eq!(decoded(b"\x3a\x0b\x08\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01", "time"), Value::Null, "the year 1");
    let mut out = Vec::new();
    let year_one = value!({"time": "0001-01-01T00:00:00Z"});
    encode(&year_one, zoo.types.schema(zoo.every), &mut out).unwrap();
    assert_eq!(decoded(&out, "time"), Value::Null);
}

#[test]
fn inlined_structs_are_separate_messages() {
    let zoo = zoo();
    zoo.encodes(zoo.inline, r#"{"name":"v","path":"/x","size":7}"#, b"\x0a\x01v\x12\x06\x0a\x02/x\x18\x07");
    zoo.encodes(zoo.inline, r#"{"name":"v"}"#, b"\x0a\x01v\x12\x02\x18\0");
    zoo.decodes(zoo.inline, b"\x12\x06\x0a\x02/x\x18\x07\x0a\x01v", r#"{"name":"v","path":"/x","size":7}"#);
    zoo.decodes(zoo.inline, b"", r#"{"name":""}"#);
}

#[test]
fn either_types_decode_and_encode_both_forms() {
    let zoo = zoo();
    for (json, bytes) in [
        (r#"{"more":true}"#, &b"\x1a\x02\x08\x01"[..]),
        (r#"{"more":false}"#, b"\x1a\x02\x08\0"),
        (r#"{"more":{"name":"x"}}"#, b"\x1a\x07\x08\x01\x12\x03\x0a\x01x"),
        (r#"{"items":{"name":"x"}}"#, b"\x22\x05\x0a\x03\x0a\x01x"),
        (r#"{"items":[{"name":"x"},{}]}"#, b"\x22\x09\x12\x03\x0a\x01x\x12\x02\x0a\0"),
    ] {
        zoo.encodes_tree(json, bytes);
        zoo.decodes(zoo.tree, bytes, json);
    }
    zoo.decodes(zoo.tree, b"\x1a\0\x22\0", r#"{"items":null,"more":false}"#);
    zoo.rejects(zoo.tree, r#"{"more":"x"}"#, "more: string where v1.TreeOrBool is expected");
    zoo.rejects(zoo.tree, r#"{"items":true}"#, "items: bool where v1.TreeOrArray is expected");
}

impl Zoo {
    /// Works like [`Zoo::encodes`], without the empty name that the root always has.
    #[track_caller]
    fn encodes_tree(&self, json: &str, bytes: &[u8]) {
        self.encodes(self.tree, json, &[b"\x0a\0", bytes].concat());
    }
}

#[test]
fn split_messages_are_joined() {
    let zoo = zoo();
    zoo.decodes(
        zoo.tree,
        b"\x12\x03\x0a\x01a\x12\x06\x12\x04\x0a\x02bb",
        r#"{"child":{"name":"a","child":{"name":"bb"}}}"#,
    );
    zoo.decodes(zoo.inline, b"\x12\x04\x0a\x02/x\x12\x02\x18\x07", r#"{"name":"","path":"/x","size":7}"#);
    // A message that is split at every level costs no more than its bytes.
    let mut bytes = b"\x0a\x01x".to_vec();
    for _ in 0..60 {
        let mut outer = vec![0x12];
        wire::put_varint(&mut outer, bytes.len() as u64);
        outer.extend_from_slice(&bytes);
        outer.extend_from_slice(b"\x12\0");
        bytes = outer;
    }
    assert!(decode(&bytes, zoo.types.schema(zoo.tree)).is_ok());
}

#[test]
fn unknown_fields_are_skipped_and_packed_numbers_are_accepted() {
    let zoo = zoo();
    let unknown =
        b"\xf8\x01\x07\xf9\x01\0\0\0\0\0\0\0\0\xfa\x01\x02xx\xfd\x01\0\0\0\0\xfb\x01\x08\x01\xfb\x01\xfc\x01\xfc\x01";
    zoo.decodes(zoo.inline, unknown, r#"{"name":""}"#);
    let decoded = decode(b"\x70\x01\x72\x02\x02\x03", zoo.types.schema(zoo.every)).unwrap();
    assert_eq!(decoded["ints"], value!([1, 2, 3]));
}

#[test]
fn text_that_is_not_utf8_is_replaced_byte_by_byte() {
    let zoo = zoo();
    zoo.decodes(zoo.inline, b"\x0a\x04a\xe2\x82b", "{\"name\":\"a\u{fffd}\u{fffd}b\"}");
}

#[test]
fn embedded_objects_may_be_protobuf() {
    let zoo = zoo();
    let kind = GroupVersionKind::of("", "v1", "Every");
    let kinds = |requested: &GroupVersionKind| (*requested == kind).then(|| zoo.types.schema(zoo.every));
    let mut inner = Vec::new();
    encode_object(&value!({"apiVersion": "v1", "kind": "Every", "string": "x"}), kinds(&kind).unwrap(), &mut inner)
        .unwrap();
    assert!(Envelope::is_in(&inner));
    let mut raw = Vec::new();
    wire::put_bytes(&mut raw, 1, &inner);
    let mut outer = Vec::new();
    wire::put_bytes(&mut outer, 11, &raw);
    let found = decode_with(&outer, kinds(&kind).unwrap(), &kinds).unwrap();
    assert_eq!(found["raw"]["kind"], value!("Every"));
    assert_eq!(found["raw"]["string"], value!("x"));
    zoo.assert_rejects(zoo.every, &outer, "raw: no kind /v1, Kind=Every is known");
    assert_eq!(decode_object(&inner, &kinds).unwrap()["kind"], value!("Every"));
    assert_eq!(decode_object(b"{}", &kinds).unwrap_err().to_string(), "an object does not start with the bytes k8s\\0");
}

#[test]
fn envelopes_round_trip() {
    let envelope =
        Envelope { api_version: "apps/v1", kind: "Deployment", raw: b"xyz", content_encoding: "", content_type: "" };
    let mut bytes = Vec::new();
    envelope.encode(&mut bytes);
    assert_eq!(bytes, b"k8s\0\x0a\x15\x0a\x07apps/v1\x12\x0aDeployment\x12\x03xyz\x1a\0\x22\0");
    assert_eq!(Envelope::decode(&bytes).unwrap(), envelope);
    for end in 0..bytes.len() {
        let _ = Envelope::decode(&bytes[..end]);
    }
    let error = Envelope::decode(b"k8s\0\x0a\x02\x0a\x05").unwrap_err();
    assert_eq!(error.to_string(), "typeMeta: the message is truncated");
}

#[test]
fn malformed_bytes_fail_with_the_field_path() {
    let zoo = zoo();
    zoo.assert_rejects(zoo.every, b"\x0a", "string: the message is truncated");
    zoo.assert_rejects(zoo.every, b"\x0a\x05ab", "string: the message is truncated");
    zoo.assert_rejects(zoo.every, b"\x80", "the message is truncated");
    zoo.assert_rejects(
        zoo.every,
        b"\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        "int64: a number has too many bytes",
    );
    zoo.assert_rejects(zoo.every, b"\x02", "a field has an illegal number");
    zoo.assert_rejects(zoo.every, b"\x0c", "unexpected end of a group");
    zoo.assert_rejects(zoo.every, b"\x08\x01", "string: wrong wire type 0, expected 2");
    zoo.assert_rejects(zoo.every, b"\x32\x00", "double: wrong wire type 2, expected 1");
    zoo.assert_rejects(zoo.every, b"\x4a\x03\x0a\x01x", "quantity: invalid quantity");
    zoo.assert_rejects(zoo.every, b"\x52\x02\x08\x02", "port: an int-or-string has the invalid type 2");
    zoo.assert_rejects(zoo.every, b"\x5a\x03\x0a\x01{", "raw: embedded JSON is invalid");
    zoo.assert_rejects(zoo.every, b"\x31\0\0\0\0\0\0\xf0\x7f", "double: a number is not finite");
    zoo.assert_rejects(zoo.every, b"\xaa\x01\x02\x0a\0\xaa\x01\x02\x0a\x05", "inners[1].a: the message is truncated");
    zoo.assert_rejects(zoo.every, b"\x8a\x01\x08\x0a\x01k\x12\x03\x0a\x01x", "limits[k]: invalid quantity");
    zoo.assert_rejects(zoo.every, b"\xa2\x06\x02\x10\xff", "pointer.b: the message is truncated");
}

#[test]
fn nesting_is_bounded() {
    let zoo = zoo();
    let nested = |levels: usize| {
        let mut bytes = Vec::new();
        for _ in 1..levels {
            let mut outer = vec![0x12];
            wire::put_varint(&mut outer, bytes.len() as u64);
            outer.extend_from_slice(&bytes);
            bytes = outer;
        }
        bytes
    };
    let deepest = decode(&nested(DEPTH_MAX), zoo.types.schema(zoo.tree)).unwrap();
    assert!(json::parse(&json::to_vec(&deepest)).is_ok(), "as deep as JSON may be");
    assert!(decode(&nested(DEPTH_MAX + 1), zoo.types.schema(zoo.tree)).is_err());
    assert!(decode(&nested(10_000), zoo.types.schema(zoo.tree)).is_err());
}

#[test]
fn mistyped_trees_fail_with_the_field_path() {
    let zoo = zoo();
    zoo.rejects(zoo.every, "[]", "array where v1.Every is expected");
    zoo.rejects(zoo.every, r#"{"string":1}"#, "string: number where string is expected");
    zoo.rejects(zoo.every, r#"{"int32":1.5}"#, "int32: number where int32 is expected");
    zoo.rejects(zoo.every, r#"{"int32":2147483648}"#, "int32: 2147483648 does not fit 32 bits");
    zoo.rejects(zoo.every, r#"{"bytes":"?"}"#, "bytes: invalid base64");
    zoo.rejects(zoo.every, r#"{"time":"now"}"#, "time: invalid time");
    zoo.rejects(zoo.every, r#"{"time":1}"#, "time: number where v1.Time is expected");
    zoo.rejects(zoo.every, r#"{"quantity":"x"}"#, "quantity: invalid quantity");
    zoo.rejects(zoo.every, r#"{"quantity":true}"#, "quantity: bool where resource.Quantity is expected");
    zoo.rejects(zoo.every, r#"{"port":true}"#, "port: bool where intstr.IntOrString is expected");
    zoo.rejects(zoo.every, r#"{"labels":{"a":1}}"#, "labels[a]: number where string is expected");
    zoo.rejects(zoo.every, r#"{"inners":[{},{"a":[]}]}"#, "inners[1].a: array where string is expected");
    zoo.rejects(zoo.every, r#"{"strings":{}}"#, "strings: object where []string is expected");
    zoo.rejects(zoo.every, r#"{"labels":[]}"#, "labels: array where map[string]string is expected");
}

#[test]
fn null_is_absence_and_unknown_fields_are_not_encoded() {
    let zoo = zoo();
    zoo.encodes(zoo.inline, r#"{"name":null,"path":null,"other":{"x":1}}"#, b"\x0a\0\x12\x02\x18\0");
    let decoded = |json: &str| {
        let mut out = Vec::new();
        encode(&json::parse(json.as_bytes()).unwrap(), zoo.types.schema(zoo.every), &mut out).unwrap();
        decode(&out, zoo.types.schema(zoo.every)).unwrap()
    };
    assert_eq!(decoded(r#"{"strings":["a",null]}"#)["strings"], value!(["a", ""]));
    assert_eq!(decoded(r#"{"strings":[]}"#)["strings"], Value::Null, "protobuf has no empty list");
    assert_eq!(decoded(r#"{"data":{"a":null}}"#)["data"], value!({"a": ""}));
    assert_eq!(decoded(r#"{"bytes":""}"#)["bytes"], value!(""), "it has empty bytes");
    assert_eq!(decoded(r#"{"bytes":"aG\nk="}"#)["bytes"], value!("aGk="));
    assert_eq!(decoded(r#"{"quantity":1.5}"#)["quantity"], value!("1500m"));
    assert_eq!(decoded(r#"{"double":2}"#)["double"], value!(2));
}

#[test]
fn watch_frame_is_a_bare_watch_event_after_its_length() {
    let frame = watch_frame("ADDED", b"k8s\0xy");
    assert_eq!(frame, b"\0\0\0\x11\x0a\x05ADDED\x12\x08\x0a\x06k8s\0xy");
}
