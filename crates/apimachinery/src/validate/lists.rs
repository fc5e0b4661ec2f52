//! Validation of list types (unique items of sets, unique keys of maps) and of embedded resources.

use std::collections::BTreeMap;

use crate::field::{Error, Errors};
use crate::schema::{ListKind, Schema, Shape};
use crate::{Object, Path, Str, Value};

/// Reports duplicate items of sets and maps, and embedded resources without a type, of a value at `base`.
pub(super) fn check(value: &Value, schema: Schema<'_>, base: &Path, errors: &mut Errors) {
    walk(value, schema, base, errors);
}

/// Whether [`check`] reports no errors.
pub(super) fn are_sound(value: &Value, schema: Schema<'_>) -> bool {
    let mut errors = Errors::new();
    check(value, schema, &Path::ROOT, &mut errors);
    errors.is_empty()
}

/// Returns the indexes of items that occurred before, each value once.
pub(super) fn repeated(items: &[Value]) -> impl Iterator<Item = usize> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    items.iter().enumerate().filter_map(move |(at, item)| {
        let seen = times.entry(item.to_string()).or_default();
        *seen += 1;
        (*seen == 2).then_some(at)
    })
}

/// Returns for each of `items` the item of `old` with the same keys.
pub(super) fn correlate<'v>(items: &[Value], old: &'v [Value], keys: &[Str]) -> Vec<Option<&'v Value>> {
    let name = |item: &Value| key_of(item, keys).to_string();
    let before: BTreeMap<_, _> = old.iter().map(|item| (name(item), item)).collect();
    items.iter().map(|item| before.get(&name(item)).copied()).collect()
}

fn walk(value: &Value, schema: Schema<'_>, path: &Path, errors: &mut Errors) {
    match (value, schema.shape()) {
        (Value::Object(object), Shape::Struct(shape)) => {
            let mut fields = shape.fields.iter().peekable();
            for (key, value) in object.iter() {
                while fields.next_if(|field| field.name.as_str() < key).is_some() {}
                if let Some(field) = fields.next_if(|field| field.name == key) {
                    walk(value, schema.other(field.ty), &path.field(key), errors);
                }
            }
            if shape.embedded && path.last().is_some() {
                embedded(object, path, errors);
            }
        }
        (Value::Object(object), Shape::Map(map)) => {
            for (key, value) in object.iter() {
                walk(value, schema.other(map.value), &path.key(key), errors);
            }
        }
        (Value::Array(items), Shape::List(list)) => {
            match &list.kind {
                ListKind::Atomic => {}
                ListKind::Set => {
                    errors.extend(repeated(items).map(|at| Error::duplicate(&path.index(at), &items[at])));
                }
                ListKind::Map(keys) => map_items(items, keys, path, errors),
            }
            for (at, item) in items.iter().enumerate() {
                walk(item, schema.other(list.item), &path.index(at), errors);
            }
        }
        _ => {}
    }
}

fn map_items(items: &[Value], keys: &[Str], path: &Path, errors: &mut Errors) {
    if let Some(at) = items.iter().position(|item| !matches!(item, Value::Object(_) | Value::Null)) {
        let detail = "must be an object for an array of list-type map";
        return errors.push(Error::invalid(&path.index(at), &items[at], detail));
    }
    let names: Vec<_> = items.iter().map(|item| key_of(item, keys)).collect();
    errors.extend(repeated(&names).map(|at| Error::duplicate(&path.index(at), &names[at])));
}

/// Returns the key fields that an item of a map has.
fn key_of(item: &Value, keys: &[Str]) -> Value {
    let present = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(present.collect::<Object>())
}

fn embedded(object: &Object, path: &Path, errors: &mut Errors) {
    for name in ["apiVersion", "kind"] {
        let at = path.field(name);
        match object.get(name) {
            None => errors.push(Error::required(&at, "must not be empty")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(Error::invalid(&at, "", "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                errors.push(Error::invalid(&at, text.as_str(), format!("unexpected GroupVersion string: {text}")));
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(Error::invalid(&at, other, "must be a string")),
        }
    }
}
