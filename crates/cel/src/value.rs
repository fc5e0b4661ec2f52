//! CEL runtime values; values of the JSON tree are borrowed, never copied.

mod compare;
mod entries;
mod json;
mod show;

use std::sync::Arc;

use apimachinery::{Object, Schema, Str, Value};

use crate::eval::Failure;
use crate::library::opaque::Opaque;
use crate::library::time::Moment;
use crate::types::Type;

pub(crate) use compare::list_kind;
pub use entries::{Entries, Key};

/// A runtime value.
// The tag has the size of a word: with a one-byte tag, copying a value is split into unaligned accesses that wait for
// the preceding stores, and loops take twice as long.
#[derive(Clone, Debug)]
#[repr(u64)]
pub enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Moment),
    List(List<'a>),
    /// A map, or an object of a schema.
    Map(Map<'a>),
    Type(Arc<Type>),
    /// A value that may be absent.
    Optional(Option<Arc<Val<'a>>>),
    /// An object created by `Object{…}` or `JSONPatch{…}`.
    PartialObject(Arc<PartialObject<'a>>),
    /// A value of a library type.
    Opaque(Opaque),
}

/// A string, borrowed from the tree or the program, or created at runtime.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    Borrowed(&'a str),
    /// Created at runtime.
    Owned(Arc<str>),
    /// Created at runtime and stored inline: most strings fit, and an allocation would cost more than creating them.
    Short(Str),
}

/// Maximum length of an inline string in bytes.
const SHORT_BYTES: usize = size_of::<Str>();

#[derive(Clone, Debug)]
pub enum List<'a> {
    /// A list of the tree, with the schema of the list itself if it has one.
    Json(&'a [Value], Option<Schema<'a>>),
    /// Created at runtime.
    Owned(Arc<Vec<Val<'a>>>),
}

#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// An object of the tree, with its schema if it has one.
    Json(&'a Object, Option<Schema<'a>>),
    /// Created at runtime; sorted, so that iteration is deterministic.
    Owned(Arc<Entries<'a>>),
}

/// An object under construction, named by its path.
#[derive(Clone, Debug)]
pub struct PartialObject<'a> {
    /// `Object`, `Object.spec.selector`, `JSONPatch`.
    pub name: Arc<str>,
    /// The set fields, in source order.
    pub fields: Vec<(Arc<str>, Val<'a>)>,
}

impl<'a> Val<'a> {
    /// Creates an owned string.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::String(Text::made(text.as_ref()))
    }

    /// Creates a borrowed string.
    pub const fn str(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    pub fn list(items: Vec<Val<'a>>) -> Self {
        Self::List(List::Owned(Arc::new(items)))
    }

    pub fn map(entries: Entries<'a>) -> Self {
        Self::Map(Map::Owned(Arc::new(entries)))
    }

    /// Wraps the value into an optional.
    pub fn some(self) -> Self {
        Self::Optional(Some(Arc::new(self)))
    }

    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// Returns the runtime type.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Type(_) => Type::Type(Arc::new(Type::Dyn)),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::PartialObject(built) => Type::PartialObject(built.name.clone()),
            Self::Opaque(opaque) => Type::Opaque(opaque.type_name()),
        }
    }

    /// Returns the result of `size()`: characters, bytes, items or entries; [`None`] for values without a size.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::String(text) => Some(text.chars_count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(list) => Some(list.len()),
            Self::Map(map) => Some(map.len()),
            _ => None,
        }
    }

    /// Whether the value equals the zero value of its type.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(bool) => !bool,
            Self::Int(int) => *int == 0,
            Self::Uint(uint) => *uint == 0,
            Self::Double(double) => *double == 0.0,
            Self::Duration(nanos) => *nanos == 0,
            Self::Timestamp(_) | Self::Type(_) | Self::Opaque(_) => false,
            Self::Optional(inner) => inner.is_none(),
            Self::PartialObject(built) => built.fields.is_empty(),
            Self::String(_) | Self::Bytes(_) | Self::List(_) | Self::Map(_) => self.size() == Some(0),
        }
    }
}

impl Text<'_> {
    /// Creates an owned string, inline if it is short.
    pub fn made(text: &str) -> Self {
        if text.len() <= SHORT_BYTES { Self::Short(Str::from(text)) } else { Self::Owned(Arc::from(text)) }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
            Self::Short(text) => text,
        }
    }

    /// Concatenates two strings.
    pub fn followed_by(&self, other: &str) -> Text<'static> {
        if self.len() + other.len() > SHORT_BYTES {
            return Text::Owned([self.as_str(), other].concat().into());
        }
        let mut both = Str::from(self.as_str());
        both.push_str(other);
        Text::Short(both)
    }

    /// Returns the number of characters.
    pub fn chars_count(&self) -> usize {
        let text = self.as_str();
        if text.is_ascii() { text.len() } else { text.chars().count() }
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Owned(items) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an item; an error if the tree does not match its schema.
    pub fn get(&self, at: usize) -> Option<Result<Val<'a>, Failure>> {
        match self {
            Self::Json(items, schema) => items.get(at).map(|item| Val::json(item, schema.and_then(Schema::item))),
            Self::Owned(items) => items.get(at).map(|item| Ok(item.clone())),
        }
    }

    /// Returns the items in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Val<'a>, Failure>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Returns the items in order as values.
    ///
    /// # Errors
    /// If the tree does not match its schema.
    pub fn to_vec(&self) -> Result<Vec<Val<'a>>, Failure> {
        self.iter().collect()
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Json(object, _) => object.len(),
            Self::Owned(entries) => entries.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a string key; an error if the tree does not match its schema.
    pub fn field(&self, name: &str) -> Option<Result<Val<'a>, Failure>> {
        match self {
            Self::Json(object, schema) => {
                object.get(name).map(|value| Val::json(value, schema.and_then(|schema| schema.child(name))))
            }
            Self::Owned(entries) => entries.get(&Key::borrowed(name)).map(|value| Ok(value.clone())),
        }
    }

    /// Returns the value of a key of any type; numeric keys are found by value, regardless of their type.
    pub fn get(&self, key: &Val<'a>) -> Option<Result<Val<'a>, Failure>> {
        match (self, key) {
            (_, Val::String(text)) => self.field(text),
            (Self::Owned(entries), key) => entries.get(&Key::lookup(key)?).map(|value| Ok(value.clone())),
            (Self::Json(..), _) => None,
        }
    }

    /// Returns the default of an index access for an absent key, if the map has one.
    pub fn otherwise(&self) -> Option<Result<Val<'a>, Failure>> {
        match self {
            Self::Json(..) => None,
            Self::Owned(entries) => entries.otherwise().cloned().map(Ok),
        }
    }

    /// Returns the keys in order.
    pub fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Self::Json(object, _) => {
                let object: &'a Object = object;
                object.keys().map(Val::str).collect()
            }
            Self::Owned(entries) => entries.keys().map(Key::to_val).collect(),
        }
    }
}
