//! What becomes of a tree when upstream decodes it into a Go struct and prints it again.
//!
//! One pass over the tree, in place. Along the way it finds what Go's decoder would refuse, in its words, and the
//! fields that no struct has. `null` is absence; what Go leaves out goes, what Go always prints comes.

mod base64;
mod emptied;
mod error;
mod scalar;
mod zero;

use crate::schema::{Either, Field, List, Map, Omit, Schema, Shape, Struct};
use crate::{Object, Str, Value};

pub use emptied::forget_empty;
pub use error::Error;
use error::{Frame, Step};
pub use zero::{is_zero, zero};

/// How many unknown fields are listed at most; the rest is dropped in silence, as upstream does.
const UNKNOWN_MAX: usize = 100;

/// Makes `value` what upstream would print after decoding it into the type, and gives the paths of the fields it does
/// not know, which are gone from the tree.
///
/// After an error the tree is in no particular state. Of several wrong values the one that upstream reports is chosen,
/// as far as the order of keys, which the tree does not keep, allows.
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
    /// The first value of a wrong type. Go's decoder goes on after it, and an error from a type that decodes itself
    /// (a quantity, a time) later on takes precedence.
    wrong: Option<Error>,
    /// Inside a type that decodes itself upstream does not look for unknown fields.
    quiet: bool,
}

impl Pass {
    /// `value` is not `null`.
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
            // DEVIATION: Go also reads bytes from a list of numbers; nobody writes them so.
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

    /// Notes a key that no field has, and marks its entry for dropping by emptying the key: no field's name is empty.
    fn unknown_key(&mut self, key: &mut Str, shape: &Struct, at: &Frame<'_>) -> bool {
        if shape.open {
            return false;
        }
        if !self.quiet && self.unknown.len() < UNKNOWN_MAX {
            self.unknown.push(at.step(Step::Key(key)).path());
        }
        *key = Str::default();
        true
    }

    /// Whether the field stays.
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
                self.value(item, ty, &at.step(Step::Index(index)))?;
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
                self.value(value, ty, &at.step(Step::Key(key)))?;
            }
        }
        Ok(())
    }

    /// Such a type decodes itself, so whatever is wrong inside it ends the decoding.
    fn either(&mut self, value: &mut Value, either: &Either, schema: Schema<'_>, at: &Frame<'_>) -> Result<(), Error> {
        let other = schema.other(either.other);
        let ty = match (&*value, other.shape()) {
            (Value::Object(_), _) => schema.other(either.object),
            (Value::Array(_), Shape::List(_)) | (Value::Bool(_), Shape::Bool) => other,
            (_, Shape::Bool) => return Err(Error::BooleanOrSchema),
            _ => {
                // Neither, which upstream takes for a field that is there without saying anything.
                *value = Value::Null;
                return Ok(());
            }
        };
        let mut inside = Pass { unknown: Vec::new(), wrong: None, quiet: true };
        inside.value(value, ty, at)?;
        inside.wrong.map_or(Ok(()), Err)
    }

    fn wrong(&mut self, error: Error) {
        self.wrong.get_or_insert(error);
    }
}

/// Puts in what Go prints for fields that are absent, and says how many it were.
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
