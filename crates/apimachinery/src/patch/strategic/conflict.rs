//! Conflict detection: whether two patches change the same field to different values.

use std::collections::BTreeMap;

use super::list::{self, Kind};
use super::{DIRECTIVE, Error, Spot, is_directive};
use crate::patch::gofmt;
use crate::{Object, Str, Value};

/// Whether `left` and `right` have different values for a common field.
pub(super) fn objects(left: &Object, right: &Object, spot: Spot<'_>) -> Result<bool, Error> {
    // A directive applies to the entire object: it conflicts with everything except itself.
    if left.get(DIRECTIVE) != right.get(DIRECTIVE) {
        return Ok(true);
    }
    for (key, left) in left.iter() {
        let Some(right) = right.get(key).filter(|_| !is_directive(key)) else { continue };
        let path = spot.path.field(key);
        let strategy = spot.strategy(key);
        let at = strategy.at(&path);
        let conflict = match (left, right) {
            // DEVIATION: upstream reports no conflict between objects with the replace strategy.
            (Value::Object(_), Value::Object(_)) if strategy.patch.replace => left != right,
            (Value::Array(left), Value::Array(right)) if left.is_empty() && right.is_empty() => false,
            (Value::Array(left), Value::Array(right)) if strategy.patch.merge => {
                merged_lists(left, right, strategy.patch.merge_key.as_ref(), strategy.items_at(&path))?
            }
            _ => values(left, right, at)?,
        };
        if conflict {
            return Ok(true);
        }
    }
    Ok(false)
}

fn values(left: &Value, right: &Value, spot: Spot<'_>) -> Result<bool, Error> {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => objects(left, right, spot),
        (Value::Array(left), Value::Array(right)) => replaced_lists(left, right, spot),
        (left, right) => Ok(left != right),
    }
}

/// Compares lists with the replace strategy item by item; the order of scalars does not matter.
fn replaced_lists(left: &[Value], right: &[Value], spot: Spot<'_>) -> Result<bool, Error> {
    if left.len() != right.len() {
        return Ok(true);
    }
    if left.iter().chain(right).all(|item| list::Key::of(item).is_some()) {
        let sorted = |items: &[Value]| {
            let mut texts: Vec<_> = items.iter().filter_map(list::Key::of).collect();
            texts.sort_unstable();
            texts.dedup();
            texts
        };
        return Ok(sorted(left) != sorted(right));
    }
    let items = Spot { schema: spot.schema.and_then(crate::Schema::item), path: spot.path };
    for (left, right) in left.iter().zip(right) {
        if values(left, right, items)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Compares the items with equal keys of lists with the merge strategy; scalars never conflict.
fn merged_lists(left: &[Value], right: &[Value], merge_key: Option<&Str>, spot: Spot<'_>) -> Result<bool, Error> {
    let (Some(merge_key), Kind::Objects) = (merge_key, list::kind(&[left, right], spot)?) else { return Ok(false) };
    let mut by_key: BTreeMap<String, &Value> = BTreeMap::new();
    for item in right {
        by_key.insert(gofmt::AsString(list::merge_value(item, merge_key, spot)?).to_string(), item);
    }
    for item in left {
        let key = gofmt::AsString(list::merge_value(item, merge_key, spot)?).to_string();
        if let Some(other) = by_key.get(&key)
            && values(item, other, spot)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}
