//! serde serializer that builds a tree.

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::Error;
use crate::{Object, Str, Value};

pub(super) struct TreeSerializer;

/// A list under construction, with the name of its enum variant if any.
pub(super) struct Items {
    items: Vec<Value>,
    variant: Option<&'static str>,
}

/// An object under construction, with the name of its enum variant if any.
pub(super) struct Entries {
    entries: Vec<(Str, Value)>,
    key: Option<Str>,
    variant: Option<&'static str>,
}

macro_rules! integers {
    ($($name:ident: $ty:ty),* $(,)?) => {
        $(fn $name(self, it: $ty) -> Result<Value, Error> {
            Ok(Value::Int(it.into()))
        })*
    };
}

impl Serializer for TreeSerializer {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Entries;
    type SerializeStruct = Entries;
    type SerializeStructVariant = Entries;

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
    }

    fn serialize_u64(self, it: u64) -> Result<Value, Error> {
        Ok(i64::try_from(it).map_or(Value::Float(it as f64), Value::Int))
    }

    fn serialize_bool(self, it: bool) -> Result<Value, Error> {
        Ok(Value::Bool(it))
    }

    fn serialize_f32(self, it: f32) -> Result<Value, Error> {
        self.serialize_f64(it.into())
    }

    /// Turns non-finite numbers, which JSON lacks, into `null`, as serde_json does.
    fn serialize_f64(self, it: f64) -> Result<Value, Error> {
        Ok(if it.is_finite() { Value::Float(it) } else { Value::Null })
    }

    fn serialize_char(self, it: char) -> Result<Value, Error> {
        Ok(Value::String(it.to_string().into()))
    }

    fn serialize_str(self, it: &str) -> Result<Value, Error> {
        Ok(Value::String(it.into()))
    }

    fn serialize_bytes(self, it: &[u8]) -> Result<Value, Error> {
        Ok(Value::Array(it.iter().map(|byte| Value::Int((*byte).into())).collect()))
    }

    fn serialize_none(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_some<T: ?Sized + Serialize>(self, it: &T) -> Result<Value, Error> {
        it.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, Error> {
        Ok(Value::String(variant.into()))
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _: &'static str, it: &T) -> Result<Value, Error> {
        it.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        it: &T,
    ) -> Result<Value, Error> {
        Ok(named(Some(variant), it.serialize(self)?))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Items, Error> {
        Ok(Items { items: Vec::with_capacity(length.unwrap_or(0)), variant: None })
    }

    fn serialize_tuple(self, length: usize) -> Result<Items, Error> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Items, Error> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Items, Error> {
        Ok(Items { items: Vec::with_capacity(length), variant: Some(variant) })
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Entries, Error> {
        Ok(Entries { entries: Vec::with_capacity(length.unwrap_or(0)), key: None, variant: None })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Entries, Error> {
        self.serialize_map(Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Entries, Error> {
        Ok(Entries { entries: Vec::with_capacity(length), key: None, variant: Some(variant) })
    }
}

impl Items {
    fn push<T: ?Sized + Serialize>(&mut self, it: &T) -> Result<(), Error> {
        self.items.push(it.serialize(TreeSerializer)?);
        Ok(())
    }

    fn finish(self) -> Value {
        named(self.variant, Value::Array(self.items))
    }
}

impl Entries {
    fn push<T: ?Sized + Serialize>(&mut self, key: Str, it: &T) -> Result<(), Error> {
        self.entries.push((key, it.serialize(TreeSerializer)?));
        Ok(())
    }

    fn finish(self) -> Value {
        named(self.variant, Value::Object(Object::from_entries(self.entries, |_| {})))
    }
}

macro_rules! items {
    ($($kind:ident::$add:ident),* $(,)?) => {
        $(impl $kind for Items {
            type Ok = Value;
            type Error = Error;

            fn $add<T: ?Sized + Serialize>(&mut self, it: &T) -> Result<(), Error> {
                self.push(it)
            }

            fn end(self) -> Result<Value, Error> {
                Ok(self.finish())
            }
        })*
    };
}

items! {
    SerializeSeq::serialize_element, SerializeTuple::serialize_element, SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

macro_rules! entries {
    ($($kind:ident),* $(,)?) => {
        $(impl $kind for Entries {
            type Ok = Value;
            type Error = Error;

            fn serialize_field<T: ?Sized + Serialize>(&mut self, key: &'static str, it: &T) -> Result<(), Error> {
                self.push(Str::const_new(key), it)
            }

            fn end(self) -> Result<Value, Error> {
                Ok(self.finish())
            }
        })*
    };
}

entries! { SerializeStruct, SerializeStructVariant }

impl SerializeMap for Entries {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), Error> {
        self.key = Some(match key.serialize(TreeSerializer)? {
            Value::String(key) => key,
            Value::Int(key) => key.to_string().into(),
            Value::Bool(key) => key.to_string().into(),
            other => return Err(Error::custom(format_args!("{} as the key of a map", other.kind()))),
        });
        Ok(())
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, it: &T) -> Result<(), Error> {
        let key = self.key.take().ok_or_else(|| Error::custom("a value without a key"))?;
        self.push(key, it)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.finish())
    }
}

/// Wraps a value as `{variant: value}` if there is a variant.
fn named(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(variant) => Value::Object(Object::from_iter([(Str::const_new(variant), value)])),
        None => value,
    }
}
