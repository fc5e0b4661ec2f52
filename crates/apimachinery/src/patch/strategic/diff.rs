//! Two-way diff: creates a strategic merge patch from two objects.

use std::cmp::Ordering;

use super::list::{self, Kind};
use super::{DELETE_FROM_PRIMITIVE_LIST, DIRECTIVE, Error, Fault, RETAIN_KEYS, SET_ELEMENT_ORDER, Spot, Strategy};
use crate::patch::gofmt;
use crate::{Object, Str, Value};

/// The parts of a patch to create.
#[derive(Clone, Copy)]
pub(super) struct Options {
    /// `$setElementOrder` directives.
    pub order: bool,
    /// Added and changed fields.
    pub changes: bool,
    /// Removed fields.
    pub deletions: bool,
}

/// Returns the patch from `original` to `modified`.
pub(super) fn objects(original: &Object, modified: &Object, spot: Spot<'_>, options: Options) -> Result<Object, Error> {
    fields(original, modified, spot, options).map(Vec::into_iter).map(Iterator::collect)
}

type Fields = Vec<(Str, Value)>;

fn fields(original: &Object, modified: &Object, spot: Spot<'_>, options: Options) -> Result<Fields, Error> {
    let mut patch = Fields::new();
    for (key, new) in modified.iter() {
        let path = spot.path.field(key);
        let strategy = spot.strategy(key);
        match (original.get(key), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::String(_)), Value::String(_)) | (None, _) if key == DIRECTIVE => {
                push_if_changed(&mut patch, key, original.get(key), new, options);
            }
            (Some(_), _) if key == DIRECTIVE => return Err(spot.error(Fault::BadDirective)),
            // DEVIATION: upstream always includes an object with the replace strategy, even if it is unchanged.
            (Some(Value::Object(old)), Value::Object(new)) if !strategy.patch.replace => {
                let inner = object(old, new, strategy, strategy.at(&path), options)?;
                if !inner.is_empty() {
                    patch.push((key.into(), inner.into()));
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) if strategy.patch.merge => {
                lists(&mut patch, key, old, new, strategy, strategy.at(&path), options)?;
            }
            (old, new) => push_if_changed(&mut patch, key, old, new, options),
        }
    }
    if options.deletions {
        let removed_keys = original.keys().filter(|key| !modified.contains_key(key));
        patch.extend(removed_keys.map(|key| (key.into(), Value::Null)));
    }
    Ok(patch)
}

fn push_if_changed(patch: &mut Fields, key: &str, old: Option<&Value>, new: &Value, options: Options) {
    if options.changes && old != Some(new) {
        patch.push((key.into(), new.clone()));
    }
}

/// Returns the patch between two objects, with `$retainKeys` if the strategy requires it.
fn object(
    original: &Object,
    modified: &Object,
    strategy: Strategy<'_>,
    spot: Spot<'_>,
    options: Options,
) -> Result<Object, Error> {
    let mut patch = fields(original, modified, spot, options)?;
    if strategy.patch.retain_keys {
        let retained: Vec<Value> =
            modified.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.into()).collect();
        let cleared = || original.iter().any(|(key, value)| !value.is_null() && !modified.contains_key(key));
        if !retained.is_empty() && (!patch.is_empty() || cleared()) {
            patch.push((RETAIN_KEYS.into(), retained.into()));
        }
    }
    Ok(patch.into_iter().collect())
}

/// The difference of two lists: added and changed items, items removed from a list of scalars, and the order.
#[derive(Default)]
struct Difference {
    set: Vec<Value>,
    removed: Vec<Value>,
    order: Vec<Value>,
}

fn lists(
    patch: &mut Fields,
    key: &str,
    original: &[Value],
    modified: &[Value],
    strategy: Strategy<'_>,
    spot: Spot<'_>,
    options: Options,
) -> Result<(), Error> {
    let difference = if original.is_empty() {
        let set = if options.changes { modified.to_vec() } else { Vec::new() };
        Difference { set, ..Difference::default() }
    } else {
        match (list::kind(&[original, modified], spot)?, &strategy.patch.merge_key) {
            (Kind::Objects, Some(merge_key)) => {
                lists_of_objects(original, modified, merge_key, strategy, strategy.items_at(spot.path), options)?
            }
            (Kind::Objects, None) => return Err(spot.error(Fault::NoMergeKeyDeclared)),
            (Kind::Scalars, _) => lists_of_scalars(original, modified, spot, options)?,
        }
    };
    let mut push = |name: Str, items: Vec<Value>| {
        if !items.is_empty() {
            patch.push((name, items.into()));
        }
    };
    push(key.into(), difference.set);
    push(format!("{DELETE_FROM_PRIMITIVE_LIST}/{key}").into(), difference.removed);
    push(format!("{SET_ELEMENT_ORDER}/{key}").into(), difference.order);
    Ok(())
}

fn lists_of_objects(
    original: &[Value],
    modified: &[Value],
    merge_key: &Str,
    strategy: Strategy<'_>,
    spot: Spot<'_>,
    options: Options,
) -> Result<Difference, Error> {
    let (old, new) = (by_key(original, merge_key, spot)?, by_key(modified, merge_key, spot)?);
    let mut set = Vec::new();
    let mut deleted = Vec::new();
    walk_both(&old, &new, |old, new| {
        match (old, new) {
            (Some(old), Some(new)) => {
                let path = spot.path.index(new.at);
                let mut patch = object(old.item, new.item, strategy, Spot { path: &path, ..spot }, options)?;
                if !patch.is_empty() {
                    patch.insert(merge_key.clone(), new.value.clone());
                    set.push((new.at, patch.into()));
                }
            }
            (None, Some(new)) if options.changes => set.push((new.at, new.item.clone().into())),
            (Some(old), None) if options.deletions => {
                let item = [(merge_key.clone(), old.value.clone()), (DIRECTIVE.into(), "delete".into())];
                deleted.push(Value::Object(item.into_iter().collect()));
            }
            _ => {}
        }
        Ok(())
    })?;
    set.sort_by_key(|(at, _)| *at);
    let set: Vec<Value> = set.into_iter().map(|(_, item)| item).chain(deleted).collect();
    let same_order =
        || list::keys(original, Some(merge_key), spot).ok() == list::keys(modified, Some(merge_key), spot).ok();
    let needs_order = options.order
        && ((options.changes && (!set.is_empty() || !same_order())) || (options.deletions && !set.is_empty()));
    let order = if needs_order { modified.iter().map(|item| only(item, merge_key)).collect() } else { Vec::new() };
    Ok(Difference { set, removed: Vec::new(), order })
}

/// An item of a list of objects, with its merge key value.
struct Item<'a> {
    at: usize,
    text: String,
    value: &'a Value,
    item: &'a Object,
}

/// Returns the items sorted by the text of their keys. Items with the same key are in reverse order, as after
/// upstream's sort; this determines which of them are paired.
fn by_key<'a>(items: &'a [Value], merge_key: &Str, spot: Spot<'_>) -> Result<Vec<Item<'a>>, Error> {
    let mut sorted = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate().rev() {
        let value = list::merge_value(item, merge_key, spot)?;
        if let Value::Object(item) = item {
            sorted.push(Item { at, text: gofmt::Plain(value).to_string(), value, item });
        }
    }
    sorted.sort_by(|a, b| a.text.cmp(&b.text));
    Ok(sorted)
}

fn walk_both<'a>(
    mut old: &'a [Item<'a>],
    mut new: &'a [Item<'a>],
    mut visit: impl FnMut(Option<&'a Item<'a>>, Option<&'a Item<'a>>) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        let order = match (old.first(), new.first()) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.text.cmp(&new.text),
        };
        let left = old.split_first().filter(|_| order.is_le());
        let right = new.split_first().filter(|_| order.is_ge());
        visit(left.map(|(item, _)| item), right.map(|(item, _)| item))?;
        old = left.map_or(old, |(_, rest)| rest);
        new = right.map_or(new, |(_, rest)| rest);
    }
}

fn only(item: &Value, merge_key: &Str) -> Value {
    let value = item.get(merge_key).cloned().unwrap_or_default();
    Value::Object([(merge_key.clone(), value)].into_iter().collect())
}

// DEVIATION: upstream sorts the original list before it checks for a changed order, and so misses some changes of order
// and reports others that are none.
fn lists_of_scalars(
    original: &[Value],
    modified: &[Value],
    spot: Spot<'_>,
    options: Options,
) -> Result<Difference, Error> {
    let old = list::ranks(list::keys(original, None, spot)?);
    let new = list::ranks(list::keys(modified, None, spot)?);
    let mut difference = Difference::default();
    if options.changes {
        let mut set: Vec<usize> = new.iter().filter(|(key, _)| !old.contains_key(key)).map(|(_, at)| *at).collect();
        set.sort_unstable();
        difference.set = set.into_iter().map(|at| modified[at].clone()).collect();
    }
    if options.deletions {
        let removed = old.iter().filter(|(key, _)| !new.contains_key(key));
        difference.removed = removed.map(|(_, at)| original[*at].clone()).collect();
        difference.removed.sort_by_cached_key(|item| gofmt::Plain(item).to_string());
    }
    if options.order && (!difference.removed.is_empty() || (options.changes && original != modified)) {
        difference.order = modified.to_vec();
    }
    Ok(difference)
}
