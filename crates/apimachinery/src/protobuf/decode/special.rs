//! Decoding of values whose JSON differs from their message: times, quantities, embedded documents and similar.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::wire::{BYTES, Reader, VARINT, expect};
use super::super::{DEPTH_MAX, Envelope, Error, Kinds, Problem};
use super::At;
use crate::schema::Shape;
use crate::time::Time;
use crate::{Str, Value, json, quantity};

/// Midnight of 1 January of the year 1, Go's zero time.
pub(crate) const NO_TIME: i64 = -62_135_596_800;

/// Decodes text; as in Go's JSON encoder, each byte that is not UTF-8 is replaced.
#[inline]
pub(super) fn text(bytes: &[u8]) -> Str {
    str::from_utf8(bytes).map_or_else(|_| lossy(bytes), Str::from)
}

/// Returns bytes as base64, their JSON form.
pub(super) fn base64(bytes: &[u8]) -> Value {
    Value::String(STANDARD.encode(bytes).into())
}

/// Decodes a value that is a message in protobuf and a scalar in JSON.
pub(super) fn scalar(bytes: &[u8], shape: &Shape) -> Result<Value, Problem> {
    match shape {
        Shape::Time => time(bytes),
        Shape::MicroTime => micro_time(bytes),
        Shape::Quantity => quantity(bytes),
        Shape::IntOrString => int_or_string(bytes),
        _ => unreachable!("all other types are read by field"),
    }
}

/// Decodes an embedded document: JSON, or an object in an envelope.
pub(super) fn embedded(bytes: &[u8], kinds: &Kinds<'_>, at: At<'_>) -> Result<Value, Error> {
    let fail = |problem| Error::new(at.path, problem);
    let raw = single(bytes).map_err(fail)?.unwrap_or_default();
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    if Envelope::is_in(raw) {
        return super::object(raw, kinds, at.path, at.depth);
    }
    let value = json::parse(raw).map_err(|error| fail(error.into()))?;
    if is_deeper(&value, DEPTH_MAX - at.depth) { Err(fail(Problem::Depth)) } else { Ok(value) }
}

/// Returns the bytes of field 1.
fn single(bytes: &[u8]) -> Result<Option<&[u8]>, Problem> {
    let (mut reader, mut found) = (Reader::new(bytes), None);
    while let Some((number, wire)) = reader.field()? {
        if number == 1 {
            expect(BYTES, wire)?;
            found = Some(reader.bytes()?);
        } else {
            reader.skip(wire)?;
        }
    }
    Ok(found)
}

fn time(bytes: &[u8]) -> Result<Value, Problem> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    match timestamp(bytes)? {
        (NO_TIME, _) => Ok(Value::Null),
        (seconds, _) => Ok(Value::String(compact_str::format_compact!("{}", Time::from_unix(seconds, 0)))),
    }
}

fn micro_time(bytes: &[u8]) -> Result<Value, Problem> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (seconds, nanos) = timestamp(bytes)?;
    let micros = nanos / 1000;
    let seconds = seconds.saturating_add(i64::from(micros.div_euclid(1_000_000)));
    let nanos = micros.rem_euclid(1_000_000).unsigned_abs() * 1000;
    if (seconds, nanos) == (NO_TIME, 0) {
        return Ok(Value::Null);
    }
    Ok(Value::String(compact_str::format_compact!("{}", Time::from_unix(seconds, nanos).micro())))
}

fn timestamp(bytes: &[u8]) -> Result<(i64, i32), Problem> {
    let (mut reader, mut seconds, mut nanos) = (Reader::new(bytes), 0, 0);
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => {
                expect(VARINT, wire)?;
                seconds = reader.varint()? as i64;
            }
            2 => {
                expect(VARINT, wire)?;
                nanos = reader.varint()? as i32;
            }
            _ => reader.skip(wire)?,
        }
    }
    Ok((seconds, nanos))
}

fn quantity(bytes: &[u8]) -> Result<Value, Problem> {
    Ok(match single(bytes)? {
        Some(written) => Value::String(quantity::canonical(&text(written))?.into()),
        None => Value::String(Str::const_new("0")),
    })
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Problem> {
    let mut reader = Reader::new(bytes);
    let (mut kind, mut int, mut string) = (0, 0, Str::default());
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => {
                expect(VARINT, wire)?;
                kind = reader.varint()? as i64;
            }
            2 => {
                expect(VARINT, wire)?;
                int = reader.varint()? as i32;
            }
            3 => {
                expect(BYTES, wire)?;
                string = text(reader.bytes()?);
            }
            _ => reader.skip(wire)?,
        }
    }
    match kind {
        0 => Ok(Value::Int(int.into())),
        1 => Ok(Value::String(string)),
        other => Err(Problem::IntOrString(other)),
    }
}

#[cold]
fn lossy(bytes: &[u8]) -> Str {
    let mut out = Str::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| out.push(char::REPLACEMENT_CHARACTER));
    }
    out
}

/// Whether lists and objects are nested more than `limit` levels deep.
fn is_deeper(value: &Value, limit: usize) -> bool {
    match value {
        Value::Array(items) => limit == 0 || items.iter().any(|item| is_deeper(item, limit - 1)),
        Value::Object(object) => limit == 0 || object.values().any(|item| is_deeper(item, limit - 1)),
        _ => false,
    }
}
