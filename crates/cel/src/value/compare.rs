//! Equality and order of CEL values; numbers compare by numeric value, regardless of their type.

use std::cmp::Ordering;

use apimachinery::schema::{ListKind, Shape};

use super::{List, Map, Val};
use crate::eval::{Failure, Meter};

/// The number of items that are compared in the time of one step.
const ITEMS_A_STEP: usize = 16;

impl<'a> Val<'a> {
    /// Whether two values are equal; values of different types are not.
    ///
    /// # Errors
    /// If the tree does not match its schema, or the comparison takes too many steps: values can share parts, so a
    /// small value can represent a huge tree.
    pub fn equals(&self, other: &Val<'a>, meter: &Meter<'_>) -> Result<bool, Failure> {
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) | (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Int(_) | Self::Uint(_) | Self::Double(_), Self::Int(_) | Self::Uint(_) | Self::Double(_)) => {
                self.order(other) == Some(Ordering::Equal)
            }
            (Self::String(a), Self::String(b)) => {
                let (a, b) = (a.as_str(), b.as_str());
                a.len() == b.len() && {
                    meter.read(a.len())?;
                    a == b
                }
            }
            (Self::Bytes(a), Self::Bytes(b)) => {
                meter.read(a.len().min(b.len()))?;
                a == b
            }
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::List(a), Self::List(b)) => return lists_equal(a, b, meter),
            (Self::Map(a), Self::Map(b)) => return maps_equal(a, b, meter),
            (Self::Type(a), Self::Type(b)) => a.runtime_name() == b.runtime_name(),
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => {
                    meter.work(1)?;
                    return a.equals(b, meter);
                }
                _ => false,
            },
            (Self::PartialObject(a), Self::PartialObject(b)) => {
                meter.work(1)?;
                if a.name != b.name || a.fields.len() != b.fields.len() {
                    return Ok(false);
                }
                for (name, value) in &a.fields {
                    match b.fields.iter().find(|(have, _)| have == name) {
                        Some((_, other)) if value.equals(other, meter)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Self::Opaque(a), Self::Opaque(b)) => a == b,
            _ => false,
        })
    }

    /// Orders two values; [`None`] if they are not comparable, or one of them is NaN.
    pub fn order(&self, other: &Val<'a>) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Int(b)) | (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Int(a), Self::Double(b)) => whole_with_double(i128::from(*a), *b),
            (Self::Uint(a), Self::Double(b)) => whole_with_double(i128::from(*a), *b),
            (Self::Double(a), Self::Int(b)) => whole_with_double(i128::from(*b), *a).map(Ordering::reverse),
            (Self::Double(a), Self::Uint(b)) => whole_with_double(i128::from(*b), *a).map(Ordering::reverse),
            (Self::String(a), Self::String(b)) => Some(a.as_str().cmp(b.as_str())),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// Whether values of the two types have an order.
    pub const fn comparable(&self, other: &Val<'a>) -> bool {
        matches!(
            (self, other),
            (Self::Int(_) | Self::Uint(_) | Self::Double(_), Self::Int(_) | Self::Uint(_) | Self::Double(_))
                | (Self::Bool(_), Self::Bool(_))
                | (Self::String(_), Self::String(_))
                | (Self::Bytes(_), Self::Bytes(_))
                | (Self::Duration(_), Self::Duration(_))
                | (Self::Timestamp(_), Self::Timestamp(_))
        )
    }
}

/// Compares without rounding the integer to a double, which would make neighboring integers beyond 2^53 equal.
fn whole_with_double(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double.abs() > 1e20 {
        return 0.0.partial_cmp(&double);
    }
    let floor = double.floor();
    Some(whole.cmp(&(floor as i128)).then(if double > floor { Ordering::Less } else { Ordering::Equal }))
}

fn lists_equal<'a>(a: &List<'a>, b: &List<'a>, meter: &Meter<'_>) -> Result<bool, Failure> {
    if a.len() != b.len() {
        return Ok(false);
    }
    meter.work(1 + a.len() / ITEMS_A_STEP)?;
    if !matches!((list_kind(a), list_kind(b)), (ListKind::Atomic, ListKind::Atomic)) {
        return unordered_equal(a, b, meter);
    }
    for (a, b) in a.iter().zip(b.iter()) {
        if !a?.equals(&b?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares lists that a schema declares as sets or maps, ignoring the order of their items.
fn unordered_equal<'a>(a: &List<'a>, b: &List<'a>, meter: &Meter<'_>) -> Result<bool, Failure> {
    let (a, b) = (a.to_vec()?, b.to_vec()?);
    let (mut left, mut taken) = (Vec::new(), vec![false; b.len()]);
    // Most items of two such lists have the same position.
    for (at, item) in a.iter().enumerate() {
        taken[at] = item.equals(&b[at], meter)?;
        if !taken[at] {
            left.push(item);
        }
    }
    'items: for item in left {
        meter.work(1 + b.len() / ITEMS_A_STEP)?;
        for (at, other) in b.iter().enumerate() {
            if !taken[at] && item.equals(other, meter)? {
                taken[at] = true;
                continue 'items;
            }
        }
        return Ok(false);
    }
    Ok(true)
}

/// Returns the list type declared by the schema of a list.
pub(crate) fn list_kind<'l>(list: &'l List<'_>) -> &'l ListKind {
    match list {
        List::Json(_, Some(schema)) => match schema.shape() {
            Shape::List(shape) => &shape.kind,
            _ => &ListKind::Atomic,
        },
        _ => &ListKind::Atomic,
    }
}

fn maps_equal<'a>(a: &Map<'a>, b: &Map<'a>, meter: &Meter<'_>) -> Result<bool, Failure> {
    if a.len() != b.len() {
        return Ok(false);
    }
    meter.work(1 + a.len() / ITEMS_A_STEP)?;
    for key in a.keys() {
        let (Some(left), Some(right)) = (a.get(&key), b.get(&key)) else { return Ok(false) };
        if !left?.equals(&right?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}
