//! Server-side apply's view of a typed value: a leaf, a map of children, or a list of keyed items.

use std::cmp::Ordering;

use super::path::{Element, order, write_key};
use crate::schema::{Field, List, ListKind, Shape, Struct};
use crate::{Schema, Str, Value, go};

/// The type at a node of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node<'a> {
    /// A type with a schema. `open`: the type or an ancestor preserves unknown fields.
    Typed { schema: Schema<'a>, open: bool },
    /// A type deduced from the value: maps have children, lists are leaves.
    Deduced,
    /// A leaf for any value.
    Untyped,
}

/// The kind of a node, given its value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Atom<'a> {
    Scalar(Scalar),
    List(Items<'a>),
    /// A map, or an object with named fields.
    Map(Fields<'a>),
}

/// The scalar type of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    Any,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a> {
    pub(super) item: Node<'a>,
    kind: ItemsKind<'a>,
}

#[derive(Clone, Copy, Debug)]
enum ItemsKind<'a> {
    Atomic,
    Set,
    Keyed(&'a [Str]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    pub(super) atomic: bool,
    named: Option<Schema<'a>>,
    other: Option<Node<'a>>,
    open: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Child<'a> {
    pub(super) node: Node<'a>,
    /// Whether the child is a field declared by the type, as opposed to a map key.
    pub(super) named: bool,
}

impl<'a> Node<'a> {
    pub(super) const fn root(schema: Schema<'a>) -> Self {
        Self::Typed { schema, open: false }
    }

    /// Returns the kind of this node. `value` matters only for types that allow several kinds of values; there `null`
    /// counts as a map.
    pub(super) fn atom(self, value: &Value) -> Atom<'a> {
        match self {
            Self::Typed { schema, open } => typed_atom(schema, open, value),
            Self::Deduced => match value {
                Value::Object(_) | Value::Null => Atom::Map(Fields::deduced()),
                Value::Array(_) => Atom::List(Items::LEAF),
                _ => Atom::Scalar(Scalar::Any),
            },
            Self::Untyped => match value {
                Value::Object(_) | Value::Null => {
                    Atom::Map(Fields { atomic: true, other: Some(Node::Untyped), ..Fields::deduced() })
                }
                Value::Array(_) => Atom::List(Items::LEAF),
                _ => Atom::Scalar(Scalar::Any),
            },
        }
    }

    /// Returns the kind that the type alone determines.
    pub(super) fn declared(self) -> Atom<'a> {
        self.atom(&Value::Null)
    }

    /// Whether the kind of this node depends on the value, so that two values may differ in kind.
    pub(super) fn takes_any_kind(self) -> bool {
        match self {
            Self::Typed { schema, .. } => matches!(schema.shape(), Shape::Any | Shape::Either(_) | Shape::RawExtension),
            Self::Deduced | Self::Untyped => true,
        }
    }
}

fn typed_atom<'a>(schema: Schema<'a>, open: bool, value: &Value) -> Atom<'a> {
    match schema.shape() {
        Shape::Bool => Atom::Scalar(Scalar::Boolean),
        Shape::Int32 | Shape::Int64 | Shape::Double => Atom::Scalar(Scalar::Numeric),
        Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime => Atom::Scalar(Scalar::String),
        Shape::IntOrString | Shape::Quantity => Atom::Scalar(Scalar::Any),
        Shape::Any | Shape::Either(_) => Node::Deduced.atom(value),
        Shape::RawExtension => Node::Untyped.atom(value),
        Shape::FieldsV1 => Atom::Map(Fields::deduced()),
        Shape::List(List { item, kind, .. }) => {
            let kind = match kind {
                ListKind::Atomic => ItemsKind::Atomic,
                ListKind::Set => ItemsKind::Set,
                ListKind::Map(keys) => ItemsKind::Keyed(keys),
            };
            Atom::List(Items { item: Node::Typed { schema: schema.other(*item), open }, kind })
        }
        Shape::Map(map) => {
            let other = Some(Node::Typed { schema: schema.other(map.value), open });
            Atom::Map(Fields { atomic: map.atomic, named: None, other, open })
        }
        Shape::Struct(Struct { atomic, open: own, .. }) => {
            let open = open || *own;
            // An object type without declarations is free-form.
            let other = (open || declares_nothing(schema)).then_some(Node::Deduced);
            Atom::Map(Fields { atomic: *atomic, named: Some(schema), other, open })
        }
    }
}

impl<'a> Items<'a> {
    const LEAF: Self = Self { item: Node::Untyped, kind: ItemsKind::Atomic };

    pub(super) const fn is_atomic(self) -> bool {
        matches!(self.kind, ItemsKind::Atomic)
    }

    /// Builds the index of item keys; fails at the first item without a key.
    pub(super) fn index<'v>(self, items: &'v [Value]) -> Result<Index<'v>, BadItem>
    where
        'a: 'v,
    {
        let (index, bad) = self.index_until_bad(items);
        bad.map_or(Ok(index), Err)
    }

    /// Builds the index of item keys up to the first item without a key, which is returned too.
    pub(super) fn index_until_bad<'v>(self, items: &'v [Value]) -> (Index<'v>, Option<BadItem>)
    where
        'a: 'v,
    {
        let (names, declared) = match self.kind {
            ItemsKind::Keyed(declared) => (sorted_names(declared), declared),
            _ => (Vec::new(), &[][..]),
        };
        let mut values = Vec::with_capacity(items.len() * names.len().max(1));
        for (at, item) in items.iter().enumerate() {
            let added = if names.is_empty() {
                set_item(item).map(|item| values.push(item)).map_err(str::to_owned)
            } else {
                self.key_of(item, &names, declared, &mut values)
            };
            if let Err(what) = added {
                values.truncate(at * names.len().max(1));
                return (Index { names, values, len: at }, Some(BadItem { at, what }));
            }
        }
        (Index { names, values, len: items.len() }, None)
    }

    fn key_of<'v>(
        self,
        item: &'v Value,
        names: &[&str],
        declared: &[Str],
        values: &mut Vec<&'v Value>,
    ) -> Result<(), String>
    where
        'a: 'v,
    {
        let object = match item {
            Value::Object(object) => object,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        for name in names {
            let Some(value) = object.get(name).or_else(|| self.default_of(name)) else {
                // Upstream reports the first missing key field in declaration order.
                let missing = |name: &&Str| !object.contains_key(name) && self.default_of(name).is_none();
                let name = declared.iter().find(missing).map_or(*name, Str::as_str);
                return Err(format!(
                    "associative list with keys has an element that omits key field {} (and doesn't have default value)",
                    go::quote(name)
                ));
            };
            values.push(value);
        }
        Ok(())
    }

    fn default_of(self, name: &str) -> Option<&'a Value> {
        match self.item {
            Node::Typed { schema, .. } => schema.field(name).and_then(|(Field { default, .. }, _)| default.as_ref()),
            _ => None,
        }
    }
}

fn sorted_names(keys: &[Str]) -> Vec<&str> {
    let mut names: Vec<&str> = keys.iter().map(Str::as_str).collect();
    names.sort_unstable();
    names
}

fn set_item(item: &Value) -> Result<&Value, &'static str> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type"),
        Value::Array(_) => Err("not supported: associative list with lists as elements"),
        Value::Null => Err("associative list without keys has an element that's an explicit null"),
        scalar => Ok(scalar),
    }
}

impl<'a> Fields<'a> {
    const fn deduced() -> Self {
        Self { atomic: false, named: None, other: Some(Node::Deduced), open: false }
    }

    /// Returns the type of a key; [`None`] if the type does not declare it.
    pub(super) fn child(self, key: &str) -> Option<Child<'a>> {
        let Some(own) = self.named else { return self.other.map(|node| Child { node, named: false }) };
        if let Some(schema) = own.envelope(key) {
            return Some(Child { node: Node::root(schema), named: true });
        }
        match own.field(key) {
            Some((_, schema)) => Some(Child { node: Node::Typed { schema, open: self.open }, named: true }),
            None => self.other.map(|node| Child { node, named: false }),
        }
    }

    /// Returns the type of a key, deduced if the type does not declare it.
    pub(super) fn child_or_deduced(self, key: &str) -> Child<'a> {
        self.child(key).unwrap_or(Child { node: Node::Deduced, named: false })
    }

    /// Whether the type declares nothing about its children.
    pub(super) fn is_free_form(self) -> bool {
        matches!(self.other, Some(Node::Deduced)) && self.named.is_none_or(declares_nothing)
    }
}

/// Whether a type declares no fields, not even the common fields of all objects.
fn declares_nothing(schema: Schema<'_>) -> bool {
    match schema.shape() {
        Shape::Struct(Struct { fields, .. }) => fields.is_empty() && schema.envelope("metadata").is_none(),
        _ => true,
    }
}

/// A list item without a valid key.
#[derive(Clone, Debug)]
pub(super) struct BadItem {
    pub(super) at: usize,
    pub(super) what: String,
}

/// The keys of a list's items, by reference.
pub(super) struct Index<'v> {
    /// The names of the key fields, sorted; empty for a set.
    names: Vec<&'v str>,
    /// The values of each item's key fields; for a set, the item itself.
    values: Vec<&'v Value>,
    len: usize,
}

impl<'v> Index<'v> {
    /// Returns the key of the item at an index: the values of its key fields, or the item itself for a set.
    pub(super) fn key(&self, at: usize) -> &[&'v Value] {
        let width = self.names.len().max(1);
        &self.values[at * width..(at + 1) * width]
    }

    /// Returns the indexes sorted by key; equal keys keep list order.
    pub(super) fn sorted(&self) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..self.len).collect();
        if !positions.is_sorted_by(|a, b| self.order(*a, *b).is_le()) {
            positions.sort_by(|a, b| self.order(*a, *b));
        }
        positions
    }

    /// Compares the keys of two items.
    pub(super) fn order(&self, a: usize, b: usize) -> Ordering {
        order_keys(self.key(a), self.key(b))
    }

    /// Compares an element of a field set with the key of the item at `at`.
    pub(super) fn order_element(&self, element: &Element, at: usize) -> Ordering {
        match element {
            Element::Field(_) => Ordering::Less,
            Element::Key(_) if self.names.is_empty() => Ordering::Less,
            Element::Key(fields) => {
                let own = self.names.iter().zip(self.key(at));
                let pairs = fields.iter().zip(own);
                pairs
                    .map(|((name, value), (own_name, own))| name.as_str().cmp(own_name).then_with(|| order(value, own)))
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| fields.len().cmp(&self.names.len()))
            }
            Element::Value(value) if self.names.is_empty() => order(value, self.key(at)[0]),
            Element::Value(_) | Element::Index(_) => Ordering::Greater,
        }
    }

    /// Returns the key of the item at `at` as an element of a field set.
    pub(super) fn element(&self, at: usize) -> Element {
        let key = self.key(at);
        if self.names.is_empty() {
            return Element::Value(Box::new(key[0].clone()));
        }
        Element::Key(self.names.iter().zip(key).map(|(name, value)| (Str::from(*name), (*value).clone())).collect())
    }

    /// Returns the key of the item at `at` in the form used in messages.
    pub(super) fn show(&self, at: usize) -> KeyDisplay<'_, 'v> {
        KeyDisplay { index: self, at }
    }
}

/// Compares the keys of items of two lists of one type.
pub(super) fn order_keys(a: &[&Value], b: &[&Value]) -> Ordering {
    a.iter().zip(b).map(|(a, b)| order(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Displays the key of an item.
#[derive(Clone, Copy)]
pub(super) struct KeyDisplay<'i, 'v> {
    index: &'i Index<'v>,
    at: usize,
}

impl std::fmt::Display for KeyDisplay<'_, '_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.index.key(self.at);
        if self.index.names.is_empty() {
            return write!(out, "[={}]", super::path::show(key[0]));
        }
        write_key(out, self.index.names.iter().copied().zip(key.iter().copied()))
    }
}

/// Whether two values are equal; `1` equals `1.0`.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(_), Value::Float(_)) | (Value::Float(_), Value::Int(_)) => a.as_float() == b.as_float(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.0 == b.0 && same(a.1, b.1))
        }
        _ => a == b,
    }
}

/// Returns the entries of an object; [`None`] if the value is not an object or is empty.
pub(super) fn filled_map(value: Option<&Value>) -> Option<&crate::Object> {
    value.and_then(Value::as_object).filter(|object| !object.is_empty())
}

/// Returns the items of a list; [`None`] if the value is not a list or is empty.
pub(super) fn filled_list(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).filter(|items| !items.is_empty())
}
