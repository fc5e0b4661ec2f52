//! Schemas: the description of object types, shared by the built-in types and the types of CRDs.
//!
//! Types refer to each other by index into a [`Types`] arena, since some are recursive. A walk holds a [`Schema`],
//! which is one type and its arena, and is as cheap to copy as a reference.

mod pattern;
pub mod structural;
mod validation;

use std::fmt;

use crate::{Str, Value};

pub use pattern::{Error as PatternError, Pattern};
pub use validation::{
    Format, FormatKind, JsonType, Junctors, ListRules, NestedValidation, NumberRules, ObjectRules, Rules, StringRules,
    Validation,
};

/// An arena of types that refer only to each other.
#[derive(Debug, Default)]
pub struct Types {
    types: Vec<Type>,
    /// The struct of `apiVersion`, `kind` and `metadata`, for embedded resources that do not declare them.
    envelope: Option<Schema<'static>>,
}

/// The index of a type in its [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

/// A type and the arena it belongs to.
#[derive(Clone, Copy)]
pub struct Schema<'a> {
    types: &'a Types,
    ty: &'a Type,
}

#[derive(Clone, Debug)]
pub struct Type {
    /// The Go name, for decoding errors: `v1.Container`, `[]v1.Container`, `map[string]string`. Empty for the types of
    /// a CRD, which have no Go name.
    pub name: Str,
    pub shape: Shape,
    /// Whether `null` is a value of the type instead of absence (CRDs only).
    pub nullable: bool,
    /// Limits on values beyond their shape (CRDs only).
    pub rules: Option<Box<Rules>>,
}

/// The JSON values of a type.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Any JSON. In protobuf its text is field 1 of a message.
    Any,
    Bool,
    Int32,
    Int64,
    /// A JSON number.
    Double,
    String,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A 32-bit integer or a string, such as a port.
    IntOrString,
    /// A resource quantity: `100m`, `1.5Gi`. JSON numbers are accepted and stored as strings.
    Quantity,
    /// A timestamp in seconds.
    Time,
    /// A timestamp in microseconds.
    MicroTime,
    /// Any object, stored unchanged; its `apiVersion` and `kind` determine its type.
    RawExtension,
    /// A field set, the `fieldsV1` of managed fields.
    FieldsV1,
    List(List),
    /// A map with string keys.
    Map(Map),
    /// An object with named fields.
    Struct(Struct),
    /// An object of one type, or a value of another type in its place (`items` of a JSON schema: a schema, or a list of
    /// schemas).
    Either(Either),
}

/// A list type and its merge behavior.
#[derive(Clone, Debug)]
pub struct List {
    pub item: TypeId,
    /// The list type in server-side apply.
    pub kind: ListKind,
    /// The value of a `null` item.
    pub item_default: Option<Value>,
}

/// The list type in server-side apply (`x-kubernetes-list-type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// A single value with a single owner. The default for lists without a list type.
    Atomic,
    /// The items are unique scalars.
    Set,
    /// The items are objects identified by these fields.
    Map(Box<[Str]>),
}

/// A map type and its merge behavior.
#[derive(Clone, Debug)]
pub struct Map {
    pub value: TypeId,
    /// Whether server-side apply treats the map as one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// The value of a `null` entry.
    pub value_default: Option<Value>,
}

/// An object of one type, or a value of another type that is not an object.
#[derive(Clone, Debug)]
pub struct Either {
    /// The type of a value that is an object.
    pub object: TypeId,
    /// The type of any other value: a list or a boolean.
    pub other: TypeId,
    /// The protobuf field numbers of the object and of the other value.
    pub numbers: (u32, u32),
}

/// An object with named fields.
#[derive(Clone, Debug, Default)]
pub struct Struct {
    /// The fields, sorted by JSON name, including those that Go inlines.
    pub fields: Box<[Field]>,
    /// The position of each field in the Go type, which determines its position in JSON. Empty for the types of a CRD,
    /// whose objects are maps in upstream and are written sorted by name.
    pub order: Box<[u16]>,
    /// Whether server-side apply treats the object as one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Whether unknown fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub open: bool,
    /// Whether this is an embedded resource with `apiVersion`, `kind` and `metadata`
    /// (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
    /// The protobuf form, if any.
    pub message: Message,
}

#[derive(Clone, Debug)]
pub struct Field {
    /// The JSON name.
    pub name: Str,
    pub ty: TypeId,
    pub required: bool,
    pub omit: Omit,
    /// Whether absence differs from the zero value (a Go pointer).
    pub pointer: bool,
    /// The schema's default for an absent field. Most defaults of the built-in types are not here: they depend on more
    /// than the field and belong to the kind.
    pub default: Option<Value>,
    pub patch: Patch,
    /// For an inlined field, the Go structs between it and its parent, outermost first: `["VolumeSource"]`. Used only
    /// in decoding errors.
    pub inlined: Box<[Str]>,
}

/// The condition under which Go omits a field from JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Omit {
    /// Always written, a nil list as `null`.
    #[default]
    Never,
    /// `omitempty`: omitted if nil, false, 0, or empty; a non-pointer struct is always written.
    Empty,
    /// `omitzero`: omitted if the zero value, including structs.
    Zero,
}

/// The strategic merge patch behavior of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists are merged instead of replaced.
    pub merge: bool,
    /// Objects are replaced instead of merged.
    pub replace: bool,
    /// A patch may list the fields to keep in `$retainKeys`.
    pub retain_keys: bool,
    /// The field that identifies the items of a merged list; [`None`] for lists of scalars.
    pub merge_key: Option<Str>,
}

/// The protobuf form of a struct.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Sorted by field number.
    pub fields: Box<[(u32, Wire)]>,
}

/// The content of a protobuf field.
#[derive(Clone, Debug)]
pub enum Wire {
    /// The struct's field with this index.
    Field(u16),
    /// The struct's field with this index, in which each list is a separate message with the items in field 1: a named
    /// list type in Go (`v1.Verbs`), or the values of a map of that type (`v1.ExtraValue`).
    Wrapped(u16),
    /// A nested message whose fields are inline in JSON.
    Inline {
        /// Whether the message is omitted if none of its fields is set.
        pointer: bool,
        /// The fields; indexes refer to the same struct.
        message: Message,
    },
}

impl Types {
    pub const fn new() -> Self {
        Self { types: Vec::new(), envelope: None }
    }

    pub fn with_capacity(capacity: usize) -> Self {
        Self { types: Vec::with_capacity(capacity), envelope: None }
    }

    /// Sets the struct of `apiVersion`, `kind` and `metadata` for embedded resources.
    #[must_use]
    pub const fn enveloped(mut self, envelope: Schema<'static>) -> Self {
        self.envelope = Some(envelope);
        self
    }

    pub fn add(&mut self, ty: Type) -> TypeId {
        let id = TypeId::from(self.types.len());
        self.types.push(ty);
        id
    }

    /// Replaces a type, to complete a recursive one.
    pub fn set(&mut self, id: TypeId, ty: Type) {
        self.types[id.0 as usize] = ty;
    }

    /// Returns the type with this ID.
    pub fn schema(&self, id: TypeId) -> Schema<'_> {
        Schema { types: self, ty: &self.types[id.0 as usize] }
    }

    pub const fn len(&self) -> usize {
        self.types.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}

/// Converts an index in the order of insertion.
impl From<usize> for TypeId {
    fn from(at: usize) -> Self {
        Self(u32::try_from(at).expect("a set of types has fewer than 2^32"))
    }
}

/// Returns the index in the order of insertion.
impl From<TypeId> for usize {
    fn from(id: TypeId) -> Self {
        id.0 as Self
    }
}

impl<'a> Schema<'a> {
    pub const fn ty(self) -> &'a Type {
        self.ty
    }

    pub const fn shape(self) -> &'a Shape {
        &self.ty.shape
    }

    pub const fn types(self) -> &'a Types {
        self.types
    }

    /// Returns the ID of the type in its arena.
    pub fn id(self) -> TypeId {
        // A schema always refers to a type inside its arena, so the offset determines the ID.
        let bytes = std::ptr::from_ref(self.ty).addr() - self.types.types.as_ptr().addr();
        TypeId(u32::try_from(bytes / size_of::<Type>()).expect("a set of types has fewer than 2^32"))
    }

    /// Returns another type of the same arena.
    pub fn other(self, id: TypeId) -> Schema<'a> {
        self.types.schema(id)
    }

    /// Returns the field `name` and its type; [`None`] if this is not a struct or lacks the field.
    pub fn field(self, name: &str) -> Option<(&'a Field, Schema<'a>)> {
        let Shape::Struct(Struct { fields, .. }) = self.shape() else { return None };
        let at = fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()?;
        Some((&fields[at], self.other(fields[at].ty)))
    }

    /// Returns the type of the field `name`: `apiVersion`, `kind` or `metadata` of an embedded resource or the root
    /// object. The schema itself only adds rules to these fields.
    pub fn envelope(self, name: &str) -> Option<Schema<'a>> {
        match self.shape() {
            Shape::Struct(Struct { embedded: true, .. }) => self.types.envelope?.field(name).map(|(_, schema)| schema),
            _ => None,
        }
    }

    /// Returns the type of the items, if this is a list.
    pub fn item(self) -> Option<Schema<'a>> {
        match self.shape() {
            Shape::List(list) => Some(self.other(list.item)),
            _ => None,
        }
    }

    /// Returns the type of the value under `key`: of a field, or of a map's values.
    pub fn child(self, key: &str) -> Option<Schema<'a>> {
        match self.shape() {
            Shape::Map(map) => Some(self.other(map.value)),
            _ => self.field(key).map(|(_, schema)| schema),
        }
    }
}

impl Struct {
    /// Finds the field `key` at or after index `start`. Walks over the sorted keys of an object start after the last
    /// field found. Nearly all keys are fields, so comparing for equality, which mostly ends at the length, is faster
    /// than any search.
    pub(crate) fn find(&self, start: usize, key: &str) -> Option<usize> {
        let same = |field: &Field| field.name.len() == key.len() && field.name.as_bytes() == key.as_bytes();
        self.fields[start..].iter().position(same).map(|at| start + at)
    }
}

impl Type {
    /// Returns a type without rules.
    pub fn new(name: impl Into<Str>, shape: Shape) -> Self {
        Self { name: name.into(), shape, nullable: false, rules: None }
    }
}

impl fmt::Debug for Schema<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Schema({})", self.ty.name)
    }
}
