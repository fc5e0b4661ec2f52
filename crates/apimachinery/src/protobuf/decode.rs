//! Protobuf decoder: bytes to tree.
//!
//! The fields of a message may be in any order, and an embedded message may be split into several pieces. A first pass
//! puts the data into one slot per field of the struct. A second pass walks the fields, which are sorted by JSON name,
//! and builds the object in order. The slots of all levels share one stack.

mod special;

use super::wire::{BYTES, FIXED64, Reader, VARINT, expect};
use super::{DEPTH_MAX, Envelope, Error, Kinds, Problem};
use crate::schema::{Field, Map, Message, Omit, Shape, Struct, Wire};
use crate::{GroupVersionKind, Object, Path, Schema, Str, Value, json};

pub(super) use special::NO_TIME;

/// Decodes the message of an object without an envelope. Embedded objects must be JSON.
pub fn decode(bytes: &[u8], schema: Schema<'_>) -> Result<Value, Error> {
    decode_with(bytes, schema, &|_| None)
}

/// Decodes the message of an object without an envelope. Embedded objects may be protobuf too.
pub fn decode_with(bytes: &[u8], schema: Schema<'_>, kinds: &Kinds<'_>) -> Result<Value, Error> {
    Decoder { slots: Vec::with_capacity(128), kinds }.message(bytes, schema, At { path: &Path::ROOT, depth: 0 })
}

/// Decodes an object in its envelope that is embedded `depth` levels deep in another one.
pub(super) fn object(bytes: &[u8], kinds: &Kinds<'_>, path: &Path<'_>, depth: usize) -> Result<Value, Error> {
    let fail = |problem| Error::new(path, problem);
    let envelope = Envelope::decode(bytes)?;
    let kind = GroupVersionKind::parse(envelope.api_version, envelope.kind).map_err(|error| fail(error.into()))?;
    let Some(schema) = kinds(&kind) else { return Err(fail(Problem::Kind(kind))) };
    let mut object =
        Decoder { slots: Vec::with_capacity(128), kinds }.message(envelope.raw, schema, At { path, depth })?;
    if let Value::Object(entries) = &mut object {
        for (key, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if schema.field(key).is_some() {
                entries.insert(key, text);
            }
        }
    }
    Ok(object)
}

/// The position of the decoder.
#[derive(Clone, Copy)]
struct At<'p> {
    path: &'p Path<'p>,
    /// The number of enclosing lists and objects.
    depth: usize,
}

struct Decoder<'a, 'k, 's> {
    slots: Vec<Slot<'a>>,
    kinds: &'k Kinds<'s>,
}

/// The data found for a field.
#[derive(Default)]
enum Slot<'a> {
    #[default]
    Absent,
    /// The complete value, or the items of a list so far.
    Value(Value),
    /// The entries of a map so far.
    Entries(Vec<(Str, Value)>),
    /// A message that is not decoded yet.
    Message(&'a [u8]),
    /// The concatenated pieces of a split message.
    Pieces(Vec<u8>),
}

/// A struct whose slots start at `base`.
#[derive(Clone, Copy)]
struct Frame<'s> {
    schema: Schema<'s>,
    fields: &'s [Field],
    base: usize,
}

impl<'a> Decoder<'a, '_, '_> {
    /// Decodes a value that is a message.
    fn message(&mut self, bytes: &'a [u8], schema: Schema<'_>, at: At<'_>) -> Result<Value, Error> {
        match schema.shape() {
            Shape::Struct(shape) => self.structure(bytes, schema, shape, at),
            Shape::Either(either) => self.either(bytes, schema, either, at),
            // A list encoded as a message is a named list type in Go.
            Shape::List(_) => self.wrapped(bytes, schema, at),
            Shape::RawExtension | Shape::FieldsV1 | Shape::Any => special::embedded(bytes, self.kinds, at),
            shape => special::scalar(bytes, shape).map_err(|problem| Error::new(at.path, problem)),
        }
    }

    fn structure(&mut self, bytes: &'a [u8], schema: Schema<'_>, shape: &Struct, at: At<'_>) -> Result<Value, Error> {
        let at = at.deeper()?;
        let frame = Frame { schema, fields: &shape.fields, base: self.slots.len() };
        self.slots.resize_with(frame.base + frame.fields.len(), Slot::default);
        self.scan(bytes, &shape.message, frame, at)?;
        let found = self.slots[frame.base..].iter().filter(|slot| !matches!(slot, Slot::Absent)).count();
        let mut entries = Vec::with_capacity(found);
        for (index, field) in frame.fields.iter().enumerate() {
            let slot = std::mem::take(&mut self.slots[frame.base + index]);
            let ty = schema.other(field.ty);
            let value = match slot {
                Slot::Absent => match zero(field, ty.shape()) {
                    Zero::Nothing => continue,
                    Zero::Value(value) => value,
                    Zero::Message => self.message(&[], ty, at.field(&at.path.field(&field.name)))?,
                },
                Slot::Value(value) => value,
                Slot::Entries(entries) => Value::Object(Object::from_entries(entries, |_| {})),
                Slot::Message(bytes) => self.message(bytes, ty, at.field(&at.path.field(&field.name)))?,
                Slot::Pieces(bytes) => {
                    let mut decoder = Decoder { slots: Vec::new(), kinds: self.kinds };
                    decoder.message(&bytes, ty, at.field(&at.path.field(&field.name)))?
                }
            };
            if !omitted(field, ty.shape(), &value) {
                entries.push((field.name.clone(), value));
            }
        }
        self.slots.truncate(frame.base);
        Ok(Value::Object(Object::from_sorted(entries)))
    }

    /// Puts the fields of a message into the slots of its struct.
    fn scan(&mut self, bytes: &'a [u8], message: &Message, frame: Frame<'_>, at: At<'_>) -> Result<(), Error> {
        let fail = |problem| Error::new(at.path, problem);
        let mut reader = Reader::new(bytes);
        while let Some((number, wire_type)) = reader.field().map_err(fail)? {
            match find(message, number) {
                Some(Wire::Field(index)) => self.field(&mut reader, wire_type, frame, *index, false, at)?,
                Some(Wire::Wrapped(index)) => self.field(&mut reader, wire_type, frame, *index, true, at)?,
                Some(Wire::Inline { message, .. }) => {
                    let inner = expect(BYTES, wire_type).and_then(|()| reader.bytes()).map_err(fail)?;
                    self.scan(inner, message, frame, at)?;
                }
                None => reader.skip(wire_type).map_err(fail)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn field(
        &mut self,
        reader: &mut Reader<'a>,
        wire_type: u8,
        frame: Frame<'_>,
        index: u16,
        wrapped: bool,
        at: At<'_>,
    ) -> Result<(), Error> {
        let field = &frame.fields[usize::from(index)];
        let slot = frame.base + usize::from(index);
        let ty = frame.schema.other(field.ty);
        let path = at.path.field(&field.name);
        let fail = |problem| Error::new(&path, problem);
        match ty.shape() {
            Shape::List(_) if !wrapped => {
                self.list(reader, wire_type, ty.item().expect("a list has items"), slot, at.field(&path))
            }
            Shape::Map(map) => self.entry(reader, wire_type, ty, map, slot, at.field(&path)),
            shape => match plain(reader, wire_type, shape).map_err(fail)? {
                Some(value) => {
                    self.slots[slot] = Slot::Value(value);
                    Ok(())
                }
                None => {
                    expect(BYTES, wire_type).map_err(fail)?;
                    let bytes = reader.bytes().map_err(fail)?;
                    self.slots[slot].join(bytes, shape);
                    Ok(())
                }
            },
        }
    }

    /// Appends one item, or several packed numbers.
    fn list(
        &mut self,
        reader: &mut Reader<'a>,
        wire_type: u8,
        item: Schema<'_>,
        slot: usize,
        at: At<'_>,
    ) -> Result<(), Error> {
        let at = at.deeper()?;
        let length = self.slots[slot].items().len();
        let path = at.path.index(length);
        let fail = |problem| Error::new(&path, problem);
        let packable = match item.shape() {
            Shape::Bool | Shape::Int32 | Shape::Int64 => Some(VARINT),
            Shape::Double => Some(FIXED64),
            _ => None,
        };
        if let (Some(each), BYTES) = (packable, wire_type) {
            let mut packed = Reader::new(reader.bytes().map_err(fail)?);
            while !packed.is_empty() {
                let value = plain(&mut packed, each, item.shape()).map_err(fail)?;
                self.slots[slot].items().extend(value);
            }
            return Ok(());
        }
        let value = match plain(reader, wire_type, item.shape()).map_err(fail)? {
            Some(value) => value,
            None => {
                let bytes = expect(BYTES, wire_type).and_then(|()| reader.bytes()).map_err(fail)?;
                self.message(bytes, item, at.field(&path))?
            }
        };
        self.slots[slot].items().push(value);
        Ok(())
    }

    /// Appends a map entry, which is a message of a key and a value.
    fn entry(
        &mut self,
        reader: &mut Reader<'a>,
        wire_type: u8,
        schema: Schema<'_>,
        map: &Map,
        slot: usize,
        at: At<'_>,
    ) -> Result<(), Error> {
        let at = at.deeper()?;
        let fail = |problem| Error::new(at.path, problem);
        let ty = schema.other(map.value);
        let mut entry = Reader::new(expect(BYTES, wire_type).and_then(|()| reader.bytes()).map_err(fail)?);
        let (mut key, mut scalar, mut message) = (Str::default(), None, None);
        while let Some((number, wire_type)) = entry.field().map_err(fail)? {
            match number {
                1 => {
                    expect(BYTES, wire_type).map_err(fail)?;
                    key = special::text(entry.bytes().map_err(fail)?);
                }
                2 => {
                    scalar = plain(&mut entry, wire_type, ty.shape()).map_err(fail)?;
                    if scalar.is_none() {
                        expect(BYTES, wire_type).map_err(fail)?;
                        message = Some(entry.bytes().map_err(fail)?);
                    }
                }
                _ => entry.skip(wire_type).map_err(fail)?,
            }
        }
        let value = match (scalar, ty.shape()) {
            (Some(value), _) => value,
            (None, Shape::String | Shape::Bytes) => Value::String(Str::const_new("")),
            (None, Shape::Bool) => Value::Bool(false),
            (None, Shape::Int32 | Shape::Int64 | Shape::Double) => Value::Int(0),
            (None, _) => self.message(message.unwrap_or_default(), ty, at.field(&at.path.key(&key)))?,
        };
        self.slots[slot].entries().push((key, value));
        Ok(())
    }

    /// Decodes a named list type of Go: a message with the items in field 1.
    fn wrapped(&mut self, bytes: &'a [u8], schema: Schema<'_>, at: At<'_>) -> Result<Value, Error> {
        let fail = |problem| Error::new(at.path, problem);
        let item = schema.item().expect("only lists are wrapped");
        let slot = self.slots.len();
        self.slots.push(Slot::Value(Value::Array(Vec::new())));
        let mut reader = Reader::new(bytes);
        while let Some((number, wire_type)) = reader.field().map_err(fail)? {
            match number {
                1 => self.list(&mut reader, wire_type, item, slot, at)?,
                _ => reader.skip(wire_type).map_err(fail)?,
            }
        }
        Ok(Value::Array(std::mem::take(self.slots.pop().expect("the slot pushed above").items())))
    }

    /// Decodes a value of one of two types. If both values are present, returns the one that Go prints.
    fn either(
        &mut self,
        bytes: &'a [u8],
        schema: Schema<'_>,
        either: &crate::schema::Either,
        at: At<'_>,
    ) -> Result<Value, Error> {
        let fail = |problem| Error::new(at.path, problem);
        let other = schema.other(either.other);
        let slot = self.slots.len();
        self.slots.extend([Slot::Absent, Slot::Absent]);
        let mut reader = Reader::new(bytes);
        while let Some((number, wire_type)) = reader.field().map_err(fail)? {
            if number == either.numbers.0 {
                let bytes = expect(BYTES, wire_type).and_then(|()| reader.bytes()).map_err(fail)?;
                self.slots[slot].join(bytes, schema.other(either.object).shape());
            } else if number != either.numbers.1 {
                reader.skip(wire_type).map_err(fail)?;
            } else if let Some(item) = other.item() {
                self.list(&mut reader, wire_type, item, slot + 1, at)?;
            } else {
                let value = plain(&mut reader, wire_type, other.shape()).map_err(fail)?;
                self.slots[slot + 1] = value.map_or(Slot::Absent, Slot::Value);
            }
        }
        let (list, object) = (self.slots.pop(), self.slots.pop().unwrap_or_default());
        match (object, list) {
            // If both are present, Go prints the list rather than the object, and the object rather than the boolean.
            (_, Some(Slot::Value(list @ Value::Array(_)))) => Ok(list),
            (Slot::Message(bytes), _) => self.message(bytes, schema.other(either.object), at),
            (Slot::Pieces(bytes), _) => {
                Decoder { slots: Vec::new(), kinds: self.kinds }.message(&bytes, schema.other(either.object), at)
            }
            (_, Some(Slot::Value(value))) => Ok(value),
            _ if matches!(other.shape(), Shape::Bool) => Ok(Value::Bool(false)),
            _ => Ok(Value::Null),
        }
    }
}

impl<'a> Slot<'a> {
    /// Adds a message, or another piece of one.
    fn join(&mut self, bytes: &'a [u8], shape: &Shape) {
        *self = match std::mem::take(self) {
            Self::Message(first) if !matches!(shape, Shape::Time | Shape::MicroTime) => {
                Self::Pieces([first, bytes].concat())
            }
            Self::Pieces(mut pieces) => {
                pieces.extend_from_slice(bytes);
                Self::Pieces(pieces)
            }
            _ => Self::Message(bytes),
        };
    }

    fn items(&mut self) -> &mut Vec<Value> {
        if !matches!(self, Self::Value(Value::Array(_))) {
            *self = Self::Value(Value::Array(Vec::new()));
        }
        let Self::Value(Value::Array(items)) = self else { unreachable!("made above") };
        items
    }

    fn entries(&mut self) -> &mut Vec<(Str, Value)> {
        if !matches!(self, Self::Entries(_)) {
            *self = Self::Entries(Vec::with_capacity(4));
        }
        let Self::Entries(entries) = self else { unreachable!("made above") };
        entries
    }
}

impl At<'_> {
    /// Descends one level; fails at [`DEPTH_MAX`].
    fn deeper(self) -> Result<Self, Error> {
        if self.depth == DEPTH_MAX {
            return Err(Error::new(self.path, Problem::Depth));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    const fn field<'p>(self, path: &'p Path<'p>) -> At<'p> {
        At { path, depth: self.depth }
    }
}

/// Finds a field by number. Numbers are mostly 1, 2, 3 …, so the number predicts the index.
#[inline]
fn find(message: &Message, number: u32) -> Option<&Wire> {
    let guess = message.fields.get(number as usize - 1);
    match guess {
        Some((found, wire)) if *found == number => Some(wire),
        _ => {
            let at = message.fields.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            Some(&message.fields[at].1)
        }
    }
}

/// Decodes a value that is not a message; [`None`] if the type is a message.
#[inline]
fn plain(reader: &mut Reader<'_>, wire_type: u8, shape: &Shape) -> Result<Option<Value>, Problem> {
    Ok(Some(match shape {
        Shape::String => {
            expect(BYTES, wire_type)?;
            Value::String(special::text(reader.bytes()?))
        }
        Shape::Bytes => {
            expect(BYTES, wire_type)?;
            special::base64(reader.bytes()?)
        }
        Shape::Bool => {
            expect(VARINT, wire_type)?;
            Value::Bool(reader.varint()? != 0)
        }
        Shape::Int32 => {
            expect(VARINT, wire_type)?;
            Value::Int(i64::from(reader.varint()? as i32))
        }
        Shape::Int64 => {
            expect(VARINT, wire_type)?;
            Value::Int(reader.varint()? as i64)
        }
        Shape::Double => {
            expect(FIXED64, wire_type)?;
            json::number(f64::from_bits(reader.fixed64()?)).ok_or(Problem::NotFinite)?
        }
        _ => return Ok(None),
    }))
}

enum Zero {
    Nothing,
    Value(Value),
    /// The zero value of an empty message.
    Message,
}

/// Returns Go's output for an absent field.
fn zero(field: &Field, shape: &Shape) -> Zero {
    if field.pointer {
        return if field.omit == Omit::Never { Zero::Value(Value::Null) } else { Zero::Nothing };
    }
    let value = match shape {
        Shape::Bool => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Double => Value::Int(0),
        Shape::String => Value::String(Str::const_new("")),
        Shape::Bytes | Shape::List(_) | Shape::Map(_) => Value::Null,
        _ => return Zero::Message,
    };
    if field.omit == Omit::Never { Zero::Value(value) } else { Zero::Nothing }
}

/// Whether Go omits this value of a field.
fn omitted(field: &Field, shape: &Shape, value: &Value) -> bool {
    match field.omit {
        _ if field.pointer => false,
        Omit::Never => false,
        // `omitempty` never omits a Go struct, regardless of its JSON form.
        Omit::Empty => {
            let scalar = matches!(shape, Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Double | Shape::String);
            (scalar || matches!(shape, Shape::Bytes | Shape::List(_) | Shape::Map(_))) && is_empty(value)
        }
        Omit::Zero => is_empty(value),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(it) => !it,
        Value::Int(it) => *it == 0,
        Value::Float(it) => *it == 0.0,
        Value::String(it) => it.is_empty(),
        Value::Array(it) => it.is_empty(),
        Value::Object(it) => it.is_empty(),
    }
}
