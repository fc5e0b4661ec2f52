//! How server-side apply sees a value of a type: as one leaf, as a map of children, or as a list of keyed items.

use std::cmp::Ordering;

use super::path::{Element, order, write_key};
use crate::schema::{Field, List, ListKind, Shape, Struct};
use crate::{Schema, Str, Value, go};

/// A type at a place of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node<'a> {
    /// A described type. `open`: something above it keeps unknown fields, and so does it.
    Typed { schema: Schema<'a>, open: bool },
    /// Known only by its values: maps have children, lists are leaves.
    Deduced,
    /// A leaf, whatever its value.
    Untyped,
}

/// What a node is, given the value found there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Atom<'a> {
    /// One value.
    Scalar(Scalar),
    /// A list.
    List(Items<'a>),
    /// A map, or an object with named fields.
    Map(Fields<'a>),
}

/// Which scalars a leaf takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    /// Any of them.
    Any,
}

/// A list type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a> {
    /// The type of an item.
    pub(super) item: Node<'a>,
    kind: ItemsKind<'a>,
}

#[derive(Clone, Copy, Debug)]
enum ItemsKind<'a> {
    Atomic,
    Set,
    Keyed(&'a [Str]),
}

/// A map type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    /// Whether it is one value.
    pub(super) atomic: bool,
    named: Option<Schema<'a>>,
    other: Option<Node<'a>>,
    open: bool,
}

/// A child of a map type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child<'a> {
    /// Its type.
    pub(super) node: Node<'a>,
    /// Whether it is a field that the type names, rather than a key of a map.
    pub(super) named: bool,
}

impl<'a> Node<'a> {
    /// The root of a walk.
    pub(super) const fn root(schema: Schema<'a>) -> Self {
        Self::Typed { schema, open: false }
    }

    /// What this node is where `value` stands. Only types that take several kinds of values ask it; `null` counts as
    /// a map there.
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

    /// What this node is as far as its type alone says.
    pub(super) fn declared(self) -> Atom<'a> {
        self.atom(&Value::Null)
    }

    /// Whether what this node is depends on the value: two values may then differ in kind.
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
            // An object of which nothing is said is free-form.
            let other = (open || says_nothing(schema)).then_some(Node::Deduced);
            Atom::Map(Fields { atomic: *atomic, named: Some(schema), other, open })
        }
    }
}

impl<'a> Items<'a> {
    const LEAF: Self = Self { item: Node::Untyped, kind: ItemsKind::Atomic };

    /// Whether the list is one value.
    pub(super) const fn is_atomic(self) -> bool {
        matches!(self.kind, ItemsKind::Atomic)
    }

    /// What tells the items of a list apart.
    pub(super) fn index<'v>(self, items: &'v [Value]) -> Result<Index<'v>, BadItem>
    where
        'a: 'v,
    {
        let (index, bad) = self.index_until_bad(items);
        bad.map_or(Ok(index), Err)
    }

    /// What tells the items of a list apart, up to the first that has no key.
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
                // Upstream names the first that is missing in the order of the declaration.
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

    /// The type under a key; [`None`] if the type has no such field.
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

    /// The type under a key, where a walk has no use for an error.
    pub(super) fn child_or_deduced(self, key: &str) -> Child<'a> {
        self.child(key).unwrap_or(Child { node: Node::Deduced, named: false })
    }

    /// Whether the type says nothing of its children at all.
    pub(super) fn is_free_form(self) -> bool {
        matches!(self.other, Some(Node::Deduced)) && self.named.is_none_or(says_nothing)
    }
}

/// Whether a type names no field, not even those that every object has.
fn says_nothing(schema: Schema<'_>) -> bool {
    match schema.shape() {
        Shape::Struct(Struct { fields, .. }) => fields.is_empty() && schema.envelope("metadata").is_none(),
        _ => true,
    }
}

/// An item that has no key.
#[derive(Clone, Debug)]
pub(super) struct BadItem {
    /// Its position.
    pub(super) at: usize,
    /// What is wrong with it.
    pub(super) what: String,
}

/// The keys of a list's items, by reference.
pub(super) struct Index<'v> {
    /// The names of the key fields, sorted; none for a set.
    names: Vec<&'v str>,
    /// For each item the values of its key fields, or itself for a set.
    values: Vec<&'v Value>,
    len: usize,
}

impl<'v> Index<'v> {
    /// The key of the item at a position: the values of its key fields, or itself.
    pub(super) fn key(&self, at: usize) -> &[&'v Value] {
        let width = self.names.len().max(1);
        &self.values[at * width..(at + 1) * width]
    }

    /// Positions in the order of their keys, those with the same key in the order of the list.
    pub(super) fn sorted(&self) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..self.len).collect();
        if !positions.is_sorted_by(|a, b| self.order(*a, *b).is_le()) {
            positions.sort_by(|a, b| self.order(*a, *b));
        }
        positions
    }

    /// How the keys of two positions compare.
    pub(super) fn order(&self, a: usize, b: usize) -> Ordering {
        order_keys(self.key(a), self.key(b))
    }

    /// How an element of a set compares with the key of the item at a position.
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

    /// The key of the item at a position as an element of a field set.
    pub(super) fn element(&self, at: usize) -> Element {
        let key = self.key(at);
        if self.names.is_empty() {
            return Element::Value(Box::new(key[0].clone()));
        }
        Element::Key(self.names.iter().zip(key).map(|(name, value)| (Str::from(*name), (*value).clone())).collect())
    }

    /// The key of the item at a position as messages show it.
    pub(super) fn show(&self, at: usize) -> Shown<'_, 'v> {
        Shown { index: self, at }
    }
}

/// How the keys of items of two lists of one type compare.
pub(super) fn order_keys(a: &[&Value], b: &[&Value]) -> Ordering {
    a.iter().zip(b).map(|(a, b)| order(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Shows the key of an item.
#[derive(Clone, Copy)]
pub(super) struct Shown<'i, 'v> {
    index: &'i Index<'v>,
    at: usize,
}

impl std::fmt::Display for Shown<'_, '_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.index.key(self.at);
        if self.index.names.is_empty() {
            return write!(out, "[={}]", super::path::show(key[0]));
        }
        write_key(out, self.index.names.iter().copied().zip(key.iter().copied()))
    }
}

/// Whether two values mean the same: `1` and `1.0` do.
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

/// The entries of an object; none if the value is no object or empty.
pub(super) fn filled_map(value: Option<&Value>) -> Option<&crate::Object> {
    value.and_then(Value::as_object).filter(|object| !object.is_empty())
}

/// The items of a list; none if the value is no list or empty.
pub(super) fn filled_list(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).filter(|items| !items.is_empty())
}
