//! List merging and ordering in strategic merge patches.
//!
//! A merged list contains the items named by the patch (or by its `$setElementOrder`) in the patch's order, and the
//! items that only the live list has in live order. The two are interleaved: a live-only item precedes the first of the
//! patch's items that followed it in the live list. An item that the live list did not have counts as following
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::merge::{self, Onto};
use super::{DIRECTIVE, Error, Fault, OBJECT, Spot, Strategy, directive};
use crate::patch::gofmt;
use crate::{Str, Value};

pub(super) struct MergedList {
    pub items: Vec<Value>,
    /// The order of the live list as used by `$setElementOrder`.
    live: Vec<Key>,
}

/// A scalar that identifies an item: the item itself or the value of its merge key. `1` and `1.0` differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Null,
    Bool(bool),
    Int(i64),
    Float(u64),
    String(Str),
}

/// The kind of the items of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Scalars,
    Objects,
}

/// Merges `patch` into `live`, a list with the merge strategy.
pub(super) fn merge(
    live: Vec<Value>,
    patch: Vec<Value>,
    strategy: Strategy<'_>,
    spot: Spot<'_>,
    onto: Onto,
) -> Result<MergedList, Error> {
    if live.is_empty() && patch.is_empty() {
        return Ok(MergedList { items: live, live: Vec::new() });
    }
    match (kind(&[&live, &patch], spot)?, strategy.patch.merge_key.as_ref()) {
        (Kind::Objects, Some(key)) => merge_objects(live, patch, key, strategy.items_at(spot.path), onto),
        (Kind::Objects, None) => Err(spot.error(Fault::NoMergeKeyDeclared)),
        (Kind::Scalars, Some(_)) => {
            let scalar = live.first().or(patch.first()).expect("one of the lists is not empty");
            Err(spot.wrong_type(OBJECT, scalar))
        }
        (Kind::Scalars, None) => merge_scalars(live, patch, spot),
    }
}

/// Merges `live` and `patch`, each if present, and sorts the result by `order`. Returns [`None`] if both are absent.
pub(super) fn merge_in_order(
    live: Option<Vec<Value>>,
    patch: Option<Vec<Value>>,
    order: &[Value],
    strategy: Strategy<'_>,
    spot: Spot<'_>,
    onto: Onto,
) -> Result<Option<Vec<Value>>, Error> {
    let key = strategy.patch.merge_key.as_ref();
    check_order(patch.as_deref().unwrap_or_default(), order, key, spot)?;
    let kind = match (&live, &patch) {
        (None, None) => return Ok(None),
        _ => kind(&[live.as_deref().unwrap_or_default(), patch.as_deref().unwrap_or_default()], spot)?,
    };
    let key = key.filter(|_| kind == Kind::Objects);
    let merged = match (live, patch) {
        (Some(live), Some(patch)) if strategy.patch.merge => merge(live, patch, strategy, spot, onto)?,
        (None, Some(items)) => {
            let items = items.into_iter().filter_map(|item| merge::fresh(item, onto)).collect();
            MergedList { items, live: Vec::new() }
        }
        (Some(live), Some(items)) => MergedList { items, live: keys(&live, key, spot)? },
        (live, None) => {
            let items = live.unwrap_or_default();
            let live = keys(&items, key, spot)?;
            MergedList { items, live }
        }
    };
    let desired = keys(order, key, spot)?;
    let found = keys(&merged.items, key, spot)?;
    Ok(Some(arrange(found.into_iter().zip(merged.items).collect(), &ranks(desired), &ranks(merged.live))))
}

/// Removes the scalars in `doomed` from `live`.
pub(super) fn delete(live: &mut Vec<Value>, doomed: &[Value], spot: Spot<'_>) -> Result<(), Error> {
    if live.is_empty() && doomed.is_empty() {
        return Ok(());
    }
    if kind(&[live, doomed], spot)? == Kind::Objects {
        return Err(spot.error(Fault::DeleteFromPrimitiveList));
    }
    let doomed: BTreeSet<Key> = keys(doomed, None, spot)?.into_iter().collect();
    live.retain(|item| Key::of(item).is_none_or(|key| !doomed.contains(&key)));
    Ok(())
}

/// Returns the kind of the items in all `lists`; fails if the items differ in type.
pub(super) fn kind(lists: &[&[Value]], spot: Spot<'_>) -> Result<Kind, Error> {
    let mut items = lists.iter().copied().flatten();
    let first = items.next().ok_or_else(|| spot.error(Fault::NoElements))?;
    if matches!(first, Value::Array(_)) {
        return Err(spot.error(Fault::ListOfLists));
    }
    if first.is_null() || items.any(|item| std::mem::discriminant(item) != std::mem::discriminant(first)) {
        let lists = Value::Array(lists.iter().map(|list| Value::Array(list.to_vec())).collect());
        return Err(spot.error(Fault::MixedTypes(gofmt::Plain(&lists).to_string())));
    }
    Ok(if matches!(first, Value::Object(_)) { Kind::Objects } else { Kind::Scalars })
}

/// Returns the keys of `items`: the items themselves, or the values of their merge key.
pub(super) fn keys(items: &[Value], merge_key: Option<&Str>, spot: Spot<'_>) -> Result<Vec<Key>, Error> {
    let scalar = |value| Key::of(value).ok_or_else(|| spot.error(Fault::NotComparable(gofmt::type_name(value))));
    match merge_key {
        None => items.iter().map(scalar).collect(),
        Some(merge_key) => items.iter().map(|item| scalar(merge_value(item, merge_key, spot)?)).collect(),
    }
}

/// Returns the value of an item's merge key.
pub(super) fn merge_value<'a>(item: &'a Value, merge_key: &Str, spot: Spot<'_>) -> Result<&'a Value, Error> {
    let Value::Object(object) = item else { return Err(spot.wrong_type(OBJECT, item)) };
    let missing = || Fault::NoMergeKey { map: gofmt::Plain(item).to_string(), key: merge_key.clone() };
    object.get(merge_key).ok_or_else(|| spot.error(missing()))
}

/// Returns the index of the first occurrence of each key.
pub(super) fn ranks(keys: Vec<Key>) -> BTreeMap<Key, usize> {
    let mut ranks = BTreeMap::new();
    for (at, key) in keys.into_iter().enumerate() {
        ranks.entry(key).or_insert(at);
    }
    ranks
}

impl Key {
    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(Self::Null),
            Value::Bool(it) => Some(Self::Bool(*it)),
            Value::Int(it) => Some(Self::Int(*it)),
            Value::Float(it) => Some(Self::Float(it.to_bits())),
            Value::String(it) => Some(Self::String(it.clone())),
            Value::Array(_) | Value::Object(_) => None,
        }
    }
}

fn merge_scalars(live: Vec<Value>, patch: Vec<Value>, spot: Spot<'_>) -> Result<MergedList, Error> {
    let live_keys = keys(&live, None, spot)?;
    let patch_keys = keys(&patch, None, spot)?;
    let mut seen = BTreeSet::new();
    let all = live_keys.iter().chain(&patch_keys).cloned().zip(live.into_iter().chain(patch));
    let items = all.filter(|(key, _)| seen.insert(key.clone())).collect();
    let items = arrange(items, &ranks(patch_keys), &ranks(live_keys.clone()));
    Ok(MergedList { items, live: live_keys })
}

/// The items of a patch list, grouped by directive.
#[derive(Default)]
struct Items {
    plain: Vec<Value>,
    doomed: BTreeSet<Key>,
    replace: bool,
}

fn merge_objects(
    live: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &Str,
    spot: Spot<'_>,
    onto: Onto,
) -> Result<MergedList, Error> {
    let items = sort_out(patch, merge_key, spot)?;
    let patch_keys = keys(&items.plain, Some(merge_key), spot)?;
    if items.replace {
        return Ok(MergedList { items: items.plain, live: Vec::new() });
    }
    let live_len = live.len();
    let mut live_keys = keys(&live, Some(merge_key), spot)?;
    let mut merged: Vec<(Key, Value)> = live_keys.drain(..).zip(live).collect();
    merged.retain(|(key, _)| !items.doomed.contains(key));
    live_keys.extend(merged.iter().map(|(key, _)| key.clone()));
    let live_ranks = ranks(live_keys.clone());
    let mut places = live_ranks.clone();
    for (key, item) in patch_keys.iter().zip(items.plain) {
        if let Some(&at) = places.get(key) {
            let path = spot.path.index(at);
            let (Value::Object(left), Value::Object(item)) = (merged[at].1.take(), item) else {
                unreachable!("items with a merge key are objects")
            };
            merged[at].1 = merge::objects(left, item, Spot { path: &path, ..spot }, onto)?.into();
        } else {
            places.insert(key.clone(), merged.len());
            // In upstream, new items reuse the memory of deleted ones, where $setElementOrder finds them. The resulting
            // order is visible to users.
            if live_keys.len() < live_len {
                live_keys.push(key.clone());
            }
            merged.extend(merge::fresh(item, onto).map(|item| (key.clone(), item)));
        }
    }
    Ok(MergedList { items: arrange(merged, &ranks(patch_keys), &live_ranks), live: live_keys })
}

fn sort_out(patch: Vec<Value>, merge_key: &Str, spot: Spot<'_>) -> Result<Items, Error> {
    let mut items = Items::default();
    for item in patch {
        let Some(found) = item.get(DIRECTIVE) else {
            items.plain.push(item);
            continue;
        };
        match found.as_str() {
            Some("delete") => items.doomed.extend(keys(std::slice::from_ref(&item), Some(merge_key), spot)?),
            Some("replace") => items.replace = true,
            Some("merge") => return Err(spot.error(Fault::MergeDirective)),
            _ => {
                let directive = gofmt::AsString(found).to_string();
                let map = gofmt::Plain(&item).to_string();
                return Err(spot.error(Fault::UnknownDirective { directive, map }));
            }
        }
    }
    Ok(items)
}

/// Sorts the items of `desired` in that order, and places the others between them as in the `live` list.
fn arrange(items: Vec<(Key, Value)>, desired: &BTreeMap<Key, usize>, live: &BTreeMap<Key, usize>) -> Vec<Value> {
    let (mut named, mut others): (Vec<_>, Vec<_>) = items.into_iter().partition(|(key, _)| desired.contains_key(key));
    // Directives that are kept for the object come last.
    named.sort_by_key(|(key, item)| (directive(item) == Some("delete"), desired.get(key)));
    others.sort_by_key(|(key, item)| {
        let rank = live.get(key);
        (directive(item) == Some("delete"), rank.is_none(), rank)
    });
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (key, item) in named {
        if let Some(rank) = live.get(&key) {
            while let Some((_, other)) = others.next_if(|(other, _)| live.get(other).is_some_and(|it| it < rank)) {
                arranged.push(other);
            }
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(_, item)| item));
    arranged
}

/// Fails unless the items of a patch occur in its `$setElementOrder`, in the same order.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&Str>, spot: Spot<'_>) -> Result<(), Error> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch {
        if merge_key.is_some() && !matches!(item, Value::Object(_)) {
            return Err(spot.wrong_type(OBJECT, item));
        }
        if item.get(DIRECTIVE).is_some() {
            continue;
        }
        let item_key = keys(std::slice::from_ref(item), merge_key, spot)?;
        loop {
            let Some(next) = rest.next() else {
                let print = |items: &[Value]| gofmt::Plain(&Value::Array(items.to_vec())).to_string();
                return Err(spot.error(Fault::Order { patch: print(patch), order: print(order) }));
            };
            if keys(std::slice::from_ref(next), merge_key, spot)? == item_key {
                break;
            }
        }
    }
    Ok(())
}
