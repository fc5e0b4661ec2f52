//! Values while an expression runs: those of the JSON tree are borrowed from it, never copied.

mod compare;
mod entries;
mod json;
mod show;

use std::sync::Arc;

use machinery::{Object, Schema, Str, Value};

use crate::eval::Failure;
use crate::library::opaque::Opaque;
use crate::library::time::Moment;
use crate::types::Type;

pub(crate) use compare::list_kind;
pub use entries::{Entries, Key};

/// A value of the language.
// The tag is a whole word: with a byte, copying a value is torn into unaligned pieces, each of which waits for the store
// before it, and loops take twice the time.
#[derive(Clone, Debug)]
#[repr(u64)]
pub enum Val<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// A string.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A point in time.
    Timestamp(Moment),
    /// A list.
    List(List<'a>),
    /// A map, or an object of a schema.
    Map(Map<'a>),
    /// A type.
    Type(Arc<Type>),
    /// A value that may be absent.
    Optional(Option<Arc<Val<'a>>>),
    /// An object made by `Object{…}` or `JSONPatch{…}`.
    Built(Arc<Built<'a>>),
    /// A value of a library's own type.
    Opaque(Opaque),
}

/// A string, borrowed from the tree or the program, or made while running.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Lives elsewhere.
    Borrowed(&'a str),
    /// Made while running.
    Owned(Arc<str>),
    /// Made while running, and so short that it fits in here: most are, and allocating them would cost more than making them.
    Short(Str),
}

/// How long a string may be that fits into a value.
const SHORT_BYTES: usize = size_of::<Str>();

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// A list of the tree, with the schema of the list itself if it has one.
    Json(&'a [Value], Option<Schema<'a>>),
    /// Made while running.
    Owned(Arc<Vec<Val<'a>>>),
}

/// A map.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// An object of the tree, with its schema if it has one.
    Json(&'a Object, Option<Schema<'a>>),
    /// Made while running; sorted, so that iteration is deterministic.
    Owned(Arc<Entries<'a>>),
}

/// An object under construction, named by where it will stand.
#[derive(Clone, Debug)]
pub struct Built<'a> {
    /// `Object`, `Object.spec.selector`, `JSONPatch`.
    pub name: Arc<str>,
    /// The fields that were set, in the order they were written.
    pub fields: Vec<(Arc<str>, Val<'a>)>,
}

impl<'a> Val<'a> {
    /// A string made while running.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::String(Text::made(text.as_ref()))
    }

    /// A borrowed string.
    pub const fn str(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// A list made while running.
    pub fn list(items: Vec<Val<'a>>) -> Self {
        Self::List(List::Owned(Arc::new(items)))
    }

    /// A map made while running.
    pub fn map(entries: Entries<'a>) -> Self {
        Self::Map(Map::Owned(Arc::new(entries)))
    }

    /// An optional that has this value.
    pub fn some(self) -> Self {
        Self::Optional(Some(Arc::new(self)))
    }

    /// The boolean, if it is one.
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// Its type as far as a value knows it.
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
            Self::Built(built) => Type::Built(built.name.clone()),
            Self::Opaque(opaque) => Type::Opaque(opaque.type_name()),
        }
    }

    /// What `size()` gives: characters, bytes, items or entries; none for what has no size.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::String(text) => Some(text.chars_count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(list) => Some(list.len()),
            Self::Map(map) => Some(map.len()),
            _ => None,
        }
    }

    /// Whether the value is what an absent field of its type would read as.
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
            Self::Built(built) => built.fields.is_empty(),
            Self::String(_) | Self::Bytes(_) | Self::List(_) | Self::Map(_) => self.size() == Some(0),
        }
    }
}

impl Text<'_> {
    /// A string made while running.
    pub fn made(text: &str) -> Self {
        if text.len() <= SHORT_BYTES { Self::Short(Str::from(text)) } else { Self::Owned(Arc::from(text)) }
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
            Self::Short(text) => text,
        }
    }

    /// This one and another behind it.
    pub fn followed_by(&self, other: &str) -> Text<'static> {
        if self.len() + other.len() > SHORT_BYTES {
            return Text::Owned([self.as_str(), other].concat().into());
        }
        let mut both = Str::from(self.as_str());
        both.push_str(other);
        Text::Short(both)
    }

    /// How many characters there are.
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
    /// How many items there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Owned(items) => items.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One item; an error if the tree does not hold what its schema says.
    pub fn get(&self, at: usize) -> Option<Result<Val<'a>, Failure>> {
        match self {
            Self::Json(items, schema) => items.get(at).map(|item| Val::json(item, schema.and_then(Schema::item))),
            Self::Owned(items) => items.get(at).map(|item| Ok(item.clone())),
        }
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Val<'a>, Failure>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// The items in order, made values.
    ///
    /// # Errors
    /// If the tree does not hold what its schema says.
    pub fn to_vec(&self) -> Result<Vec<Val<'a>>, Failure> {
        self.iter().collect()
    }
}

impl<'a> Map<'a> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(object, _) => object.len(),
            Self::Owned(entries) => entries.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value under a string key; an error if the tree does not hold what its schema says.
    pub fn field(&self, name: &str) -> Option<Result<Val<'a>, Failure>> {
        match self {
            Self::Json(object, schema) => {
                object.get(name).map(|value| Val::json(value, schema.and_then(|schema| schema.child(name))))
            }
            Self::Owned(entries) => entries.get(&Key::borrowed(name)).map(|value| Ok(value.clone())),
        }
    }

    /// The value under a key of any type; numbers are found whatever their type.
    pub fn get(&self, key: &Val<'a>) -> Option<Result<Val<'a>, Failure>> {
        match (self, key) {
            (_, Val::String(text)) => self.field(text),
            (Self::Owned(entries), key) => entries.get(&Key::lookup(key)?).map(|value| Ok(value.clone())),
            (Self::Json(..), _) => None,
        }
    }

    /// What an index finds where there is no entry, if the map says so.
    pub fn otherwise(&self) -> Option<Result<Val<'a>, Failure>> {
        match self {
            Self::Json(..) => None,
            Self::Owned(entries) => entries.otherwise().cloned().map(Ok),
        }
    }

    /// The keys in order.
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
