//! Values during the execution of a template, with the Go types that messages and `printf` show.

use std::borrow::Cow;

use apimachinery::{Object, Value};

/// A value, and whether Go holds it in an interface: an entry of a map or list is, the result of a pipe is not.
#[derive(Clone, Debug)]
pub(super) struct Datum<'a> {
    pub kind: Kind<'a>,
    pub boxed: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Kind<'a> {
    /// No value at all, such as a missing key.
    Absent,
    /// An interface without a value: `null`.
    Nil,
    Bool(bool),
    /// A number of the template, of type `int`.
    Int(i64),
    /// A number of the object, of type `int64`.
    Int64(i64),
    Byte(u8),
    Float(f64),
    Text(Cow<'a, str>),
    List(&'a [Value]),
    Map(&'a Object),
}

impl<'a> Datum<'a> {
    pub(super) const ABSENT: Self = Self { kind: Kind::Absent, boxed: false };
    pub(super) const NIL: Self = Self { kind: Kind::Nil, boxed: true };

    pub(super) const fn new(kind: Kind<'a>) -> Self {
        Self { kind, boxed: false }
    }

    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::new(Kind::Text(text.into()))
    }

    /// Returns an entry of a map or list.
    pub(super) fn of(value: &'a Value) -> Self {
        let kind = match value {
            Value::Null => Kind::Nil,
            Value::Bool(bool) => Kind::Bool(*bool),
            Value::Int(int) => Kind::Int64(*int),
            Value::Float(float) => Kind::Float(*float),
            Value::String(text) => Kind::Text(Cow::Borrowed(text.as_str())),
            Value::Array(items) => Kind::List(items),
            Value::Object(object) => Kind::Map(object),
        };
        Self { kind, boxed: true }
    }

    /// Takes the value out of its interface.
    #[must_use]
    pub(super) fn unboxed(self) -> Self {
        match self.kind {
            Kind::Nil => Self::ABSENT,
            kind => Self::new(kind),
        }
    }

    pub(super) const fn is_absent(&self) -> bool {
        matches!(self.kind, Kind::Absent)
    }

    /// Whether there is no value, in an interface or without.
    pub(super) const fn is_nil(&self) -> bool {
        matches!(self.kind, Kind::Absent | Kind::Nil)
    }

    /// Whether the value is not the zero of its type.
    pub(super) fn is_true(&self) -> bool {
        match &self.kind {
            Kind::Absent | Kind::Nil => false,
            Kind::Bool(bool) => *bool,
            Kind::Int(int) | Kind::Int64(int) => *int != 0,
            Kind::Byte(byte) => *byte != 0,
            Kind::Float(float) => *float != 0.0,
            Kind::Text(text) => !text.is_empty(),
            Kind::List(items) => !items.is_empty(),
            Kind::Map(object) => !object.is_empty(),
        }
    }

    /// Returns the integer of an integer type.
    pub(super) const fn as_int(&self) -> Option<i64> {
        match self.kind {
            Kind::Int(int) | Kind::Int64(int) => Some(int),
            Kind::Byte(byte) => Some(byte as i64),
            _ => None,
        }
    }

    /// Returns the name of the type as Go sees it, which may be the interface.
    pub(super) const fn static_type(&self) -> &'static str {
        if self.boxed { "interface {}" } else { self.type_name() }
    }

    /// Returns the name of the value's own type.
    pub(super) const fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Absent | Kind::Nil => "<nil>",
            Kind::Bool(_) => "bool",
            Kind::Int(_) => "int",
            Kind::Int64(_) => "int64",
            Kind::Byte(_) => "uint8",
            Kind::Float(_) => "float64",
            Kind::Text(_) => "string",
            Kind::List(_) => "[]interface {}",
            Kind::Map(_) => "map[string]interface {}",
        }
    }
}
