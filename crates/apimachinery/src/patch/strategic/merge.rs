//! Merging a strategic merge patch into an object, or into another patch.

use super::{
    DELETE_FROM_PRIMITIVE_LIST, DIRECTIVE, Error, Fault, LIST, RETAIN_KEYS, SET_ELEMENT_ORDER, Spot, Strategy,
    is_directive, list,
};
use crate::patch::{Changes, gofmt, merge::discard_nulls};
use crate::{Object, Str, Value};

/// The target of a merge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Onto {
    /// An object: directives are executed, and `null` removes a field.
    Object,
    /// Another patch: directives and nulls are kept for the object that both patches are for.
    Patch,
}

pub(super) fn objects(mut left: Object, mut patch: Object, spot: Spot<'_>, onto: Onto) -> Result<Object, Error> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => {
                let directive = gofmt::AsString(directive).to_string();
                let map = gofmt::Plain(&patch.into()).to_string();
                Err(spot.error(Fault::UnknownDirective { directive, map }))
            }
        };
    }
    let mut patch = Parts::split(patch);
    let mut changes = Changes::default();
    if let Some(keys) = patch.retain_keys.take() {
        retain_keys(&mut left, keys, &patch, &mut changes, spot, onto)?;
    }
    for (directive, order) in std::mem::take(&mut patch.orders) {
        put_in_order(&mut left, directive, order, &mut patch.fields, &mut changes, spot, onto)?;
    }
    for (directive, items) in patch.deletions {
        delete_scalars(&mut left, directive, items, &mut changes, spot, onto)?;
    }
    for (key, value) in patch.fields {
        let Some(value) = value else { continue };
        let strategy = spot.strategy(&key);
        let path = spot.path.field(&key);
        match field(left.get_mut(&key), value, strategy, strategy.at(&path), onto)? {
            Outcome::Done => {}
            Outcome::Add(value) => changes.added.push((key, value)),
            Outcome::Remove => changes.removed.push(key),
        }
    }
    changes.make(&mut left);
    Ok(left)
}

/// A patch with its directives separated from its fields. A processed field is [`None`].
struct Parts {
    retain_keys: Option<Value>,
    orders: Vec<(Str, Value)>,
    deletions: Vec<(Str, Value)>,
    fields: Vec<(Str, Option<Value>)>,
}

impl Parts {
    fn split(patch: Object) -> Self {
        let mut parts = Self { retain_keys: None, orders: Vec::new(), deletions: Vec::new(), fields: Vec::new() };
        for (key, value) in patch {
            if key == RETAIN_KEYS {
                parts.retain_keys = Some(value);
            } else if key.starts_with(SET_ELEMENT_ORDER) {
                parts.orders.push((key, value));
            } else if key.starts_with(DELETE_FROM_PRIMITIVE_LIST) {
                parts.deletions.push((key, value));
            } else {
                parts.fields.push((key, Some(value)));
            }
        }
        parts
    }
}

/// The action for a field.
enum Outcome {
    Done,
    Add(Value),
    Remove,
}

fn field(
    left: Option<&mut Value>,
    value: Value,
    strategy: Strategy<'_>,
    spot: Spot<'_>,
    onto: Onto,
) -> Result<Outcome, Error> {
    let Some(left) = left else {
        return Ok(match (value.is_null(), onto) {
            (true, Onto::Object) => Outcome::Done,
            _ => fresh(value, onto).map_or(Outcome::Done, Outcome::Add),
        });
    };
    *left = match (left.take(), value) {
        (_, Value::Null) if onto == Onto::Object => return Ok(Outcome::Remove),
        (Value::Object(_), Value::Object(patch)) if strategy.patch.replace => Value::Object(patch),
        (Value::Object(left), Value::Object(patch)) => Value::Object(objects(left, patch, spot, onto)?),
        (Value::Array(left), Value::Array(patch)) if strategy.patch.merge => {
            Value::Array(list::merge(left, patch, strategy, spot, onto)?.items)
        }
        (Value::Array(_), Value::Array(patch)) => Value::Array(patch),
        (_, value) => match fresh(value, onto) {
            Some(value) => value,
            None => return Ok(Outcome::Remove),
        },
    };
    Ok(Outcome::Done)
}

/// Returns the value to set if there is nothing to merge with; [`None`] if the value is an object with `$patch`.
pub(super) fn fresh(mut value: Value, onto: Onto) -> Option<Value> {
    if onto == Onto::Patch {
        return Some(value);
    }
    discard_nulls(&mut value);
    without_directives(&mut value).then_some(value)
}

/// Removes the directives from a tree, and returns whether the tree itself is kept.
// DEVIATION: upstream removes only $patch; the others reach the decoder, which drops or rejects them as unknown fields.
fn without_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(object) if object.contains_key(DIRECTIVE) => return false,
        Value::Object(object) => object.retain(|key, value| !is_directive(key) && without_directives(value)),
        Value::Array(items) => items.retain_mut(without_directives),
        _ => {}
    }
    true
}

fn retain_keys(
    left: &mut Object,
    keys: Value,
    patch: &Parts,
    changes: &mut Changes,
    spot: Spot<'_>,
    onto: Onto,
) -> Result<(), Error> {
    if onto == Onto::Patch {
        match left.get(RETAIN_KEYS) {
            None => changes.added.push((RETAIN_KEYS.into(), keys)),
            Some(have) if *have == keys => {}
            Some(have) => {
                let print = |keys| gofmt::Plain(keys).to_string();
                return Err(spot.error(Fault::RetainKeysDiffer(print(have), print(&keys))));
            }
        }
        return Ok(());
    }
    let names = keys.as_array().and_then(|keys| keys.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    let Some(mut names) = names else { return Err(spot.error(Fault::RetainKeys)) };
    names.sort_unstable();
    let set = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    let stays = |key: &str| names.binary_search(&key).is_ok();
    if patch.fields.iter().any(|(key, value)| set(value) && !stays(key)) {
        return Err(spot.error(Fault::RetainKeys));
    }
    left.retain(|key, _| stays(key));
    Ok(())
}

/// Merges the list that a `$setElementOrder` directive names, if the patch contains that list, and sorts the result.
fn put_in_order(
    left: &mut Object,
    directive: Str,
    order: Value,
    fields: &mut [(Str, Option<Value>)],
    changes: &mut Changes,
    spot: Spot<'_>,
    onto: Onto,
) -> Result<(), Error> {
    let name = list_name(&directive, SET_ELEMENT_ORDER).ok_or_else(|| spot.error(Fault::SetElementOrder))?;
    let path = spot.path.field(name);
    let strategy = spot.known_strategy(name)?;
    let spot = strategy.at(&path);
    if let (Onto::Patch, Some(have)) = (onto, left.get(&directive))
        && *have != order
    {
        return Err(spot.error(Fault::SetElementOrder));
    }
    let Value::Array(order) = order else { return Err(spot.wrong_type(LIST, &order)) };
    let patch = match take(fields, name) {
        None => None,
        Some(Value::Array(items)) => Some(items),
        Some(other) => return Err(spot.wrong_type(LIST, &other)),
    };
    let live = match left.get_mut(name).map(Value::take) {
        None => None,
        Some(Value::Array(items)) => Some(items),
        Some(other) => return Err(spot.wrong_type(LIST, &other)),
    };
    let known = live.is_some();
    let ordered = list::merge_in_order(live, patch, &order, strategy, spot, onto)?;
    if let Some(items) = ordered {
        if known {
            left.insert(name, items);
        } else {
            changes.added.push((name.into(), items.into()));
        }
    }
    if onto == Onto::Patch && !left.contains_key(&directive) {
        changes.added.push((directive, order.into()));
    }
    Ok(())
}

// DEVIATION: upstream ignores a $deleteFromPrimitiveList that is not a list, and removes the field if it is null.
fn delete_scalars(
    left: &mut Object,
    directive: Str,
    items: Value,
    changes: &mut Changes,
    spot: Spot<'_>,
    onto: Onto,
) -> Result<(), Error> {
    let malformed = || spot.error(Fault::DeleteFromPrimitiveList);
    let name = list_name(&directive, DELETE_FROM_PRIMITIVE_LIST).ok_or_else(malformed)?;
    let Value::Array(doomed) = items else { return Err(malformed()) };
    if onto == Onto::Patch {
        changes.removed.push(directive.clone());
        changes.added.push((directive, doomed.into()));
        return Ok(());
    }
    if let Some(Value::Array(live)) = left.get_mut(name) {
        let path = spot.path.field(name);
        list::delete(live, &doomed, Spot { schema: None, path: &path })?;
    }
    Ok(())
}

/// Returns the name of the list of a directive such as `$setElementOrder/ports`.
fn list_name<'a>(directive: &'a str, prefix: &str) -> Option<&'a str> {
    directive.strip_prefix(prefix)?.strip_prefix('/')
}

fn take(fields: &mut [(Str, Option<Value>)], name: &str) -> Option<Value> {
    let at = fields.binary_search_by(|(key, _)| key.as_str().cmp(name)).ok()?;
    fields[at].1.take()
}
