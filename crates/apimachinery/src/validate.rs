//! Schema validation of a tree; returns all errors with upstream's messages.
//!
//! Upstream runs a chain of validators over each value: type, junctors, string, format, number, list, enum, object. The
//! order of errors follows that chain. As in upstream, paths inside messages are relative to the object.

mod format;
mod junctor;
mod lists;
mod node;
mod number;

use crate::field::{BadValue, Error, Errors};
use crate::schema::{FormatKind, JsonType, ListKind, Rules, Schema, Shape};
use crate::{Object, Path, Value, go};

use node::Node;

/// Maximum number of returned errors, which bounds their memory.
const FINDINGS_MAX: usize = 10_000;

/// Returns all errors in `value`.
pub fn validate(value: &Value, schema: Schema<'_>) -> Errors {
    validate_at(value, schema, &Path::ROOT)
}

/// Returns all errors in a value at `base`.
pub fn validate_at(value: &Value, schema: Schema<'_>, base: &Path) -> Errors {
    run(value, None, schema, base)
}

/// Returns the errors in `value` that `old` does not have: unchanged parts are not validated again (ratcheting).
pub fn validate_update(value: &Value, old: &Value, schema: Schema<'_>) -> Errors {
    run(value, Some(old), schema, &Path::ROOT)
}

fn run(value: &Value, old: Option<&Value>, schema: Schema<'_>, base: &Path) -> Errors {
    let mut checker = Checker { base, errors: Errors::new(), matches: 0 };
    checker.value(value, old, Node::Type(schema), &Path::ROOT);
    let mut errors = checker.errors;
    // Existing duplicates are tolerated: otherwise such an object could not be updated any more.
    if node::is_custom(schema) && old.is_none_or(|old| lists::are_sound(old, schema)) {
        lists::check(value, schema, base, &mut errors);
    }
    if errors.len() > 1 {
        let mut seen = std::collections::BTreeSet::new();
        errors.retain(|error| seen.insert(error.to_string()));
    }
    errors
}

struct Checker<'a> {
    base: &'a Path<'a>,
    errors: Errors,
    /// The progress of the validation, by which upstream chooses the branch of a junctor to report.
    matches: usize,
}

impl Checker<'_> {
    fn value(&mut self, value: &Value, old: Option<&Value>, node: Node<'_>, path: &Path) {
        if old.is_some_and(|old| old == value) {
            return;
        }
        if value.is_null() {
            return self.null(node, path);
        }
        if node.is_plain(value) {
            self.matches += 4;
            return;
        }
        self.json_type(value, node, path);
        let rules = node.rules();
        if let Some(rules) = rules {
            if let Some(junctors) = &rules.junctors {
                self.junctors(value, junctors, path);
            }
            if let Value::String(text) = value {
                self.string(text, rules, path);
            }
        }
        if matches!(value, Value::Int(_) | Value::Float(_)) {
            self.number(value, node, path);
        }
        if let Value::Array(items) = value {
            self.list(items, old, node, path);
        }
        if let Some(rules) = rules {
            self.allowed(value, rules, path);
        }
        if let Value::Object(object) = value {
            self.object(object, old, node, path);
        }
        // The junctors, the enumeration and the value's own validator always count as passed.
        self.matches += 3;
    }

    fn null(&mut self, node: Node<'_>, path: &Path) {
        if node.allows_null() {
            self.matches += 1;
        } else if let Some(expected) = names(node.json_types()) {
            self.wrong_type(&expected, "null", path);
        }
        if let Some(rules) = node.rules() {
            self.allowed(&Value::Null, rules, path);
        }
    }

    fn json_type(&mut self, value: &Value, node: Node<'_>, path: &Path) {
        let expected = node.json_types();
        let found = JsonType::of(value).expect("null was handled above");
        let fits = expected.contains(&found)
            || match value {
                Value::Float(float) => expected.contains(&JsonType::Integer) && number::is_whole(*float),
                Value::Int(_) => expected.contains(&JsonType::Number),
                _ => false,
            };
        if fits {
            self.matches += 1;
            return;
        }
        let format = node.rules().and_then(|rules| rules.format.as_ref());
        match (format, value) {
            // For values that are neither strings nor lists upstream reports the format, not the type.
            (Some(format), Value::Bool(_) | Value::Object(_)) => self.wrong_type(&format.name, "", path),
            (Some(format), Value::Int(_)) => self.wrong_type(&format.name, "int64", path),
            (Some(format), Value::Float(_)) => self.wrong_type(&format.name, "float64", path),
            _ => {
                if let Some(expected) = names(expected) {
                    self.wrong_type(&expected, found.name(), path);
                }
            }
        }
    }

    fn wrong_type(&mut self, expected: &str, found: &str, path: &Path) {
        let detail = format!("{path} in body must be of type {expected}: {}", go::quote(found));
        self.push(Error::type_invalid(path, found, detail));
    }

    fn string(&mut self, text: &str, rules: &Rules, path: &Path) {
        let limits = &rules.string;
        // A string has at most as many characters as bytes, so most strings need no counting.
        let too_long = |max: i64| count(text.len()) > max && count(text.chars().count()) > max;
        if let Some(max) = limits.characters_max.filter(|max| too_long(*max)) {
            self.push(Error::too_long(path, usize::try_from(max).unwrap_or_default()));
        } else if let Some(min) = limits.characters_min.filter(|min| count(text.chars().count()) < *min) {
            self.invalid(path, text, &format!("should be at least {min} chars long"));
        } else if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            self.invalid(path, text, &format!("should match '{}'", pattern.source()));
        }
        if let Some(format) = &rules.format
            && !format::is(text, format.kind)
        {
            self.wrong_type(&format.name, text, path);
        }
    }

    fn list(&mut self, items: &[Value], old: Option<&Value>, node: Node<'_>, path: &Path) {
        if let Some(item_node) = node.item() {
            let before = self.correlate(items, old, node);
            for (at, item) in items.iter().enumerate() {
                self.value(item, before.get(at).copied().flatten(), item_node, &path.index(at));
                if self.is_full() {
                    return;
                }
            }
        }
        let Some(rules) = node.rules() else { return };
        let limits = &rules.list;
        if let Some(min) = limits.items_min.filter(|min| count(items.len()) < *min) {
            self.invalid(path, count(items.len()), &format!("should have at least {min} items"));
        }
        if let Some(max) = limits.items_max.filter(|max| count(items.len()) > *max) {
            self.push(Error::too_many(path, items.len(), usize::try_from(max).unwrap_or_default()));
        }
        if limits.unique && lists::repeated(items).next().is_some() {
            self.invalid(path, "", "shouldn't contain duplicates");
        }
    }

    /// Returns the old item of each new one, if items of this list type can be correlated.
    fn correlate<'v>(&self, items: &[Value], old: Option<&'v Value>, node: Node<'_>) -> Vec<Option<&'v Value>> {
        match (old.and_then(Value::as_array), node) {
            (Some(old), Node::Type(schema)) => match schema.shape() {
                Shape::List(list) => match &list.kind {
                    ListKind::Map(keys) => lists::correlate(items, old, keys),
                    ListKind::Atomic | ListKind::Set => Vec::new(),
                },
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn allowed(&mut self, value: &Value, rules: &Rules, path: &Path) {
        if rules.values.is_empty() || rules.values.iter().any(|one| number::same(one, value)) {
            return;
        }
        let supported: Vec<_> =
            rules.values.iter().map(|one| one.as_str().map_or_else(|| go::json(one), str::to_owned)).collect();
        self.push(Error::not_supported(path, value, &supported));
    }

    fn object(&mut self, object: &Object, old: Option<&Value>, node: Node<'_>, path: &Path) {
        if let Some(rules) = node.rules() {
            let limits = &rules.object;
            if let Some(min) = limits.keys_min.filter(|min| count(object.len()) < *min) {
                return self.invalid(path, count(object.len()), &format!("should have at least {min} properties"));
            }
            if let Some(max) = limits.keys_max.filter(|max| count(object.len()) > *max) {
                let max = usize::try_from(max).unwrap_or_default();
                return self.push(Error::too_many(path, object.len(), max));
            }
            if rules.closed {
                for key in object.keys() {
                    let detail = format!("{path}.{key} in body is a forbidden property");
                    self.push(Error::invalid(path, key, detail));
                }
            }
        }
        let before = |key: &str| old.and_then(|old| old.get(key));
        match node {
            Node::Type(schema) => match schema.shape() {
                Shape::Struct(shape) => {
                    let mut next = 0;
                    for (key, value) in object.iter() {
                        let Some(found) = shape.find(next, key) else { continue };
                        let field = &shape.fields[found];
                        self.value(value, before(key), Node::Type(schema.other(field.ty)), &path.field(key));
                        next = found + 1;
                    }
                }
                Shape::Map(map) => {
                    let inner = Node::Type(schema.other(map.value));
                    for (key, value) in object.iter() {
                        self.value(value, before(key), inner, &path.field(key));
                        if self.is_full() {
                            return;
                        }
                    }
                }
                _ => {}
            },
            Node::Nested(nested) => {
                for (name, inner) in &nested.properties {
                    if let Some(value) = object.get(name) {
                        self.value(value, before(name), Node::Nested(inner), &path.field(name));
                    }
                }
            }
        }
        node.required(object, |name| self.push(Error::required(&path.field(name), "")));
    }

    /// Adds an error whose detail begins with the path, as most of upstream's do.
    fn invalid(&mut self, path: &Path, value: impl Into<BadValue>, what: &str) {
        self.push(Error::invalid(path, value, format!("{path} in body {what}")));
    }

    /// Adds an error on the root object, although its cause may be nested.
    fn whole(&mut self, detail: String) {
        if !self.is_full() {
            self.errors.push(Error::invalid(self.base, "", detail));
        }
    }

    fn push(&mut self, mut error: Error) {
        if self.is_full() {
            return;
        }
        if self.base.last().is_some() {
            let base = self.base.to_string();
            error.field = if error.field == "<nil>" { base } else { format!("{base}.{}", error.field) };
        }
        self.errors.push(error);
    }

    const fn is_full(&self) -> bool {
        self.errors.len() >= FINDINGS_MAX
    }
}

/// Joins the names of types as upstream does; [`None`] if any type is allowed.
fn names(types: &[JsonType]) -> Option<String> {
    (!types.is_empty()).then(|| types.iter().map(|one| one.name()).collect::<Vec<_>>().join(","))
}

fn count(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}

/// Whether a format applies to numbers, which [`number`] validates.
const fn is_numeric(kind: FormatKind) -> bool {
    matches!(kind, FormatKind::Int32 | FormatKind::Int64 | FormatKind::Float | FormatKind::Double)
}

#[cfg(test)]
mod tests;
