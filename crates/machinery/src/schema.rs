//! What a type of object looks like: one description for the built-in types and for those a CRD makes at run time.
//!
//! Types refer to each other by index into a [`Types`] arena, since some are recursive. A walk holds a [`Schema`],
//! which is one type and the arena it lives in, and is as cheap to pass around as a reference.

mod pattern;
mod rules;
pub mod structural;

use std::fmt;

use crate::{Str, Value};

pub use pattern::{Error as PatternError, Pattern};
pub use rules::{
    Format, FormatKind, JsonType, Junctors, ListRules, Nested, NumberRules, ObjectRules, Rules, StringRules, Validation,
};

/// A closed set of types.
#[derive(Debug, Default)]
pub struct Types {
    types: Vec<Type>,
    /// What every object has: a struct of `apiVersion`, `kind` and `metadata`, for embedded resources that do not say.
    envelope: Option<Schema<'static>>,
}

/// The number of a type in its [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

/// One type, together with the set it belongs to.
#[derive(Clone, Copy)]
pub struct Schema<'a> {
    types: &'a Types,
    ty: &'a Type,
}

/// One type.
#[derive(Clone, Debug)]
pub struct Type {
    /// What Go calls it, for the errors users know: `v1.Container`, `[]v1.Container`, `map[string]string`. Empty for
    /// the types of a CRD, which have no Go name.
    pub name: Str,
    /// Which values it has.
    pub shape: Shape,
    /// Whether `null` is one of its values rather than the absence of one (CRDs only).
    pub nullable: bool,
    /// Limits on its values beyond their shape (CRDs only).
    pub rules: Option<Box<Rules>>,
}

/// Which JSON values a type has.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Any JSON at all. Protobuf has its text in a message, under number 1.
    Any,
    /// `true` or `false`.
    Bool,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A number.
    Double,
    /// A string.
    String,
    /// Bytes, base64 in JSON.
    Bytes,
    /// An integer of 32 bits or a string, such as a port.
    IntOrString,
    /// A resource quantity: `100m`, `1.5Gi`. JSON may give a number; it is kept as a string.
    Quantity,
    /// A point in time to the second.
    Time,
    /// A point in time to the microsecond.
    MicroTime,
    /// Any object, kept as it came: its own `apiVersion` and `kind` say what it is.
    RawExtension,
    /// A set of field paths, the `fieldsV1` of managed fields.
    FieldsV1,
    /// A list.
    List(List),
    /// A map from strings.
    Map(Map),
    /// An object with named fields.
    Struct(Struct),
    /// An object of one type, or something else in its place (`items` of a JSON schema: a schema, or a list of them).
    Either(Either),
}

/// A list and how two of them are merged.
#[derive(Clone, Debug)]
pub struct List {
    /// The type of its items.
    pub item: TypeId,
    /// How server-side apply sees it.
    pub kind: ListKind,
    /// What an absent (`null`) item stands for.
    pub item_default: Option<Value>,
}

/// How server-side apply sees a list (`x-kubernetes-list-type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// One value: whoever sets it owns all of it. Also what a list is that does not say.
    Atomic,
    /// Items are scalars, each at most once.
    Set,
    /// Items are objects told apart by these fields.
    Map(Box<[Str]>),
}

/// A map and how two of them are merged.
#[derive(Clone, Debug)]
pub struct Map {
    /// The type of its values.
    pub value: TypeId,
    /// Whether server-side apply sees it as one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// What an absent (`null`) value stands for.
    pub value_default: Option<Value>,
}

/// An object of one type, or a value of another type that is no object.
#[derive(Clone, Debug)]
pub struct Either {
    /// The type of a value that is an object.
    pub object: TypeId,
    /// The type of any other value: a list or a boolean.
    pub other: TypeId,
    /// The numbers in protobuf of the object and of the other.
    pub numbers: (u32, u32),
}

/// An object with named fields.
#[derive(Clone, Debug, Default)]
pub struct Struct {
    /// Its fields, sorted by JSON name; what Go inlines is among them.
    pub fields: Box<[Field]>,
    /// The position of each field in the Go type, which is its position in JSON. Empty for the types of a CRD, whose
    /// objects are maps to upstream and are written sorted by name.
    pub order: Box<[u16]>,
    /// Whether server-side apply sees it as one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Whether fields it does not name are kept (`x-kubernetes-preserve-unknown-fields`).
    pub open: bool,
    /// Whether it is a whole object with its own `apiVersion`, `kind` and `metadata` (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
    /// Its form in protobuf, if it has one.
    pub message: Message,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its JSON name.
    pub name: Str,
    /// Its type.
    pub ty: TypeId,
    /// Whether the schema says it must be there.
    pub required: bool,
    /// When Go leaves it out of JSON.
    pub omit: Omit,
    /// Whether absence differs from the zero value (a Go pointer).
    pub pointer: bool,
    /// The value that the schema gives it when it is absent. Most of the built-in types' defaults are not here: they
    /// depend on more than the field and belong to the kind.
    pub default: Option<Value>,
    /// How a strategic merge patch treats it.
    pub patch: Patch,
    /// The Go structs it reaches its parent through, outermost first, if it is inlined: `["VolumeSource"]`.
    /// Only decoding errors show them.
    pub inlined: Box<[Str]>,
}

/// When Go leaves a field out of JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Omit {
    /// Always written, a nil list as `null`.
    #[default]
    Never,
    /// Not written if nil, false, 0, or empty; a struct that is no pointer is always written (`omitempty`).
    Empty,
    /// Not written if the zero value, structs too (`omitzero`).
    Zero,
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists are merged rather than replaced.
    pub merge: bool,
    /// Objects are replaced rather than merged.
    pub replace: bool,
    /// A patch may say with `$retainKeys` which fields stay.
    pub retain_keys: bool,
    /// The field that tells items of a merged list apart; none for lists of scalars.
    pub merge_key: Option<Str>,
}

/// The protobuf form of a struct: its fields by number, ascending.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Sorted by number.
    pub fields: Box<[(u32, Wire)]>,
}

/// What stands under a field number.
#[derive(Clone, Debug)]
pub enum Wire {
    /// The struct's field with this index.
    Field(u16),
    /// The same, but each list in it is a message of its own with the items under number 1: a list that has a name in
    /// Go (`v1.Verbs`), or the values of a map that have one (`v1.ExtraValue`).
    Wrapped(u16),
    /// A nested message whose fields JSON shows inline. `pointer`: left out when none of them is set.
    Inline {
        /// Whether it is left out when none of its fields is set.
        pointer: bool,
        /// Its fields, which point into the same struct.
        message: Message,
    },
}

impl Types {
    /// No types yet.
    pub const fn new() -> Self {
        Self { types: Vec::new(), envelope: None }
    }

    /// No types yet, room for `capacity`.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { types: Vec::with_capacity(capacity), envelope: None }
    }

    /// The same types, whose embedded resources have what this struct has: `apiVersion`, `kind` and `metadata`.
    #[must_use]
    pub const fn enveloped(mut self, envelope: Schema<'static>) -> Self {
        self.envelope = Some(envelope);
        self
    }

    /// Adds a type.
    pub fn add(&mut self, ty: Type) -> TypeId {
        let id = TypeId::from(self.types.len());
        self.types.push(ty);
        id
    }

    /// Replaces a type, to tie the knot of a recursive one.
    pub fn set(&mut self, id: TypeId, ty: Type) {
        self.types[id.0 as usize] = ty;
    }

    /// The type with this number, ready to walk.
    pub fn schema(&self, id: TypeId) -> Schema<'_> {
        Schema { types: self, ty: &self.types[id.0 as usize] }
    }

    /// How many types there are.
    pub const fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is no type.
    pub const fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}

/// The type that was added after `at` others.
impl From<usize> for TypeId {
    fn from(at: usize) -> Self {
        Self(u32::try_from(at).expect("a set of types has fewer than 2^32"))
    }
}

/// How many types were added before.
impl From<TypeId> for usize {
    fn from(id: TypeId) -> Self {
        id.0 as Self
    }
}

impl<'a> Schema<'a> {
    /// The type itself.
    pub const fn ty(self) -> &'a Type {
        self.ty
    }

    /// Which values it has.
    pub const fn shape(self) -> &'a Shape {
        &self.ty.shape
    }

    /// The set it belongs to.
    pub const fn types(self) -> &'a Types {
        self.types
    }

    /// Its number in its set.
    pub fn id(self) -> TypeId {
        // A schema is only made of a type that lies in its set, so its place is its number.
        let bytes = std::ptr::from_ref(self.ty).addr() - self.types.types.as_ptr().addr();
        TypeId(u32::try_from(bytes / size_of::<Type>()).expect("a set of types has fewer than 2^32"))
    }

    /// Another type of the same set.
    pub fn other(self, id: TypeId) -> Schema<'a> {
        self.types.schema(id)
    }

    /// The field `name` and its type, if this is a struct that has it.
    pub fn field(self, name: &str) -> Option<(&'a Field, Schema<'a>)> {
        let Shape::Struct(Struct { fields, .. }) = self.shape() else { return None };
        let at = fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()?;
        Some((&fields[at], self.other(fields[at].ty)))
    }

    /// The type of what every object has under `name`, if this is an embedded resource (the whole object is one): what
    /// its own schema says of that is no type, only further rules.
    pub fn envelope(self, name: &str) -> Option<Schema<'a>> {
        match self.shape() {
            Shape::Struct(Struct { embedded: true, .. }) => self.types.envelope?.field(name).map(|(_, schema)| schema),
            _ => None,
        }
    }

    /// The type of the items, if this is a list.
    pub fn item(self) -> Option<Schema<'a>> {
        match self.shape() {
            Shape::List(list) => Some(self.other(list.item)),
            _ => None,
        }
    }

    /// The type under `key`: of the field, or of a map's values.
    pub fn child(self, key: &str) -> Option<Schema<'a>> {
        match self.shape() {
            Shape::Map(map) => Some(self.other(map.value)),
            _ => self.field(key).map(|(_, schema)| schema),
        }
    }
}

impl Struct {
    /// Where the field `key` is among those from `start` on. Walks that go along the sorted keys of an object start
    /// after the last field they found: nearly all keys are fields, so that comparing for equality alone, which
    /// mostly ends at the length, is faster than any search.
    pub(crate) fn find(&self, start: usize, key: &str) -> Option<usize> {
        let same = |field: &Field| field.name.len() == key.len() && field.name.as_bytes() == key.as_bytes();
        self.fields[start..].iter().position(same).map(|at| start + at)
    }
}

impl Type {
    /// A type with a name and a shape, and no rules.
    pub fn new(name: impl Into<Str>, shape: Shape) -> Self {
        Self { name: name.into(), shape, nullable: false, rules: None }
    }
}

impl fmt::Debug for Schema<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Schema({})", self.ty.name)
    }
}
