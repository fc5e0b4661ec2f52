//! Protobuf encoder: tree to bytes.
//!
//! As in Go, fields that the schema does not declare are not encoded, and `null` is absence.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::decode::NO_TIME;
use super::wire::{BYTES, FIXED64, close, put_bytes, put_number, put_tag};
use super::{Error, Problem};
use crate::schema::{Either, Field, Map, Message, Shape, Struct, Wire};
use crate::time::Time;
use crate::{Object, Path, Schema, Value, json, quantity};

/// Appends the message of an object without an envelope.
pub fn encode(value: &Value, schema: Schema<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    let mut encoder = Encoder { out, found: Vec::with_capacity(128) };
    let done = encoder.body(Some(value), schema, &Path::ROOT);
    if done.is_err() {
        out.truncate(start);
    }
    done
}

/// Base64 as lenient as Go's: the unused bits of the last digit are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

struct Encoder<'v, 'o> {
    out: &'o mut Vec<u8>,
    /// The value of each field of the structs that are being encoded.
    found: Vec<Option<&'v Value>>,
}

/// A struct whose values start at `base`.
#[derive(Clone, Copy)]
struct Frame<'s> {
    schema: Schema<'s>,
    fields: &'s [Field],
    base: usize,
}

impl<'v> Encoder<'v, '_> {
    /// Writes the content of a value's message; for an absent value, the content of a zero message.
    fn body(&mut self, value: Option<&'v Value>, schema: Schema<'_>, path: &Path<'_>) -> Result<(), Error> {
        let fail = |problem| Error::new(path, problem);
        match schema.shape() {
            Shape::Struct(shape) => self.structure(value, schema, shape, path),
            Shape::Either(either) => self.either(value, schema, either, path),
            Shape::List(_) => self.list(1, value, schema, path),
            Shape::RawExtension | Shape::FieldsV1 | Shape::Any => {
                if let Some(value) = value {
                    put_bytes(self.out, 1, &json::to_vec(value));
                }
                Ok(())
            }
            Shape::Time => time(self.out, value, schema, Time::parse).map_err(fail),
            Shape::MicroTime => {
                time(self.out, value, schema, |text| Time::parse_micro(text).map(Time::to_micros)).map_err(fail)
            }
            Shape::Quantity => {
                let canonical = quantity::canonical_value(value.unwrap_or(&Value::Null));
                let canonical = canonical.ok_or_else(|| mismatch(value, schema)).and_then(|text| Ok(text?));
                put_bytes(self.out, 1, canonical.map_err(fail)?.as_bytes());
                Ok(())
            }
            Shape::IntOrString => self.int_or_string(value, schema).map_err(fail),
            _ => unreachable!("all other types are not messages"),
        }
    }

    fn structure(
        &mut self,
        value: Option<&'v Value>,
        schema: Schema<'_>,
        shape: &Struct,
        path: &Path<'_>,
    ) -> Result<(), Error> {
        let frame = Frame { schema, fields: &shape.fields, base: self.found.len() };
        self.found.resize(frame.base + frame.fields.len(), None);
        match value {
            None => {}
            Some(Value::Object(object)) => self.find(object, frame),
            Some(_) => return Err(Error::new(path, mismatch(value, schema))),
        }
        self.message(&shape.message, frame, path)?;
        self.found.truncate(frame.base);
        Ok(())
    }

    /// Pairs fields with values. Both are sorted by name.
    fn find(&mut self, object: &'v Object, frame: Frame<'_>) {
        let mut at = 0;
        for (key, value) in object.iter() {
            while frame.fields.get(at).is_some_and(|field| field.name.as_str() < key) {
                at += 1;
            }
            if frame.fields.get(at).is_some_and(|field| field.name == key) {
                self.found[frame.base + at] = Some(value).filter(|value| !value.is_null());
            }
        }
    }

    fn message(&mut self, message: &Message, frame: Frame<'_>, path: &Path<'_>) -> Result<(), Error> {
        for (number, wire) in &message.fields {
            match wire {
                Wire::Field(at) => self.field(*number, *at, false, frame, path)?,
                Wire::Wrapped(at) => self.field(*number, *at, true, frame, path)?,
                Wire::Inline { pointer, message } => {
                    if !pointer || self.is_set(message, frame.base) {
                        self.nested(*number, |encoder| encoder.message(message, frame, path))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_set(&self, message: &Message, base: usize) -> bool {
        message.fields.iter().any(|(_, wire)| match wire {
            Wire::Field(at) | Wire::Wrapped(at) => self.found[base + usize::from(*at)].is_some(),
            Wire::Inline { message, .. } => self.is_set(message, base),
        })
    }

    fn field(&mut self, number: u32, at: u16, wrapped: bool, frame: Frame<'_>, path: &Path<'_>) -> Result<(), Error> {
        let field = &frame.fields[usize::from(at)];
        let value = self.found[frame.base + usize::from(at)];
        let ty = frame.schema.other(field.ty);
        let path = path.field(&field.name);
        match ty.shape() {
            Shape::List(_) | Shape::Map(_) | Shape::Bytes if value.is_none() => Ok(()),
            _ if value.is_none() && field.pointer => Ok(()),
            Shape::List(_) if wrapped => self.nested(number, |encoder| encoder.list(1, value, ty, &path)),
            Shape::List(_) => self.list(number, value, ty, &path),
            Shape::Map(map) => self.map(number, value, ty, map, &path),
            _ => self.one(number, value, ty, &path),
        }
    }

    /// Writes a value that is not a list or map, even if it is zero.
    fn one(&mut self, number: u32, value: Option<&'v Value>, schema: Schema<'_>, path: &Path<'_>) -> Result<(), Error> {
        let value = value.filter(|value| !value.is_null());
        match (schema.shape(), value) {
            (Shape::String | Shape::Bytes, None) => put_bytes(self.out, number, b""),
            (Shape::String, Some(Value::String(text))) => put_bytes(self.out, number, text.as_bytes()),
            (Shape::Bytes, Some(Value::String(text))) => {
                let bytes = unbase64(text).map_err(|error| Error::new(path, error))?;
                put_bytes(self.out, number, &bytes);
            }
            (Shape::Bool, Some(Value::Bool(it))) => put_number(self.out, number, i64::from(*it)),
            (Shape::Bool | Shape::Int32 | Shape::Int64, None) => put_number(self.out, number, 0),
            (Shape::Int32, Some(Value::Int(it))) => {
                let it = int32(*it).map_err(|problem| Error::new(path, problem))?;
                put_number(self.out, number, it.into());
            }
            (Shape::Int64, Some(Value::Int(it))) => put_number(self.out, number, *it),
            (Shape::Double, None | Some(Value::Int(_) | Value::Float(_))) => {
                put_tag(self.out, number, FIXED64);
                let float = value.and_then(Value::as_float).unwrap_or_default();
                self.out.extend_from_slice(&float.to_bits().to_le_bytes());
            }
            (Shape::String | Shape::Bytes | Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Double, _) => {
                return Err(Error::new(path, mismatch(value, schema)));
            }
            _ => return self.nested(number, |encoder| encoder.body(value, schema, path)),
        }
        Ok(())
    }

    fn list(
        &mut self,
        number: u32,
        value: Option<&'v Value>,
        schema: Schema<'_>,
        path: &Path<'_>,
    ) -> Result<(), Error> {
        let items = match value {
            None => return Ok(()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(Error::new(path, mismatch(value, schema))),
        };
        let item = schema.item().expect("a list has items");
        for (at, value) in items.iter().enumerate() {
            self.one(number, Some(value), item, &path.index(at))?;
        }
        Ok(())
    }

    /// Writes each entry as a message of a key and a value.
    fn map(
        &mut self,
        number: u32,
        value: Option<&'v Value>,
        schema: Schema<'_>,
        map: &Map,
        path: &Path<'_>,
    ) -> Result<(), Error> {
        let Some(Value::Object(object)) = value else { return Err(Error::new(path, mismatch(value, schema))) };
        let ty = schema.other(map.value);
        for (key, value) in object.iter() {
            self.nested(number, |encoder| {
                put_bytes(encoder.out, 1, key.as_bytes());
                if value.is_null() && matches!(ty.shape(), Shape::Bytes) {
                    return Ok(());
                }
                encoder.one(2, Some(value), ty, &path.key(key))
            })?;
        }
        Ok(())
    }

    fn either(
        &mut self,
        value: Option<&'v Value>,
        schema: Schema<'_>,
        either: &Either,
        path: &Path<'_>,
    ) -> Result<(), Error> {
        let (object, other) = (schema.other(either.object), schema.other(either.other));
        match (value, other.shape()) {
            (None | Some(Value::Bool(_)), Shape::Bool) => self.one(either.numbers.1, value, other, path),
            (Some(Value::Object(_)), Shape::Bool) => {
                // A schema for additional properties implies that they are allowed.
                put_number(self.out, either.numbers.1, 1);
                self.one(either.numbers.0, value, object, path)
            }
            (None, _) => Ok(()),
            (Some(Value::Object(_)), _) => self.one(either.numbers.0, value, object, path),
            (Some(Value::Array(_)), Shape::List(_)) => self.list(either.numbers.1, value, other, path),
            (Some(_), _) => Err(Error::new(path, mismatch(value, schema))),
        }
    }

    fn int_or_string(&mut self, value: Option<&Value>, schema: Schema<'_>) -> Result<(), Problem> {
        let (kind, int, string) = match value {
            None => (0, 0, ""),
            Some(Value::Int(it)) => (0, int32(*it)?, ""),
            Some(Value::String(it)) => (1, 0, it.as_str()),
            Some(_) => return Err(mismatch(value, schema)),
        };
        put_number(self.out, 1, kind);
        put_number(self.out, 2, int.into());
        put_bytes(self.out, 3, string.as_bytes());
        Ok(())
    }

    fn nested(&mut self, number: u32, inner: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        put_tag(self.out, number, BYTES);
        self.out.push(0);
        let start = self.out.len();
        inner(self)?;
        close(self.out, start);
        Ok(())
    }
}

fn time(
    out: &mut Vec<u8>,
    value: Option<&Value>,
    schema: Schema<'_>,
    parse: impl FnOnce(&str) -> Result<Time, crate::time::Error>,
) -> Result<(), Problem> {
    let time = match value {
        None => return Ok(()),
        Some(Value::String(text)) => parse(text)?,
        Some(_) => return Err(mismatch(value, schema)),
    };
    let nanos = if matches!(schema.shape(), Shape::MicroTime) { time.nanos() } else { 0 };
    if (time.unix_seconds(), time.nanos()) != (NO_TIME, 0) {
        put_number(out, 1, time.unix_seconds());
        put_number(out, 2, nanos.into());
    }
    Ok(())
}

fn int32(it: i64) -> Result<i32, Problem> {
    i32::try_from(it).map_err(|_| Problem::Range(it))
}

/// Decodes base64; line breaks are skipped, as in Go's decoder.
fn unbase64(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    if text.contains(['\r', '\n']) { BASE64.decode(text.replace(['\r', '\n'], "")) } else { BASE64.decode(text) }
}

fn mismatch(value: Option<&Value>, schema: Schema<'_>) -> Problem {
    Problem::Type { expected: schema.ty().name.to_string(), found: value.map_or("null", Value::kind) }
}
