//! Property tests of the three encodings, for random objects of every kind.

use apimachinery::schema::{Schema, Shape, Struct};
use apimachinery::{Object, Str, Value, json, protobuf, yaml};
use proptest::prelude::*;

/// Generates a tree that conforms to a schema from random bytes; when they run out, the rest stays empty.
struct Source<'b> {
    rest: &'b [u8],
}

const DEPTH_MAX: usize = 12;

impl Source<'_> {
    fn next(&mut self, choices: u8) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        first % choices
    }

    fn text(&mut self) -> Str {
        const TEXTS: [&str; 24] = [
            "",
            "a",
            "a b",
            "yes",
            "0644",
            "1e3",
            "null",
            "- x",
            "x: y",
            "x #y",
            " x",
            "x ",
            "x\ny",
            "x\n",
            "\n",
            "x \ny",
            "'",
            "\"\\",
            "\t",
            "é",
            "\u{1F600}",
            "2001-01-01",
            "~",
            "a very long text that has to be folded somewhere since \
             no line may be as long as this one is, at least not if it has spaces",
        ];
        TEXTS[usize::from(self.next(24))].into()
    }

    fn int(&mut self) -> i64 {
        [0, 1, -1, 127, 128, 300, i64::from(i32::MAX), i64::from(i32::MIN)][usize::from(self.next(8))]
    }

    fn tree(&mut self, schema: Schema<'_>, depth: usize) -> Value {
        let pick = |source: &mut Self, texts: &[&str]| Value::from(texts[usize::from(source.next(texts.len() as u8))]);
        match schema.shape() {
            Shape::Bool => Value::Bool(self.next(2) == 1),
            Shape::Int32 => Value::Int(self.int()),
            Shape::Int64 => Value::Int(self.int().saturating_mul(1 << 20)),
            Shape::Double => Value::Float(1.0 / (self.int() as f64 + 0.5)),
            Shape::Bytes => pick(self, &["", "AA==", "aGVsbG8="]),
            Shape::IntOrString if self.next(2) == 0 => Value::Int(self.int()),
            Shape::String | Shape::IntOrString => Value::String(self.text()),
            Shape::Quantity => pick(self, &["0", "1", "100m", "1Gi", "1500m", "12e6"]),
            Shape::Time => pick(self, &["1970-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "9999-12-31T23:59:59Z"]),
            Shape::MicroTime => pick(self, &["1970-01-01T00:00:00.000000Z", "2024-02-29T23:59:59.999999Z"]),
            Shape::Any | Shape::RawExtension | Shape::FieldsV1 => {
                Value::Object(Object::from_iter([("key", Value::String(self.text()))]))
            }
            Shape::List(list) => Value::Array(self.items(schema.other(list.item), depth)),
            Shape::Map(map) => {
                let values = self.items(schema.other(map.value), depth);
                Value::Object(values.into_iter().map(|value| (self.text(), value)).collect())
            }
            Shape::Struct(shape) => self.structure(schema, shape, depth),
            Shape::Either(either) => {
                let ty = if depth < DEPTH_MAX && self.next(2) == 0 { either.object } else { either.other };
                self.tree(schema.other(ty), depth + 1)
            }
        }
    }

    fn items(&mut self, schema: Schema<'_>, depth: usize) -> Vec<Value> {
        let length = if depth < DEPTH_MAX { self.next(3) } else { 0 };
        (0..length).map(|_| self.tree(schema, depth + 1)).collect()
    }

    fn structure(&mut self, schema: Schema<'_>, shape: &Struct, depth: usize) -> Value {
        let mut object = Object::new();
        for field in &shape.fields {
            let is_included = depth < DEPTH_MAX && !matches!(field.name.as_str(), "apiVersion" | "kind");
            if is_included && self.next(3) == 1 {
                object.insert(field.name.clone(), self.tree(schema.other(field.ty), depth + 1));
            }
        }
        Value::Object(object)
    }
}

/// Whether `whole` contains everything in `part`, except for empty values.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| contains(whole.get(key).unwrap_or(&Value::Null), part))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        (Value::Int(whole), Value::Float(part)) => *whole as f64 == *part,
        (Value::Null, Value::Object(part)) => part.values().all(|part| contains(&Value::Null, part)),
        (Value::Null, Value::Array(part)) => part.is_empty(),
        (Value::Null, Value::String(part)) => part.is_empty(),
        (Value::Null, Value::Int(0) | Value::Bool(false) | Value::Null) => true,
        _ => whole == part,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_are_equal_in_every_encoding(kind in any::<u16>(), bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let kinds = api::catalogue::kinds();
        let at = usize::from(kind) % kinds.len();
        let (kind, schema) = api::catalogue::kinds().nth(at).unwrap();
        // Table has no protobuf form.
        prop_assume!(kind.kind != "Table");
        let object = Source { rest: &bytes }.tree(schema, 0);
        let encode = |object: &Value| {
            let mut out = Vec::new();
            protobuf::encode(object, schema, &mut out).map(|()| out)
        };
        let encoded = encode(&object).unwrap();
        let decoded = protobuf::decode(&encoded, schema).unwrap();
        prop_assert!(contains(&decoded, &object), "{kind}\n{object}\n{decoded}");
        prop_assert_eq!(&protobuf::decode(&encode(&decoded).unwrap(), schema).unwrap(), &decoded);
        prop_assert_eq!(&json::parse(&json::to_vec(&decoded)).unwrap(), &decoded);
        prop_assert_eq!(&yaml::parse(&yaml::to_string(&decoded)).unwrap(), &decoded);
    }

    #[test]
    fn any_text_survives_yaml(text in any::<String>(), key in any::<String>(), blanks in "[ \n\t:#'\"a-]{0,40}") {
        let tree = Value::Object([(key, text.clone()), (blanks.clone(), blanks)].into_iter().collect());
        prop_assert_eq!(&yaml::parse(&yaml::to_string(&tree)).unwrap(), &tree);
        prop_assert_eq!(yaml::parse(&yaml::to_string(&Value::from(text.as_str()))).unwrap(), Value::from(text));
    }
}
