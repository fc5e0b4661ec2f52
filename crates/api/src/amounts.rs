//! Resource amounts by name.

use std::collections::BTreeMap;

use apimachinery::quantity::{Format, Quantity};
use apimachinery::{Object, Str, Value};

/// Quantities by resource name.
pub type Amounts = BTreeMap<Str, Quantity>;

/// Reads a map of quantities. Invalid quantities are skipped: validation rejects them.
pub fn read(map: Option<&Value>) -> Amounts {
    let entries = map.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(name, amount)| Some((name.into(), quantity(amount)?))).collect()
}

pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Int(int) => Some(Quantity::new(*int, Format::DecimalSI)),
        _ => None,
    }
}

/// Formats a map of quantities.
pub fn write(amounts: &Amounts) -> Value {
    Value::Object(amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect())
}

/// Adds the amounts of `more` by name.
pub fn add(amounts: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        amounts.entry(name.clone()).and_modify(|sum| *sum = sum.add(*amount)).or_insert(*amount);
    }
}

/// Raises each amount to at least that of `other`.
pub fn raise(amounts: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        amounts.entry(name.clone()).and_modify(|most| *most = (*most).max(*amount)).or_insert(*amount);
    }
}

/// Whether the resource can be specified for a pod as a whole.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}
