//! Type validation that server-side apply needs before it walks a value.

use std::fmt;

use super::gotext;
use super::typed::{Atom, Fields, Index, Items, KeyDisplay, Node, Scalar};
use crate::{Schema, Value};

/// Maximum nesting depth: above the depth limit of the JSON parser, and small enough for any stack.
const MAX_DEPTH: usize = 200;

/// All violations of a type by a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// For example `.spec.ports[name="a"].port`.
    pub path: String,
    pub message: String,
}

/// Whether list items may share a key. Stored objects may contain such items; new objects may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    Allowed,
    Rejected,
}

/// Validates a value against its type; returns all violations.
pub fn validate(schema: Schema<'_>, value: &Value, duplicates: Duplicates) -> Result<(), Violations> {
    let mut walk = Walk { duplicates, found: Vec::new() };
    walk.node(Node::root(schema), value, &Trail::Root, 0);
    if walk.found.is_empty() { Ok(()) } else { Err(Violations(walk.found)) }
}

impl Violations {
    /// Returns the violations in the order of the walk.
    pub fn list(&self) -> &[Violation] {
        &self.0
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => out.write_str(&self.message),
            path => write!(out, "{path}: {}", self.message),
        }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = &self.0[..] {
            return one.fmt(out);
        }
        out.write_str("errors:")?;
        self.0.iter().try_for_each(|violation| write!(out, "\n  {violation}"))
    }
}

impl std::error::Error for Violations {}

/// The path from the root, kept on the stack; formatted only when a violation is reported.
enum Trail<'a> {
    Root,
    Field(&'a Trail<'a>, &'a str),
    Item(&'a Trail<'a>, KeyDisplay<'a, 'a>),
    Index(&'a Trail<'a>, usize),
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(above, name) => write!(out, "{above}.{name}"),
            Self::Item(above, key) => write!(out, "{above}{key}"),
            Self::Index(above, at) => write!(out, "{above}[{at}]"),
        }
    }
}

struct Walk {
    duplicates: Duplicates,
    found: Vec<Violation>,
}

impl Walk {
    fn node(&mut self, node: Node<'_>, value: &Value, trail: &Trail<'_>, depth: usize) {
        if depth > MAX_DEPTH {
            return self.report(trail, format!("nested deeper than {MAX_DEPTH} levels"));
        }
        match (node.atom(value), value) {
            (_, Value::Null) => {}
            (Atom::Scalar(scalar), _) => self.scalar(scalar, value, trail),
            (Atom::List(list), Value::Array(items)) => self.list(list, items, trail, depth),
            (Atom::List(_), _) => self.report(trail, format!("expected list, got &{{{}}}", gotext::plain(value))),
            (Atom::Map(fields), Value::Object(_)) => self.map(fields, value, trail, depth),
            (Atom::Map(_), _) => self.report(trail, format!("expected map, got &{{{}}}", gotext::plain(value))),
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value, trail: &Trail<'_>) {
        let message = match (scalar, value) {
            (Scalar::Numeric, Value::Int(_) | Value::Float(_))
            | (Scalar::String, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Any, Value::Int(_) | Value::Float(_) | Value::String(_) | Value::Bool(_)) => return,
            (Scalar::Numeric, _) => format!("expected numeric (int or float), got {}", gotext::type_name(value)),
            (Scalar::String, _) => {
                format!("expected string, got &value.valueUnstructured{{Value:{}}}", gotext::syntax(value))
            }
            (Scalar::Boolean, _) => format!("expected boolean, got &{{{}}}", gotext::plain(value)),
            (Scalar::Any, _) => format!("expected any scalar, got &{{{}}}", gotext::plain(value)),
        };
        self.report(trail, message);
    }

    fn list(&mut self, list: Items<'_>, items: &[Value], trail: &Trail<'_>, depth: usize) {
        if list.is_atomic() {
            for (at, item) in items.iter().enumerate() {
                self.node(list.item, item, &Trail::Index(trail, at), depth + 1);
            }
            return;
        }
        // An item without a key ends the walk of its list after the items before it are validated.
        let (index, bad) = list.index_until_bad(items);
        let repeated = self.repeated(&index);
        for (at, item) in items.iter().enumerate().take(bad.as_ref().map_or(items.len(), |bad| bad.at)) {
            if repeated.binary_search(&at).is_ok() {
                self.report(trail, format!("duplicate entries for key {}", index.show(at)));
            }
            self.node(list.item, item, &Trail::Item(trail, index.show(at)), depth + 1);
        }
        if let Some(bad) = bad {
            self.report(trail, format!("element {}: {}", bad.at, bad.what));
        }
    }

    /// Returns the indexes of items whose key an earlier item has, ascending; empty if duplicates are allowed.
    fn repeated(&self, index: &Index<'_>) -> Vec<usize> {
        if self.duplicates == Duplicates::Allowed {
            return Vec::new();
        }
        let sorted = index.sorted();
        let pairs = sorted.windows(2).filter(|pair| index.order(pair[0], pair[1]).is_eq());
        let mut repeated: Vec<usize> = pairs.map(|pair| pair[1]).collect();
        repeated.sort_unstable();
        repeated
    }

    fn map(&mut self, fields: Fields<'_>, value: &Value, trail: &Trail<'_>, depth: usize) {
        for (key, child) in value.as_object().into_iter().flat_map(crate::Object::iter) {
            let trail = Trail::Field(trail, key);
            match fields.child(key) {
                Some(found) => self.node(found.node, child, &trail, depth + 1),
                // As in upstream, the first unknown field ends the walk of its object.
                None => return self.report(&trail, "field not declared in schema".to_owned()),
            }
        }
    }

    fn report(&mut self, trail: &Trail<'_>, message: String) {
        self.found.push(Violation { path: trail.to_string(), message });
    }
}
