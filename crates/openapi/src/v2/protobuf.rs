//! OpenAPI v2 in protobuf: gnostic's message `openapi.v2.Document`.
//!
//! Fields of the message that Kubernetes never sets are not implemented.

use apimachinery::{Object, Value, json};

/// Encodes a document that [`document`](super::document) returned.
pub fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.string(1, document.get("swagger"));
    out.nested(2, document.get("info"), |out, info| {
        out.string(1, info.get("title"));
        out.string(2, info.get("version"));
    });
    out.nested(8, document.get("paths"), |out, paths| out.named(2, paths, path));
    out.nested(9, document.get("definitions"), |out, definitions| out.named(1, definitions, schema));
    out.nested(10, document.get("parameters"), |out, parameters| out.named(1, parameters, parameter));
    for requirement in list(document.get("security")) {
        out.message(12, |out| out.named(1, requirement, |out, scopes| out.strings(1, Some(scopes))));
    }
    out.nested(13, document.get("securityDefinitions"), |out, definitions| out.named(1, definitions, security));
    out.bytes
}

fn path(out: &mut Message, item: &Value) {
    let methods = [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")];
    for (number, method) in methods {
        out.nested(number, item.get(method), operation);
    }
    parameters(out, 9, item);
}

fn operation(out: &mut Message, operation: &Value) {
    out.strings(1, operation.get("tags"));
    out.string(3, operation.get("description"));
    out.string(5, operation.get("operationId"));
    out.strings(6, operation.get("produces"));
    out.strings(7, operation.get("consumes"));
    parameters(out, 8, operation);
    out.nested(9, operation.get("responses"), |out, responses| {
        out.named(1, responses, |out, response| out.nested(1, Some(response), write_response));
    });
    out.strings(10, operation.get("schemes"));
    out.extensions(13, operation);
}

fn write_response(out: &mut Message, response: &Value) {
    out.string(1, response.get("description"));
    out.nested(2, response.get("schema"), |out, of| out.nested(1, Some(of), schema));
}

fn parameters(out: &mut Message, number: u32, of: &Value) {
    for one in list(of.get("parameters")) {
        out.message(number, |out| match one.get("$ref") {
            Some(reference) => out.message(2, |out| out.string(1, Some(reference))),
            None => out.message(1, |out| parameter(out, one)),
        });
    }
}

fn parameter(out: &mut Message, one: &Value) {
    match one.get("in").and_then(Value::as_str) {
        Some("body") => out.message(1, |out| {
            out.string(1, one.get("description"));
            out.string(2, one.get("name"));
            out.string(3, one.get("in"));
            out.bool(4, one.get("required"));
            out.nested(5, one.get("schema"), schema);
        }),
        Some("path") => out.message(2, |out| out.message(4, |out| simple_parameter(out, one, 5, 19))),
        _ => out.message(2, |out| out.message(3, |out| simple_parameter(out, one, 6, 20))),
    }
}

/// Encodes a non-body parameter. The parameter messages differ in the numbers of their later fields.
fn simple_parameter(out: &mut Message, one: &Value, json_type: u32, unique: u32) {
    out.bool(1, one.get("required"));
    out.string(2, one.get("in"));
    out.string(3, one.get("description"));
    out.string(4, one.get("name"));
    out.string(json_type, one.get("type"));
    out.bool(unique, one.get("uniqueItems"));
}

fn security(out: &mut Message, definition: &Value) {
    out.message(2, |out| {
        out.string(1, definition.get("type"));
        out.string(2, definition.get("name"));
        out.string(3, definition.get("in"));
        out.string(4, definition.get("description"));
    });
}

fn schema(out: &mut Message, schema: &Value) {
    out.string(1, schema.get("$ref"));
    out.string(2, schema.get("format"));
    out.string(3, schema.get("title"));
    out.string(4, schema.get("description"));
    out.any(5, schema.get("default"));
    out.double(6, schema.get("multipleOf"));
    out.double(7, schema.get("maximum"));
    out.bool(8, schema.get("exclusiveMaximum"));
    out.double(9, schema.get("minimum"));
    out.bool(10, schema.get("exclusiveMinimum"));
    out.int(11, schema.get("maxLength"));
    out.int(12, schema.get("minLength"));
    out.string(13, schema.get("pattern"));
    out.int(14, schema.get("maxItems"));
    out.int(15, schema.get("minItems"));
    out.bool(16, schema.get("uniqueItems"));
    out.int(17, schema.get("maxProperties"));
    out.int(18, schema.get("minProperties"));
    out.strings(19, schema.get("required"));
    list(schema.get("enum")).iter().for_each(|one| out.any(20, Some(one)));
    out.nested(21, schema.get("additionalProperties"), |out, inner| match inner {
        Value::Bool(_) => out.bool(2, Some(inner)),
        _ => out.nested(1, Some(inner), self::schema),
    });
    if let Some(json_type) = schema.get("type") {
        out.message(22, |out| out.string(1, Some(json_type)));
    }
    out.nested(23, schema.get("items"), |out, items| out.nested(1, Some(items), self::schema));
    out.nested(25, schema.get("properties"), |out, properties| out.named(1, properties, self::schema));
    out.any(30, schema.get("example"));
    out.extensions(31, schema);
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

/// A message under construction.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn message(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.chunk(number, &inner.bytes);
    }

    fn nested(&mut self, number: u32, value: Option<&Value>, write: impl FnOnce(&mut Self, &Value)) {
        if let Some(value) = value {
            self.message(number, |out| write(out, value));
        }
    }

    /// Encodes a map as gnostic does: a list of names with values.
    fn named(&mut self, number: u32, map: &Value, write: impl Fn(&mut Self, &Value)) {
        for (name, value) in map.as_object().into_iter().flat_map(Object::iter) {
            self.message(number, |out| {
                out.chunk(1, name.as_bytes());
                out.message(2, |out| write(out, value));
            });
        }
    }

    /// Encodes the `x-` extensions as text.
    fn extensions(&mut self, number: u32, of: &Value) {
        let entries = of.as_object().into_iter().flat_map(Object::iter);
        for (name, value) in entries.filter(|(name, _)| name.starts_with("x-")) {
            self.message(number, |out| {
                out.chunk(1, name.as_bytes());
                out.any(2, Some(value));
            });
        }
    }

    /// Encodes any value as YAML, of which JSON is a subset.
    fn any(&mut self, number: u32, value: Option<&Value>) {
        if let Some(value) = value {
            self.message(number, |out| out.chunk(2, format!("{}\n", json::to_string(value)).as_bytes()));
        }
    }

    fn string(&mut self, number: u32, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.chunk(number, text.as_bytes());
        }
    }

    fn strings(&mut self, number: u32, value: Option<&Value>) {
        list(value).iter().filter_map(Value::as_str).for_each(|text| self.chunk(number, text.as_bytes()));
    }

    fn bool(&mut self, number: u32, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.varint(u64::from(number) << 3);
            self.varint(1);
        }
    }

    fn int(&mut self, number: u32, value: Option<&Value>) {
        if let Some(int) = value.and_then(Value::as_int).filter(|int| *int != 0) {
            self.varint(u64::from(number) << 3);
            self.varint(int.cast_unsigned());
        }
    }

    fn double(&mut self, number: u32, value: Option<&Value>) {
        if let Some(double) = value.and_then(Value::as_float) {
            self.varint(u64::from(number) << 3 | 1);
            self.bytes.extend(double.to_le_bytes());
        }
    }

    fn chunk(&mut self, number: u32, bytes: &[u8]) {
        self.varint(u64::from(number) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    /// Returns the length-delimited fields with a number, in order.
    fn chunks(mut bytes: &[u8], field_number: u64) -> Vec<&[u8]> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let (byte, rest) = bytes.split_first().unwrap();
                *bytes = rest;
                value |= u64::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            value
        }
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            match key & 7 {
                0 => drop(varint(&mut bytes)),
                1 => bytes = &bytes[8..],
                _ => {
                    let length = usize::try_from(varint(&mut bytes)).unwrap();
                    let (chunk, rest) = bytes.split_at(length);
                    bytes = rest;
                    if key >> 3 == field_number {
                        out.push(chunk);
                    }
                }
            }
        }
        out
    }

    #[test]
    fn definitions_are_encoded_as_named_schemas() {
        let bytes = encode(&value!({"swagger": "2.0", "definitions": {"a.B": {
            "type": "object", "maximum": 1.5, "x-kubernetes-list-type": "set",
            "properties": {"c": {"$ref": "#/definitions/a.D", "description": "words"}},
        }}}));
        assert_eq!(chunks(&bytes, 1), [b"2.0"]);
        let definition = chunks(chunks(&bytes, 9)[0], 1)[0];
        assert_eq!(chunks(definition, 1), [b"a.B"]);
        let schema = chunks(definition, 2)[0];
        assert_eq!(chunks(chunks(schema, 22)[0], 1), [b"object"]);
        let property = chunks(chunks(schema, 25)[0], 1)[0];
        assert_eq!(chunks(property, 1), [b"c"]);
        assert_eq!(chunks(chunks(property, 2)[0], 1), [b"#/definitions/a.D"]);
        let extension = chunks(schema, 31)[0];
        assert_eq!(chunks(extension, 1), [b"x-kubernetes-list-type"]);
        assert_eq!(chunks(chunks(extension, 2)[0], 2), [b"\"set\"\n"]);
    }

    #[test]
    fn parameters_are_encoded_by_location() {
        let bytes = encode(&value!({"parameters": {
            "a": {"in": "query", "name": "q", "type": "string"},
            "b": {"in": "path", "name": "p", "type": "string"},
        }}));
        let named = chunks(chunks(&bytes, 10)[0], 1);
        let simple = |at: usize| chunks(chunks(named[at], 2)[0], 2)[0];
        assert_eq!(chunks(chunks(simple(0), 3)[0], 6), [b"string"]);
        assert_eq!(chunks(chunks(simple(1), 4)[0], 5), [b"string"]);
    }
}
