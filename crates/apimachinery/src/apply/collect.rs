//! The field set of an applied configuration: the fields that an applier owns.

use super::fieldset::{Entry, FieldSet};
use super::path::Element;
use super::typed::{Atom, Fields, Items, Node};
use crate::{Object, Schema, Value};

/// Returns every leaf and item of a value. The value must have passed [`validate`](super::validate::validate).
pub fn field_set(schema: Schema<'_>, value: &Value) -> FieldSet {
    below(Node::root(schema), value).unwrap_or_default()
}

/// Returns the fields below a value; [`None`] if the value is a leaf.
fn below(node: Node<'_>, value: &Value) -> Option<FieldSet> {
    match (node.atom(value), value) {
        (Atom::Scalar(_), _) => None,
        (Atom::List(list), _) if list.is_atomic() => None,
        (Atom::Map(fields), _) if fields.atomic => None,
        (Atom::List(list), Value::Array(items)) => Some(items_of(list, items)),
        (Atom::Map(fields), Value::Object(object)) => Some(fields_of(fields, object)),
        _ => Some(FieldSet::default()),
    }
}

fn fields_of(fields: Fields<'_>, object: &Object) -> FieldSet {
    let mut entries = Vec::with_capacity(object.len());
    for (key, value) in object.iter() {
        let child = fields.child_or_deduced(key);
        let below = below(child.node, value);
        let empty = matches!(value, Value::Null) || value.as_object().is_some_and(Object::is_empty);
        let member = below.is_none() || empty || !child.named;
        let below = below.unwrap_or_default();
        if member || !below.is_empty() {
            entries.push(Entry { element: Element::field(key), member, below });
        }
    }
    FieldSet::from_sorted(entries)
}

fn items_of(list: Items<'_>, items: &[Value]) -> FieldSet {
    let Ok(index) = list.index(items) else { return FieldSet::default() };
    let mut entries = Vec::with_capacity(items.len());
    // Items with duplicate keys are members of the set, without the fields below them.
    for alike in index.sorted().chunk_by(|a, b| index.order(*a, *b).is_eq()) {
        let below = match alike {
            [at] => below(list.item, &items[*at]).unwrap_or_default(),
            _ => FieldSet::default(),
        };
        entries.push(Entry { element: index.element(alike[0]), member: true, below });
    }
    FieldSet::from_sorted(entries)
}
