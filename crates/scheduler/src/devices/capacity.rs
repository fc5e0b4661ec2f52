//! Consumable capacity of devices that allow multiple allocations.

use std::collections::BTreeMap;

use apimachinery::Str;
use apimachinery::quantity::{Format, Quantity};

use super::slice::{Capacity, Counters, Device, Policy, Range};

/// Returns the capacity that a request consumes from a device with `taken` already consumed; `None` if the device lacks
/// the capacity or has too little left.
pub(super) fn consume(
    driver: &str,
    device: &Device,
    requests: &[(Str, Quantity)],
    taken: &[&Counters],
) -> Option<Counters> {
    let mut requested = BTreeMap::new();
    for (name, amount) in requests {
        requested.insert(own_name(driver, device, name)?, *amount);
    }
    let mut consumed = Counters::new();
    for (name, capacity) in &device.capacity {
        let amount = amount(requested.get(name).copied(), capacity);
        if capacity.policy.as_ref().is_some_and(|policy| violates(amount, policy)) {
            return None;
        }
        let before = taken.iter().filter_map(|taken| taken.get(name));
        if before.fold(amount, |sum, taken| sum.add(*taken)) > capacity.value {
            return None;
        }
        consumed.insert(name.clone(), amount);
    }
    Some(consumed)
}

/// Returns the device's capacity name for a requested name; the driver's domain is optional.
fn own_name<'a>(driver: &str, device: &'a Device, name: &str) -> Option<&'a Str> {
    let has = |name: &str| device.capacity.get_key_value(name).map(|(name, _)| name);
    has(name).or_else(|| match name.split_once('/') {
        Some((domain, own)) => has(own).filter(|_| domain == driver),
        None => has(&format!("{driver}/{name}")),
    })
}

fn amount(requested: Option<Quantity>, capacity: &Capacity) -> Quantity {
    let policy = capacity.policy.as_ref();
    let Some(requested) = requested else { return policy.and_then(|it| it.default).unwrap_or(capacity.value) };
    match policy {
        Some(Policy { range: Some(range), .. }) => rounded_up(requested, range),
        Some(Policy { values, .. }) if !values.is_empty() => {
            values.iter().find(|value| **value >= requested).copied().unwrap_or(requested)
        }
        _ => requested,
    }
}

fn rounded_up(requested: Quantity, range: &Range) -> Quantity {
    if requested < range.min {
        return range.min;
    }
    let Some(step) = range.step.map(Quantity::value).filter(|step| *step > 0) else { return requested };
    let steps = requested.sub(range.min).value().unsigned_abs().div_ceil(step.unsigned_abs());
    let above = i64::try_from(steps).unwrap_or(i64::MAX).saturating_mul(step);
    Quantity::new(range.min.value().saturating_add(above), Format::BinarySI).with_format(range.min.format())
}

fn violates(amount: Quantity, policy: &Policy) -> bool {
    if policy.default == Some(amount) {
        return false;
    }
    if let Some(range) = &policy.range {
        let off = |step: Quantity| step.value() > 0 && amount.sub(range.min).value() % step.value() != 0;
        return range.max.is_some_and(|max| amount > max) || range.step.is_some_and(off);
    }
    !policy.values.is_empty() && !policy.values.contains(&amount)
}
