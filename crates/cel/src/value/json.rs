//! Conversion between the JSON tree and CEL values, by schema if there is one.

use std::sync::Arc;

use apimachinery::schema::Shape;
use apimachinery::{Object, Schema, Str, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Entries, Key, List, Map, PartialObject, Text, Val};
use crate::eval::{Failure, Meter};
use crate::library::time;
use crate::schema::{StringKind, string_kind};

impl<'a> Val<'a> {
    /// Converts a value of the tree. With a schema, strings that represent times, durations or bytes become values of
    /// these types.
    ///
    /// # Errors
    /// If the tree does not match its schema.
    #[inline]
    pub fn json(value: &'a Value, schema: Option<Schema<'a>>) -> Result<Self, Failure> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(bool) => Self::Bool(*bool),
            Value::Int(int) => match schema.map(Schema::shape) {
                Some(Shape::Double) => Self::Double(*int as f64),
                _ => Self::Int(*int),
            },
            Value::Float(float) => Self::Double(*float),
            Value::String(text) => match schema {
                Some(schema) => return string(text, schema),
                None => Self::str(text),
            },
            Value::Array(items) => Self::List(List::Json(items, schema)),
            Value::Object(object) => Self::Map(Map::Json(object, schema)),
        })
    }

    /// Converts to JSON: times and durations become strings, bytes base64.
    ///
    /// # Errors
    /// If JSON cannot represent the value: a number that is not finite, a map with keys other than strings, a type; or
    /// if the result would be too large, since values can share parts that JSON repeats.
    pub fn to_json(&self) -> Result<Value, Failure> {
        self.write_json(&Meter::new(u64::MAX))
    }

    fn write_json(&self, meter: &Meter<'_>) -> Result<Value, Failure> {
        meter.allocate(size_of::<Value>())?;
        Ok(match self {
            Self::Null | Self::Optional(None) => Value::Null,
            Self::Bool(bool) => Value::Bool(*bool),
            Self::Int(int) => Value::Int(*int),
            Self::Uint(uint) => {
                i64::try_from(*uint).map(Value::Int).map_err(|_| Failure::message("unsigned integer overflow"))?
            }
            Self::Double(double) if double.is_finite() => Value::Float(*double),
            Self::String(text) => Value::String(Str::from(text.as_str())),
            Self::Bytes(bytes) => Value::String(STANDARD.encode(bytes).into()),
            Self::Duration(nanos) => Value::String(time::duration_text(*nanos).into()),
            Self::Timestamp(at) => Value::String(time::timestamp_text(*at).into()),
            Self::List(List::Json(items, _)) => Value::Array(items.to_vec()),
            Self::List(list) => {
                Value::Array(list.iter().map(|item| item?.write_json(meter)).collect::<Result<_, _>>()?)
            }
            Self::Map(Map::Json(object, _)) => Value::Object((*object).clone()),
            Self::Map(Map::Owned(entries)) => {
                let mut object = Object::with_capacity(entries.len());
                for (key, value) in entries.iter() {
                    let Key::String(name) = key else { return Err(unsupported(&key.to_val())) };
                    object.insert(name.as_str(), value.write_json(meter)?);
                }
                Value::Object(object)
            }
            Self::Optional(Some(inner)) => inner.write_json(meter)?,
            Self::PartialObject(built) => built_json(built, meter)?,
            Self::Double(_) | Self::Type(_) | Self::Opaque(_) => return Err(unsupported(self)),
        })
    }

    /// Returns the value without borrows.
    ///
    /// # Errors
    /// If the tree does not match its schema.
    pub fn into_owned(self) -> Result<Val<'static>, Failure> {
        Ok(match self {
            Self::Null => Val::Null,
            Self::Bool(bool) => Val::Bool(bool),
            Self::Int(int) => Val::Int(int),
            Self::Uint(uint) => Val::Uint(uint),
            Self::Double(double) => Val::Double(double),
            Self::String(text) => Val::text(text.as_str()),
            Self::Bytes(bytes) => Val::Bytes(bytes),
            Self::Duration(nanos) => Val::Duration(nanos),
            Self::Timestamp(at) => Val::Timestamp(at),
            Self::List(list) => Val::list(list.iter().map(|item| item?.into_owned()).collect::<Result<_, _>>()?),
            Self::Map(map) => {
                let mut entries = Entries::new();
                for key in map.keys() {
                    let Some(value) = map.get(&key) else { continue };
                    let Some(key) = Key::of(&key.into_owned()?) else { continue };
                    entries.insert(key, value?.into_owned()?);
                }
                Val::map(entries)
            }
            Self::Type(ty) => Val::Type(ty),
            Self::Optional(None) => Val::Optional(None),
            Self::Optional(Some(inner)) => Arc::unwrap_or_clone(inner).into_owned()?.some(),
            Self::PartialObject(built) => {
                let fields = built.fields.iter().map(|(name, value)| Ok((name.clone(), value.clone().into_owned()?)));
                let fields = fields.collect::<Result<_, Failure>>()?;
                Val::PartialObject(Arc::new(PartialObject { name: built.name.clone(), fields }))
            }
            Self::Opaque(opaque) => Val::Opaque(opaque),
        })
    }
}

fn string<'a>(text: &'a Str, schema: Schema<'a>) -> Result<Val<'a>, Failure> {
    let wrong = |what: &str| Failure::message(format!("invalid {what}: {text}"));
    Ok(match string_kind(schema) {
        StringKind::Plain => Val::String(Text::Borrowed(text)),
        StringKind::Bytes => Val::Bytes(STANDARD.decode(text.as_bytes()).map_err(|_| wrong("bytes"))?.into()),
        StringKind::Time => Val::Timestamp(time::parse_timestamp(text).ok_or_else(|| wrong("date-time"))?),
        StringKind::Date => Val::Timestamp(time::parse_date(text).ok_or_else(|| wrong("date"))?),
        StringKind::Duration => Val::Duration(time::parse_duration(text).ok_or_else(|| wrong("duration"))?),
    })
}

/// Converts an object under construction; each nested object must be named by its path.
fn built_json(built: &PartialObject<'_>, meter: &Meter<'_>) -> Result<Value, Failure> {
    let mut object = Object::with_capacity(built.fields.len());
    for (name, value) in &built.fields {
        if let Val::PartialObject(inner) = value
            && &*built.name != "JSONPatch"
        {
            let expected = format!("{}.{name}", built.name);
            if *inner.name != *expected {
                return Err(Failure::message(format!(
                    "unexpected type name {:?}, expected {expected:?}, which matches field name path from root Object type",
                    inner.name
                )));
            }
        }
        if !matches!(value, Val::Optional(None)) {
            object.insert(&**name, value.write_json(meter)?);
        }
    }
    Ok(Value::Object(object))
}

fn unsupported(value: &Val<'_>) -> Failure {
    Failure::message(format!(
        "type conversion error from '{}' to 'google.protobuf.Value'",
        value.type_of().runtime_name()
    ))
}
