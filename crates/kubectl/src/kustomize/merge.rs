//! Kustomize's strategic merge, which differs from the API server's.
//!
//! New items of merged lists come before the existing ones. Only `$patch` is a directive; `$patch: replace` in an item
//! of a list has no effect. A list is merged if the schema of its field requires it, by all keys of its items.

use apimachinery::schema::{ListKind, Schema, Shape};
use apimachinery::{Object, Value};

use super::Error;

const DIRECTIVE: &str = "$patch";

/// Merges `patch` into an object. Returns [`None`] if the patch deletes the object.
pub(super) fn merge(object: Value, patch: Value) -> Result<Option<Value>, Error> {
    let text = |path| object.str_at(&[path]).unwrap_or_default().to_owned();
    let schema = api::catalogue::find(&text("apiVersion"), &text("kind")).filter(|_| !text("apiVersion").is_empty());
    Ok(walk(Some(object), Some(patch), Spot { schema, keys: None })?.value)
}

/// The type of a value and, for a merged list, the keys of its items.
#[derive(Clone, Copy)]
struct Spot<'a> {
    schema: Option<Schema<'a>>,
    keys: Option<&'a [apimachinery::Str]>,
}

/// The merged value; [`None`] removes the field.
struct MergedValue {
    value: Option<Value>,
    /// Whether the value is the changed existing value, rather than the value of the patch.
    existing: bool,
}

enum Directive {
    Merge,
    Replace,
    Delete,
}

impl<'a> Spot<'a> {
    fn field(self, name: &str) -> Self {
        let Some(schema) = self.schema else { return Self { schema: None, keys: None } };
        let Some((field, schema)) = schema.field(name) else {
            return Self { schema: schema.child(name), keys: None };
        };
        if !field.patch.merge {
            return Self { schema: Some(schema), keys: None };
        }
        let keys = match schema.shape() {
            Shape::List(list) => match &list.kind {
                ListKind::Map(keys) => keys,
                ListKind::Set | ListKind::Atomic => field.patch.merge_key.as_slice(),
            },
            _ => field.patch.merge_key.as_slice(),
        };
        Self { schema: Some(schema), keys: Some(keys) }
    }

    fn item(self) -> Self {
        Self { schema: self.schema.and_then(Schema::item), keys: None }
    }
}

fn walk(dest: Option<Value>, patch: Option<Value>, spot: Spot<'_>) -> Result<MergedValue, Error> {
    let known = |value: &Option<Value>| value.as_ref().filter(|value| !value.is_null()).map(node_kind);
    let (dest_kind, patch_kind) = (known(&dest), known(&patch));
    if let (Some(expected), Some(found)) = (dest_kind, patch_kind)
        && expected != found
    {
        return Err(Error::new(format!("wrong node kind: expected {expected} but was {found}")));
    }
    match dest_kind.or(patch_kind) {
        Some("SequenceNode") => match spot.keys {
            Some(keys) => list(dest, patch, keys, spot),
            None => Ok(scalar(dest, patch)),
        },
        Some("ScalarNode") => Ok(scalar(dest, patch)),
        _ => map(dest, patch, spot),
    }
}

const fn node_kind(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "MappingNode",
        Value::Array(_) => "SequenceNode",
        _ => "ScalarNode",
    }
}

/// The patch's value replaces the existing one.
fn scalar(dest: Option<Value>, patch: Option<Value>) -> MergedValue {
    match patch {
        Some(patch) => MergedValue { value: Some(patch).filter(|value| !value.is_null()), existing: false },
        None => MergedValue { value: dest, existing: true },
    }
}

fn map(dest: Option<Value>, patch: Option<Value>, spot: Spot<'_>) -> Result<MergedValue, Error> {
    let deleted = MergedValue { value: None, existing: false };
    let (dest, patch, existing) = match (dest, patch) {
        (Some(Value::Object(dest)), None) => (dest, Object::new(), true),
        (dest, Some(Value::Object(mut patch))) => match (directive(&mut patch)?, dest) {
            (Directive::Delete, _) => return Ok(deleted),
            (Directive::Merge, Some(Value::Object(dest))) => (dest, patch, true),
            // Merging the patch with itself removes its nulls and directives.
            _ => (patch.clone(), patch, false),
        },
        // An explicit null of the existing object is kept.
        (Some(Value::Null), None) => return Ok(MergedValue { value: Some(Value::Null), existing: true }),
        _ => return Ok(deleted),
    };
    let mut names: Vec<String> = dest.keys().chain(patch.keys()).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    let (mut dest, mut patch) = (dest, patch);
    let mut merged = Object::with_capacity(names.len());
    for name in names {
        let field = walk(dest.remove(&name), patch.remove(&name), spot.field(&name))?;
        if let Some(value) = field.value {
            merged.insert(name, value);
        }
    }
    Ok(MergedValue { value: Some(merged.into()), existing })
}

/// Removes the directive from an object of the patch.
fn directive(patch: &mut Object) -> Result<Directive, Error> {
    match patch.remove(DIRECTIVE) {
        None => Ok(Directive::Merge),
        Some(Value::String(text)) if text == "merge" => Ok(Directive::Merge),
        Some(Value::String(text)) if text == "replace" => Ok(Directive::Replace),
        Some(Value::String(text)) if text == "delete" => Ok(Directive::Delete),
        Some(other) => Err(Error::new(format!("unknown patch strategy '{}'", text_of(&other)))),
    }
}

/// Removes the directive for a complete list, which is a separate item.
fn list_directive(items: &mut Vec<Value>) -> Result<Directive, Error> {
    let alone = |item: &Value| item.as_object().is_some_and(|item| item.len() == 1 && item.contains_key(DIRECTIVE));
    let Some(at) = items.iter().position(|item| item.get(DIRECTIVE).is_some()).filter(|at| alone(&items[*at])) else {
        return Ok(Directive::Merge);
    };
    match items.remove(at) {
        Value::Object(mut item) => directive(&mut item),
        _ => Ok(Directive::Merge),
    }
}

fn list(
    dest: Option<Value>,
    patch: Option<Value>,
    keys: &[apimachinery::Str],
    spot: Spot<'_>,
) -> Result<MergedValue, Error> {
    let deleted = MergedValue { value: None, existing: false };
    let (dest, patch, existing) = match (dest, patch) {
        (Some(Value::Array(dest)), None) => (dest, Vec::new(), true),
        (Some(Value::Array(_)), Some(Value::Null)) => return Ok(deleted),
        (Some(Value::Array(dest)), Some(Value::Array(mut patch))) => match list_directive(&mut patch)? {
            Directive::Delete => return Ok(deleted),
            Directive::Replace => (patch.clone(), patch, false),
            Directive::Merge => (dest, patch, true),
        },
        (_, Some(Value::Array(patch))) => (patch.clone(), patch, false),
        (dest, _) => return Ok(MergedValue { value: dest, existing: true }),
    };
    if keys.is_empty() {
        return Ok(MergedValue { value: Some(Value::Array(scalars(dest, patch))), existing });
    }
    let keys: Vec<&str> = keys.iter().map(apimachinery::Str::as_str).collect();
    let items = Items { dest, patch, keys: &keys, spot: spot.item() }.merge()?;
    Ok(MergedValue { value: Some(Value::Array(items)), existing })
}

/// Returns the scalars of the patch, then those that only the existing list has.
fn scalars(dest: Vec<Value>, patch: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for item in patch.into_iter().chain(dest) {
        if !merged.iter().any(|have| text_of(have) == text_of(&item)) {
            merged.push(item);
        }
    }
    merged
}

/// Lists whose items are identified by keys.
struct Items<'a> {
    dest: Vec<Value>,
    patch: Vec<Value>,
    keys: &'a [&'a str],
    spot: Spot<'a>,
}

/// The values of an item's keys; empty for absent keys.
type KeyValues = Vec<String>;

impl Items<'_> {
    fn merge(mut self) -> Result<Vec<Value>, Error> {
        let identities = self.identities();
        let mut merged: Vec<Value> = Vec::new();
        let mut used = self.keys.to_vec();
        for values in &identities {
            let (keys, values) = used_keys(&identities, values, self.keys);
            let item = self.merge_item(&keys, &values)?;
            used = keys.clone();
            match item {
                None => self.dest.retain(|item| !has_all(item, &keys, &values)),
                Some(item) => replace_or_push(&mut merged, item, &keys, &values),
            }
        }
        for item in self.dest {
            append_existing(&mut merged, item, &used);
        }
        Ok(merged)
    }

    /// Returns the distinct key values of all items, those of the patch first.
    fn identities(&self) -> Vec<KeyValues> {
        let mut identities: Vec<KeyValues> = Vec::new();
        for item in self.patch.iter().chain(&self.dest) {
            let values: KeyValues =
                self.keys.iter().map(|key| item.get(key).map(text_of).unwrap_or_default()).collect();
            if !identities.contains(&values) {
                identities.push(values);
            }
        }
        if self.keys.len() > 1 {
            unify(&mut identities);
        }
        identities
    }

    /// Merges the items with these key values. The existing item is changed in place.
    fn merge_item(&mut self, keys: &[&str], values: &[String]) -> Result<Option<Value>, Error> {
        let only = std::slice::from_ref(&values.to_vec()).to_vec();
        let (match_keys, match_values) = used_keys(&only, values, keys);
        let find = |items: &[Value]| items.iter().position(|item| has_all(item, &match_keys, &match_values));
        let (at, patch_at) = (find(&self.dest), find(&self.patch));
        let (dest, patch) = (at.map(|at| self.dest[at].clone()), patch_at.map(|at| self.patch[at].clone()));
        let outcome = walk(dest, patch, self.spot)?;
        let Some(mut item) = outcome.value.filter(|item| !item.as_object().is_some_and(Object::is_empty)) else {
            return Ok(None);
        };
        if let Value::Object(fields) = &mut item {
            for (key, value) in keys.iter().zip(values) {
                if !value.is_empty() && !fields.contains_key(key) {
                    fields.insert(*key, implicit(value));
                }
            }
        }
        if let (Some(at), true) = (at, outcome.existing) {
            self.dest[at] = item.clone();
        }
        Ok(Some(item))
    }
}

/// Completes key values with those of items that differ only in absent keys.
fn unify(identities: &mut [KeyValues]) {
    for left in 0..identities.len() {
        for right in 0..identities.len() {
            if let Some(common) = unified(&identities[left], &identities[right]) {
                identities[left].clone_from(&common);
                identities[right] = common;
            }
        }
    }
}

fn unified(left: &[String], right: &[String]) -> Option<KeyValues> {
    let conflict = left.iter().zip(right).any(|(a, b)| a != b && !a.is_empty() && !b.is_empty());
    let common = left.iter().zip(right).any(|(a, b)| a == b);
    let values = left.iter().zip(right).map(|(a, b)| if a.is_empty() { b.clone() } else { a.clone() });
    (common && !conflict).then(|| values.collect())
}

/// Returns the keys that any item has, with the values of one item.
fn used_keys<'k>(identities: &[KeyValues], values: &[String], keys: &[&'k str]) -> (Vec<&'k str>, Vec<String>) {
    let used = |at: usize| identities.iter().any(|values| values.get(at).is_some_and(|value| !value.is_empty()));
    let positions: Vec<usize> = (0..keys.len()).filter(|at| used(*at)).collect();
    if positions.is_empty() {
        return (keys.to_vec(), values.to_vec());
    }
    (positions.iter().map(|at| keys[*at]).collect(), positions.iter().map(|at| values[*at].clone()).collect())
}

fn has_all(item: &Value, keys: &[&str], values: &[String]) -> bool {
    keys.iter().zip(values).all(|(key, value)| item.get(key).is_some_and(|have| text_of(have) == *value))
}

fn replace_or_push(items: &mut Vec<Value>, item: Value, keys: &[&str], values: &[String]) {
    let mut found = false;
    for have in items.iter_mut().filter(|have| has_all(have, keys, values)) {
        *have = item.clone();
        found = true;
    }
    if !found {
        items.push(item);
    }
}

/// Adds an existing item after the merged ones. With several keys, its merged form moves to the end.
fn append_existing(merged: &mut Vec<Value>, item: Value, keys: &[&str]) {
    let values: Vec<String> = keys.iter().filter_map(|key| item.get(key).map(text_of)).collect();
    if values.is_empty() {
        merged.push(item);
        return;
    }
    if keys.len() > 1 {
        merged.retain(|have| !has_all(have, keys, &values));
    }
    replace_or_push(merged, item, keys, &values);
}

/// Returns the text of a scalar as in YAML; of other values the JSON.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns the value of a plain YAML scalar.
pub(super) fn implicit(text: &str) -> Value {
    let parsed = apimachinery::yaml::parse(text).ok().filter(|value| node_kind(value) == "ScalarNode");
    parsed.filter(|value| !value.is_null()).unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use apimachinery::yaml;

    use super::*;

    fn check(spec: &str, patch: &str, expect: &str) {
        let pod = |spec: &str| {
            let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {spec}}}");
            yaml::parse(&text).unwrap()
        };
        let merged = merge(pod(spec), pod(patch)).unwrap().unwrap();
        assert_eq!(merged["spec"], yaml::parse(expect).unwrap(), "{spec} {patch}");
    }

    #[test]
    fn items_of_the_patch_come_first() {
        check(
            "{containers: [{name: a, image: x}, {name: b}]}",
            "{containers: [{name: new}, {name: b, image: y}]}",
            "{containers: [{name: new}, {name: b, image: y}, {name: a, image: x}]}",
        );
    }

    #[test]
    fn items_and_fields_are_deleted() {
        check(
            "{hostname: x, volumes: [{name: a}, {name: b}], tolerations: [{key: k}]}",
            "{hostname: null, volumes: [{name: a, $patch: delete}], tolerations: null}",
            "{volumes: [{name: b}]}",
        );
    }

    #[test]
    fn ports_are_identified_by_two_keys() {
        check(
            "{containers: [{name: a, ports: [{containerPort: 80}, {containerPort: 81, protocol: UDP}]}]}",
            "{containers: [{name: a, ports: [{containerPort: 90}, {containerPort: 80, name: http}]}]}",
            "{containers: [{name: a, ports: [{containerPort: 90}, {containerPort: 80, name: http}, {containerPort: 81, protocol: UDP}]}]}",
        );
    }

    #[test]
    fn replacing_an_item_has_no_effect_but_replacing_a_list_has() {
        check(
            "{containers: [{name: a, image: x}]}",
            "{containers: [{name: a, image: y, $patch: replace}]}",
            "{containers: [{name: a, image: x}]}",
        );
        check(
            "{containers: [{name: a, image: x}]}",
            "{containers: [{$patch: replace}, {name: b}]}",
            "{containers: [{name: b}]}",
        );
    }

    #[test]
    fn lists_without_a_merge_strategy_are_replaced() {
        check(
            "{containers: [{name: a, args: [x, y]}]}",
            "{containers: [{name: a, args: [z]}]}",
            "{containers: [{name: a, args: [z]}]}",
        );
    }
}
