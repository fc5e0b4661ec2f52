//! Go conformance: turns a tree into what upstream returns after decoding it into a Go struct and encoding it again.
//!
//! One pass over the tree, in place. The pass finds the values that Go's decoder rejects, with its error messages, and
//! the fields that the struct does not have. `null` is absence. Fields that Go omits are removed, and fields that Go
//! always encodes are added.

mod base64;
mod emptied;
mod error;
mod scalar;
mod zero;

use crate::schema::{Either, Field, List, Map, Omit, Schema, Shape, Struct};
use crate::{Object, Str, Value};

pub use emptied::drop_empty;
pub use error::Error;
use error::{Frame, FrameSegment};
pub use zero::{is_zero, zero};

/// Maximum number of reported unknown fields; the rest is dropped silently, as upstream does.
const UNKNOWN_MAX: usize = 100;

/// Turns `value` into upstream's output after decoding it into the type. Returns the paths of unknown fields, which are
/// removed from the tree.
///
/// After an error the state of the tree is unspecified. If several values are wrong, the error is the one that upstream
/// reports, except where upstream's choice depends on the order of keys, which the tree does not preserve.
pub fn conform(value: &mut Value, schema: Schema<'_>) -> Result<Vec<String>, Error> {
    let mut pass = Pass { unknown: Vec::new(), wrong: None, quiet: false };
    if value.is_null() {
        *value = zero(schema);
    }
    pass.value(value, schema, &Frame::ROOT)?;
    match pass.wrong {
        Some(error) => Err(error),
        None => Ok(pass.unknown),
    }
}

struct Pass {
    unknown: Vec<String>,
    /// The first value of a wrong type. Go's decoder continues after it, and a later error from a type with its own
    /// decoder (a quantity, a time) takes precedence.
    wrong: Option<Error>,
    /// Suppresses unknown fields: upstream does not report them inside a type with its own decoder.
    quiet: bool,
}

impl Pass {
    /// Conforms a value, which must not be `null`.
    fn value(&mut self, value: &mut Value, schema: Schema<'_>, at: &Frame<'_>) -> Result<(), Error> {
        match (schema.shape(), &mut *value) {
            (Shape::Any | Shape::RawExtension | Shape::FieldsV1, _)
            | (Shape::Bool, Value::Bool(_))
            | (Shape::String, Value::String(_))
            | (Shape::Int64, Value::Int(_))
            | (Shape::Double, Value::Int(_) | Value::Float(_)) => {}
            (Shape::Int32, Value::Int(number)) if i32::try_from(*number).is_ok() => {}
            (Shape::Int32 | Shape::Int64, Value::Int(_) | Value::Float(_)) => self.wrong(at.number(value, schema)),
            (Shape::Struct(shape), Value::Object(object)) => self.fields(object, shape, schema, at)?,
            (Shape::List(list), Value::Array(items)) => self.items(items, list, schema, at)?,
            (Shape::Map(map), Value::Object(object)) => self.entries(object, map, schema, at)?,
            (Shape::Either(either), _) => self.either(value, either, schema, at)?,
            (Shape::Bytes, Value::String(text)) => match base64::canonical(text) {
                Ok(None) => {}
                Ok(Some(canonical)) => *text = canonical,
                Err(error) => self.wrong(error),
            },
            (Shape::IntOrString, _) => scalar::int_or_string(value, at)?,
            (Shape::Quantity, _) => scalar::quantity(value)?,
            (Shape::Time, _) => scalar::time(value, at)?,
            (Shape::MicroTime, _) => scalar::micro_time(value, at)?,
            // DEVIATION: Go also decodes bytes from a list of numbers, a form that clients do not use.
            (
                Shape::Bool
                | Shape::String
                | Shape::Int32
                | Shape::Int64
                | Shape::Double
                | Shape::Bytes
                | Shape::List(_)
                | Shape::Map(_)
                | Shape::Struct(_),
                _,
            ) => self.wrong(at.kind(value, schema)),
        }
        Ok(())
    }

    fn fields(
        &mut self,
        object: &mut Object,
        shape: &Struct,
        schema: Schema<'_>,
        path: &Frame<'_>,
    ) -> Result<(), Error> {
        let entries = object.entries_mut();
        let (mut at, mut next) = (0, 0);
        let (mut dropped, mut misplaced) = (false, false);
        while let Some((key, value)) = entries.get_mut(at) {
            let Some(found) = shape.find(next, key) else {
                dropped |= self.unknown_key(key, shape, path);
                misplaced = true;
                at += 1;
                continue;
            };
            let field = &shape.fields[found];
            if !self.field(value, field, schema.other(field.ty), &path.field(field, schema))? {
                *key = Str::default();
                dropped = true;
            }
            at += 1 + insert_absent(entries, at, &shape.fields[next..found], schema);
            next = found + 1;
        }
        insert_absent(entries, at, &shape.fields[next..], schema);
        if dropped {
            entries.retain(|(key, _)| !key.is_empty());
        }
        if misplaced && shape.open {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(())
    }

    /// Records an unknown key, and marks its entry for removal by emptying the key: field names are never empty.
    fn unknown_key(&mut self, key: &mut Str, shape: &Struct, at: &Frame<'_>) -> bool {
        if shape.open {
            return false;
        }
        if !self.quiet && self.unknown.len() < UNKNOWN_MAX {
            self.unknown.push(at.step(FrameSegment::Key(key)).path());
        }
        *key = Str::default();
        true
    }

    /// Returns whether the field is kept.
    fn field(&mut self, value: &mut Value, field: &Field, ty: Schema<'_>, at: &Frame<'_>) -> Result<bool, Error> {
        if value.is_null() {
            return Ok(zero::absent(field, ty).map(|zero| *value = zero).is_some());
        }
        self.value(value, ty, at)?;
        Ok(field.pointer
            || match field.omit {
                Omit::Never => true,
                Omit::Empty => zero::is_go_struct(ty.shape()) || !zero::is_empty(value),
                Omit::Zero => !is_zero(value, ty),
            })
    }

    fn items(&mut self, items: &mut [Value], list: &List, schema: Schema<'_>, at: &Frame<'_>) -> Result<(), Error> {
        let ty = schema.other(list.item);
        for (index, item) in items.iter_mut().enumerate() {
            if item.is_null() {
                *item = zero(ty);
            } else {
                self.value(item, ty, &at.step(FrameSegment::Index(index)))?;
            }
        }
        Ok(())
    }

    fn entries(&mut self, object: &mut Object, map: &Map, schema: Schema<'_>, at: &Frame<'_>) -> Result<(), Error> {
        let ty = schema.other(map.value);
        for (key, value) in object.iter_mut() {
            if value.is_null() {
                *value = zero(ty);
            } else {
                self.value(value, ty, &at.step(FrameSegment::Key(key)))?;
            }
        }
        Ok(())
    }

    /// Conforms a value of one of two types. Such a type has its own decoder, so any error inside it ends the decoding.
    fn either(&mut self, value: &mut Value, either: &Either, schema: Schema<'_>, at: &Frame<'_>) -> Result<(), Error> {
        let other = schema.other(either.other);
        let ty = match (&*value, other.shape()) {
            (Value::Object(_), _) => schema.other(either.object),
            (Value::Array(_), Shape::List(_)) | (Value::Bool(_), Shape::Bool) => other,
            (_, Shape::Bool) => return Err(Error::BooleanOrSchema),
            _ => {
                // Neither type matches; upstream treats the field as present and empty.
                *value = Value::Null;
                return Ok(());
            }
        };
        let mut nested = Pass { unknown: Vec::new(), wrong: None, quiet: true };
        nested.value(value, ty, at)?;
        nested.wrong.map_or(Ok(()), Err)
    }

    fn wrong(&mut self, error: Error) {
        self.wrong.get_or_insert(error);
    }
}

/// Inserts the absent fields that Go always encodes; returns the number of inserted fields.
fn insert_absent(entries: &mut Vec<(Str, Value)>, at: usize, fields: &[Field], schema: Schema<'_>) -> usize {
    let mut inserted = 0;
    for field in fields {
        if let Some(value) = zero::absent(field, schema.other(field.ty)) {
            entries.insert(at + inserted, (field.name.clone(), value));
            inserted += 1;
        }
    }
    inserted
}

#[cfg(test)]
mod tests;
