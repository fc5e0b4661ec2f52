//! Comparison of two objects; the result is three field sets.

use std::cmp::Ordering;

use super::fieldset::{Entry, FieldSet};
use super::path::Element;
use super::typed::{Atom, Fields, Index, Items, Node, filled_list, filled_map, order_keys, same};
use crate::{Schema, Value};

/// The fields in which two objects differ. The three sets are disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields that only the old object has.
    pub removed: FieldSet,
    /// Fields that both objects have, with different values.
    pub modified: FieldSet,
    /// Fields that only the new object has.
    pub added: FieldSet,
}

/// Compares two objects of one type, which must have passed [`validate`](super::validate::validate) with duplicates
/// allowed.
pub fn compare(schema: Schema<'_>, old: &Value, new: &Value) -> Comparison {
    let found = both(Node::root(schema), old, new);
    Comparison { removed: found.removed.below, modified: found.modified.below, added: found.added.below }
}

impl Comparison {
    pub const fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Returns the comparison without `fields` and everything below them.
    #[must_use]
    pub fn without(&self, fields: &FieldSet) -> Self {
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }
}

/// The part of one of the three sets at a node and below it.
#[derive(Default)]
struct Branch {
    member: bool,
    below: FieldSet,
}

/// The difference at a node and below it.
#[derive(Default)]
struct Diff {
    removed: Branch,
    modified: Branch,
    added: Branch,
}

/// The children of a node; only children with a difference are kept.
#[derive(Default)]
struct Children {
    removed: Vec<Entry>,
    modified: Vec<Entry>,
    added: Vec<Entry>,
}

impl Branch {
    const LEAF: Self = Self { member: true, below: FieldSet::EMPTY };

    fn join(&mut self, other: &Self) {
        self.member |= other.member;
        self.below = self.below.union(&other.below);
    }

    const fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl Diff {
    fn modified_if(differs: bool) -> Self {
        if differs { Self { modified: Branch::LEAF, ..Self::default() } } else { Self::default() }
    }
}

impl Children {
    fn push(&mut self, element: impl FnOnce() -> Element, diff: Diff) {
        let Diff { removed, modified, added } = diff;
        if removed.is_empty() && modified.is_empty() && added.is_empty() {
            return;
        }
        let element = element();
        let put = |into: &mut Vec<Entry>, branch: Branch| {
            if !branch.is_empty() {
                into.push(Entry { element: element.clone(), member: branch.member, below: branch.below });
            }
        };
        put(&mut self.removed, removed);
        put(&mut self.modified, modified);
        put(&mut self.added, added);
    }

    fn into_diff(self) -> Diff {
        let branch = |entries| Branch { member: false, below: FieldSet::from_sorted(entries) };
        Diff { removed: branch(self.removed), modified: branch(self.modified), added: branch(self.added) }
    }
}

fn both(node: Node<'_>, old: &Value, new: &Value) -> Diff {
    let (was, is) = (node.atom(old), node.atom(new));
    if !node.takes_any_kind()
        || std::mem::discriminant(&was) == std::mem::discriminant(&is)
        || old.is_null()
        || new.is_null()
    {
        // `null` takes the kind of the other side.
        let atom = if new.is_null() && node.takes_any_kind() { was } else { is };
        return as_kind(atom, old, new);
    }
    // The kind changed: the old children are removed, the new children are added, and the value itself is modified if
    // either side is a leaf.
    let mut diff = as_kind(was, old, new);
    let other = as_kind(is, old, new);
    diff.removed.join(&other.removed);
    diff.modified.join(&other.modified);
    diff.added.join(&other.added);
    diff
}

fn as_kind(atom: Atom<'_>, old: &Value, new: &Value) -> Diff {
    match atom {
        Atom::Scalar(_) => Diff::modified_if(!same(old, new)),
        Atom::Map(fields) => match (filled_map(Some(old)), filled_map(Some(new))) {
            (None, None) => Diff::modified_if(!same(old, new)),
            _ if fields.atomic => Diff::modified_if(!same(old, new)),
            _ => maps(fields, old, new),
        },
        Atom::List(list) => match (filled_list(Some(old)), filled_list(Some(new))) {
            (None, None) => Diff::modified_if(!same(old, new)),
            _ if list.is_atomic() => Diff::modified_if(!same(old, new)),
            (old, new) => lists(list, old.unwrap_or_default(), new.unwrap_or_default()),
        },
    }
}

fn maps(fields: Fields<'_>, old: &Value, new: &Value) -> Diff {
    let empty = crate::Object::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let (mut olds, mut new_entries) = (old.iter().peekable(), new.iter().peekable());
    let mut children = Children::default();
    loop {
        let order = match (olds.peek(), new_entries.peek()) {
            (Some(old), Some(new)) => old.0.cmp(new.0),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return children.into_diff(),
        };
        let old = if order.is_le() { olds.next() } else { None };
        let new = if order.is_ge() { new_entries.next() } else { None };
        let key = old.or(new).map_or("", |(key, _)| key);
        let diff = match (old, new) {
            // Most fields are equal scalars, which can be compared without their type.
            (Some((_, old)), Some((_, new))) if is_scalar(old) && old == new => continue,
            (Some((_, old)), Some((_, new))) => both(fields.child_or_deduced(key).node, old, new),
            (old, new) => one(fields.child_or_deduced(key).node, old.map(|it| it.1), new.map(|it| it.1)),
        };
        children.push(|| Element::field(key), diff);
    }
}

const fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_))
}

/// Returns the difference if only one side has a value.
fn one(node: Node<'_>, old: Option<&Value>, new: Option<&Value>) -> Diff {
    let whole = |value| Branch { member: true, below: whole(node, value) };
    Diff {
        removed: old.map(whole).unwrap_or_default(),
        modified: Branch::default(),
        added: new.map(whole).unwrap_or_default(),
    }
}

/// Returns everything below a value that the other side lacks. Unlike in an applier's set, each container is a member.
fn whole(node: Node<'_>, value: &Value) -> FieldSet {
    match node.atom(value) {
        Atom::Map(fields) if !fields.atomic => {
            let entries = filled_map(Some(value)).into_iter().flat_map(crate::Object::iter);
            let entries = entries.map(|(key, value)| Entry {
                element: Element::field(key),
                member: true,
                below: whole(fields.child_or_deduced(key).node, value),
            });
            FieldSet::from_sorted(entries.collect())
        }
        Atom::List(list) if !list.is_atomic() => {
            let items = filled_list(Some(value)).unwrap_or_default();
            let diff = lists(list, &[], items);
            diff.added.below
        }
        _ => FieldSet::EMPTY,
    }
}

fn lists(list: Items<'_>, old: &[Value], new: &[Value]) -> Diff {
    if old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new)) {
        return Diff::default();
    }
    let (Ok(old_index), Ok(new_index)) = (list.index(old), list.index(new)) else { return Diff::default() };
    let (old_order, new_order) = (old_index.sorted(), new_index.sorted());
    let mut olds = old_order.chunk_by(|a, b| old_index.order(*a, *b).is_eq()).peekable();
    let mut new_groups = new_order.chunk_by(|a, b| new_index.order(*a, *b).is_eq()).peekable();
    let mut children = Children::default();
    loop {
        let order = match (olds.peek(), new_groups.peek()) {
            (Some(a), Some(b)) => order_keys(old_index.key(a[0]), new_index.key(b[0])),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return children.into_diff(),
        };
        let before = if order.is_le() { olds.next() } else { None }.unwrap_or_default();
        let after = if order.is_ge() { new_groups.next() } else { None }.unwrap_or_default();
        let element = || element(&old_index, before, &new_index, after);
        children.push(element, alike(list, &pick(old, before), &pick(new, after)));
    }
}

fn element(old: &Index<'_>, before: &[usize], new: &Index<'_>, after: &[usize]) -> Element {
    match (before, after) {
        ([at, ..], _) => old.element(*at),
        ([], [at, ..]) => new.element(*at),
        ([], []) => Element::Index(-1),
    }
}

fn pick<'v>(items: &'v [Value], positions: &[usize]) -> Vec<&'v Value> {
    positions.iter().map(|at| &items[*at]).collect()
}

/// Returns the difference between the items that share one key. Several items are compared as one value.
fn alike(list: Items<'_>, old: &[&Value], new: &[&Value]) -> Diff {
    match (old, new) {
        ([old], [new]) => both(list.item, old, new),
        ([], [] | [_]) | ([_], []) => one(list.item, old.first().copied(), new.first().copied()),
        ([_, _, ..], [_, _, ..]) => {
            Diff::modified_if(old.len() != new.len() || !old.iter().zip(new).all(|(old, new)| same(old, new)))
        }
        ([_, _, ..], _) => {
            let added = new.first().map(|new| one(list.item, None, Some(new)).added).unwrap_or_default();
            Diff { removed: Branch::LEAF, added, ..Diff::default() }
        }
        (_, [_, _, ..]) => {
            let removed = old.first().map(|old| one(list.item, Some(old), None).removed).unwrap_or_default();
            Diff { added: Branch::LEAF, removed, ..Diff::default() }
        }
    }
}
