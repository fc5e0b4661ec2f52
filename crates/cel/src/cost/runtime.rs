//! Runtime cost of calls, computed from arguments and result.

use super::{Cost, LIST_BASE, REGEX_FACTOR, STRING_FACTOR};
use crate::eval::{Failure, Meter};
use crate::library::opaque::Opaque;
use crate::value::Val;

/// Returns the cost of a call. Without a result: the part known before the call. With a result: the rest.
pub(crate) fn call_cost(
    rule: Cost,
    args: &[Val<'_>],
    result: Option<&Val<'_>>,
    meter: &Meter<'_>,
) -> Result<u64, Failure> {
    match (rule, result) {
        (Cost::Join, Some(result)) => Ok(scaled(size(result), 2.0 * STRING_FACTOR)),
        (Cost::ListResult, Some(result)) => Ok(1 + LIST_BASE + size(result)),
        (Cost::Join | Cost::ListResult, None) | (_, Some(_)) => Ok(0),
        (Cost::Traverse, None) => traversal(&args[0], meter),
        (rule, None) => Ok(arguments_cost(rule, args)),
    }
}

fn arguments_cost(rule: Cost, args: &[Val<'_>]) -> u64 {
    let scan = |at: usize, factor: f64| scaled(size(&args[at]), factor);
    match rule {
        Cost::Unit | Cost::IndexList | Cost::IndexMap | Cost::ConcatList | Cost::Format | Cost::Quote => 1,
        Cost::Fixed(cost) => cost,
        Cost::Scan | Cost::ScanSame | Cost::Affix | Cost::StringToBytes | Cost::BytesToString => scan(0, STRING_FACTOR),
        Cost::ScanTwice | Cost::Replace | Cost::Split => scan(0, 2.0 * STRING_FACTOR),
        Cost::Contains => scan(0, STRING_FACTOR).saturating_mul(scan(1, STRING_FACTOR)),
        Cost::Match | Cost::Find => {
            scaled(size(&args[0]).saturating_add(1), STRING_FACTOR).saturating_mul(scan(1, REGEX_FACTOR))
        }
        Cost::Compare => match (&args[0], &args[1]) {
            (Val::String(_), Val::String(_)) | (Val::Bytes(_), Val::Bytes(_)) => smaller(args),
            _ => 1,
        },
        Cost::Equal => {
            if matches!(args[0], Val::Opaque(_)) {
                1
            } else {
                smaller(args)
            }
        }
        Cost::Concat => match (&args[0], &args[1]) {
            (Val::String(_), Val::String(_)) | (Val::Bytes(_), Val::Bytes(_)) => {
                scaled(size(&args[0]).saturating_add(size(&args[1])), STRING_FACTOR)
            }
            _ => 1,
        },
        Cost::InList => match &args[1] {
            Val::List(list) => list.len() as u64,
            _ => 1,
        },
        Cost::Logic | Cost::Conditional | Cost::Traverse | Cost::Join | Cost::ListResult => 0,
        Cost::ContainsIp => containment(args, 0),
        Cost::ContainsIpText => containment(args, 0) + scan(1, STRING_FACTOR),
        Cost::ContainsCidr => containment(args, 1),
        Cost::ContainsCidrText => containment(args, 1) + scan(1, STRING_FACTOR),
        Cost::Selector => super::estimate::selector(super::SizeEstimate::fixed(size(&args[1]))).max,
        Cost::Validate => {
            let regex = match &args[0] {
                Val::Opaque(Opaque::Format(format)) => format.regex_size,
                _ => 0,
            };
            scaled(size(&args[1]).saturating_add(1), STRING_FACTOR).saturating_mul(scaled(regex, REGEX_FACTOR))
        }
        Cost::ListFlatten => {
            let depth = match args.get(1) {
                Some(Val::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                _ => 1,
            };
            size(&args[0]).saturating_mul(depth).saturating_add(1 + LIST_BASE)
        }
        Cost::ListSquare(at) => square(&args[at]),
        Cost::Product(factor) => size(&args[0]).saturating_mul(size(&args[1])).saturating_mul(factor).saturating_add(1),
    }
}

/// Returns upstream's size of a value; 1 for values without a size.
fn size(value: &Val<'_>) -> u64 {
    match value {
        Val::Opaque(opaque) => opaque.size().unwrap_or(1) as u64,
        value => value.size().unwrap_or(1) as u64,
    }
}

fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

fn smaller(args: &[Val<'_>]) -> u64 {
    scaled(size(&args[0]).min(size(&args[1])), STRING_FACTOR)
}

fn containment(args: &[Val<'_>], blocks: u64) -> u64 {
    let block = size(&args[0]);
    scaled(2 * block, STRING_FACTOR) + blocks * (scaled(block, STRING_FACTOR) + 1)
}

fn square(value: &Val<'_>) -> u64 {
    let count = size(value);
    let first = match value {
        Val::List(list) => list.get(0).and_then(Result::ok),
        _ => None,
    };
    let factor = if matches!(first, Some(Val::String(_) | Val::Bytes(_))) { 2.0 + STRING_FACTOR } else { 2.0 };
    ((count.saturating_mul(count) as f64 * factor) as u64).saturating_add(1 + LIST_BASE)
}

/// Returns the cost of traversing a value. Values can share parts, so the walk itself is metered.
fn traversal(value: &Val<'_>, meter: &Meter<'_>) -> Result<u64, Failure> {
    meter.work(1)?;
    Ok(match value {
        Val::String(text) => (text.len() as f64 * STRING_FACTOR) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * STRING_FACTOR) as u64,
        Val::List(list) => {
            let mut cost: u64 = 0;
            for item in list.iter() {
                cost = cost.saturating_add(traversal(&item?, meter)?);
            }
            cost
        }
        Val::Map(map) => {
            let mut cost: u64 = 0;
            for key in map.keys() {
                cost = cost.saturating_add(traversal(&key, meter)?);
                if let Some(value) = map.get(&key) {
                    cost = cost.saturating_add(traversal(&value?, meter)?);
                }
            }
            cost
        }
        _ => 1,
    })
}
