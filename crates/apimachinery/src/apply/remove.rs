//! Removal and extraction of the fields of a set from an object.

use super::fieldset::FieldSet;
use super::typed::{Atom, Fields, Items, Node};
use crate::{Object, Schema, Value};

/// Removes the fields and items of a set. A container that becomes empty is set to `null`. An atomic container is
/// removed if any part of it is in the set.
pub fn remove(schema: Schema<'_>, value: &mut Value, fields: &FieldSet) {
    if !fields.is_empty() {
        remove_at(Node::root(schema), value, fields);
    }
}

/// Returns a copy with only the fields and items of the set.
pub fn extract(schema: Schema<'_>, value: &Value, fields: &FieldSet) -> Value {
    extract_at(Node::root(schema), value, fields).unwrap_or_default()
}

fn remove_at(node: Node<'_>, value: &mut Value, set: &FieldSet) {
    match node.atom(value) {
        Atom::Scalar(_) => return,
        Atom::Map(fields) if !fields.atomic => {
            if let Value::Object(object) = value {
                remove_fields(fields, object, set);
                if !object.is_empty() {
                    return;
                }
            }
        }
        Atom::List(list) if !list.is_atomic() => {
            if let Value::Array(items) = value {
                remove_items(list, items, set);
                if !items.is_empty() {
                    return;
                }
            }
        }
        _ => {}
    }
    *value = Value::Null;
}

fn remove_fields(fields: Fields<'_>, object: &mut Object, set: &FieldSet) {
    object.retain(|key, value| {
        let Some(entry) = set.find(|element| match element {
            super::path::Element::Field(name) => name.as_bytes().cmp(key.as_bytes()),
            _ => std::cmp::Ordering::Greater,
        }) else {
            return true;
        };
        if !entry.member {
            remove_at(fields.child_or_deduced(key).node, value, &entry.below);
        }
        !entry.member
    });
}

fn remove_items(list: Items<'_>, items: &mut Vec<Value>, set: &FieldSet) {
    let Ok(index) = list.index(items) else { return };
    let found: Vec<_> = (0..items.len()).map(|at| set.find(|element| index.order_element(element, at))).collect();
    let mut found = found.into_iter();
    items.retain_mut(|item| match found.next().flatten() {
        Some(entry) if entry.member => false,
        Some(entry) => {
            remove_at(list.item, item, &entry.below);
            true
        }
        None => true,
    });
}

fn extract_at(node: Node<'_>, value: &Value, set: &FieldSet) -> Option<Value> {
    match (node.atom(value), value) {
        (Atom::Map(fields), Value::Object(object)) if !fields.atomic => {
            let extracted = object.iter().filter_map(|(key, value)| {
                let entry = set.entry(&super::path::Element::field(key))?;
                let extracted = extract_at(fields.child_or_deduced(key).node, value, &entry.below);
                extracted.or_else(|| entry.member.then_some(Value::Null)).map(|value| (key, value))
            });
            let extracted: Object = extracted.collect();
            (!extracted.is_empty()).then_some(Value::Object(extracted))
        }
        (Atom::List(list), Value::Array(items)) if !list.is_atomic() => {
            let index = list.index(items).ok()?;
            let extracted = items.iter().enumerate().filter_map(|(at, item)| {
                let entry = set.find(|element| index.order_element(element, at))?;
                let extracted = extract_at(list.item, item, &entry.below);
                extracted.or_else(|| entry.member.then_some(Value::Null))
            });
            let extracted: Vec<Value> = extracted.collect();
            (!extracted.is_empty()).then_some(Value::Array(extracted))
        }
        (_, value) => Some(value.clone()),
    }
}
