//! Field sets under a schema: adds implicit named fields and adapts sets written under an older schema.

use super::fieldset::{Entry, FieldSet};
use super::path::Element;
use super::typed::{Atom, Node};
use crate::Schema;

/// Adds every named field on the path to a member to the set. Map keys and list items are not added.
pub(super) fn with_named_fields(schema: Schema<'_>, set: &FieldSet) -> FieldSet {
    named(Some(Node::root(schema)), set)
}

/// Adapts the set to the current schema: if a list or map has become atomic, an owner of any part of it owns all of it.
pub fn reconcile(schema: Schema<'_>, set: &FieldSet) -> FieldSet {
    reconcile_node(Node::root(schema), set)
}

fn named(node: Option<Node<'_>>, set: &FieldSet) -> FieldSet {
    let atom = node.map(Node::declared);
    let entries = set.entries().iter().map(|entry| {
        let child = match (&atom, &entry.element) {
            (Some(Atom::Map(fields)), Element::Field(name)) => {
                fields.child(name).map(|child| (child.node, child.named))
            }
            (Some(Atom::List(list)), Element::Key(_)) => Some((list.item, false)),
            _ => None,
        };
        if entry.below.is_empty() {
            return entry.clone();
        }
        Entry {
            element: entry.element.clone(),
            member: entry.member || child.is_some_and(|(_, named)| named),
            below: named(child.map(|(node, _)| node), &entry.below),
        }
    });
    FieldSet::from_sorted(entries.collect())
}

fn reconcile_node(node: Node<'_>, set: &FieldSet) -> FieldSet {
    let atom = node.declared();
    if matches!(atom, Atom::Map(fields) if fields.is_free_form()) {
        return set.clone();
    }
    set.map_below(|entry| {
        let child = match (&atom, &entry.element) {
            (Atom::Map(fields), Element::Field(name)) => fields.child(name)?.node,
            (Atom::List(list), _) => list.item,
            _ => return None,
        };
        match child.declared() {
            Atom::Map(fields) if fields.is_free_form() => None,
            Atom::Map(fields) if fields.atomic => Some((true, FieldSet::EMPTY)),
            Atom::List(list) if list.is_atomic() => Some((true, FieldSet::EMPTY)),
            Atom::Scalar(_) => None,
            _ => Some((entry.member, reconcile_node(child, &entry.below))),
        }
    })
}
