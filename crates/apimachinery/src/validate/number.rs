//! Validation of numbers. Integers are compared as integers, everything else as floats.

use std::cmp::Ordering;

use super::node::Node;
use super::{Checker, is_numeric};
use crate::schema::{FormatKind, JsonType};
use crate::{Path, Value, go};

/// 2^53 - 1, the largest integer up to which floats represent all integers.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// Whether a float is an integer in JSON Schema, which tolerates rounding in the last digits.
pub(super) fn is_whole(float: f64) -> bool {
    float.abs() <= WHOLE_MAX && {
        let off = (float - float.trunc()).abs();
        off == 0.0 || off / (float.abs() + float.trunc().abs()) < 1e-9
    }
}

/// Whether two values are equal in an enumeration: numbers compare by value, and `null` equals nothing.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Int(_), Value::Float(_)) | (Value::Float(_), Value::Int(_)) => one.as_float() == other.as_float(),
        _ => one == other,
    }
}

/// The required type and format of a number.
#[derive(Clone, Copy)]
struct NumberType<'a> {
    integer: bool,
    format: Option<(&'a str, FormatKind)>,
}

impl Checker<'_> {
    pub(super) fn number(&mut self, value: &Value, node: Node<'_>, path: &Path) {
        let format = node.rules().and_then(|rules| rules.format.as_ref()).filter(|format| is_numeric(format.kind));
        let expected = NumberType {
            integer: node.json_types() == [JsonType::Integer],
            format: format.map(|format| (format.name.as_str(), format.kind)),
        };
        self.range("Checked", value, expected, path);
        let Some(limits) = node.rules().map(|rules| rules.number) else { return };
        if let Some(factor) = limits.multiple_of {
            // DEVIATION: for a factor below one upstream divides an integer by zero; Knarr divides as floats.
            let limit = self.limit("MultipleOf", value, factor, expected, path);
            if !is_multiple(value, &limit) {
                self.invalid(path, value, &format!("should be a multiple of {}", format_limit(&limit)));
            }
        }
        if let Some(min) = limits.minimum {
            let limit = self.limit("Minimum boundary", value, min, expected, path);
            let order = compare(value, &limit);
            if order == Ordering::Less || limits.exclusive_minimum && order == Ordering::Equal {
                let than = if limits.exclusive_minimum { "greater than" } else { "greater than or equal to" };
                self.invalid(path, value, &format!("should be {than} {}", format_limit(&limit)));
            }
        }
        if let Some(max) = limits.maximum {
            let limit = self.limit("Maximum boundary", value, max, expected, path);
            let order = compare(value, &limit);
            if order == Ordering::Greater || limits.exclusive_maximum && order == Ordering::Equal {
                let than = if limits.exclusive_maximum { "less than" } else { "less than or equal to" };
                self.invalid(path, value, &format!("should be {than} {}", format_limit(&limit)));
            }
        }
    }

    /// Returns a limit in the form in which `value` is compared with it: an integer is compared with the limit's
    /// integer part.
    fn limit(&mut self, what: &str, value: &Value, limit: f64, expected: NumberType<'_>, path: &Path) -> Value {
        let fits = self.range(what, &Value::Float(limit), expected, path);
        if fits
            && matches!(value, Value::Int(_))
            && fits_integer(limit.trunc(), None)
            && (what != "MultipleOf" || limit >= 1.0)
        {
            Value::Int(limit as i64)
        } else {
            Value::Float(limit)
        }
    }

    /// Reports a number, of the object or of the schema, that exceeds the range of its type and format.
    fn range(&mut self, what: &str, value: &Value, expected: NumberType<'_>, path: &Path) -> bool {
        let kind = expected.format.map(|(_, kind)| kind);
        let fits = match (value, expected.integer) {
            (Value::Int(int), true) => kind != Some(FormatKind::Int32) || i32::try_from(*int).is_ok(),
            (Value::Float(float), true) => float.fract() == 0.0 && fits_integer(*float, kind),
            (_, false) if kind == Some(FormatKind::Float) => {
                value.as_float().is_some_and(|float| float.abs() <= f64::from(f32::MAX))
            }
            _ => true,
        };
        if fits {
            return true;
        }
        let name = if expected.integer { "integer" } else { "number" };
        let of = match expected.format {
            Some((format, _)) => format!("{name} with format {format}"),
            None => format!("{name} (default format)"),
        };
        self.whole(format!("{what} value must be of type {of} in {path}"));
        false
    }
}

fn fits_integer(float: f64, kind: Option<FormatKind>) -> bool {
    if kind == Some(FormatKind::Int32) {
        (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&float)
    } else {
        // 2^63 is a float, 2^63 - 1 is not.
        (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float)
    }
}

fn compare(value: &Value, limit: &Value) -> Ordering {
    match (value, limit) {
        (Value::Int(value), Value::Int(limit)) => value.cmp(limit),
        _ => value.as_float().partial_cmp(&limit.as_float()).unwrap_or(Ordering::Equal),
    }
}

fn is_multiple(value: &Value, factor: &Value) -> bool {
    match (value, factor) {
        (Value::Int(value), Value::Int(factor)) => value.checked_rem(*factor).is_none_or(|rest| rest == 0),
        _ => value.as_float().zip(factor.as_float()).is_some_and(|(value, factor)| {
            factor != 0.0 && is_whole(if factor < 1.0 { 1.0 / factor * value } else { value / factor })
        }),
    }
}

fn format_limit(limit: &Value) -> String {
    match limit {
        Value::Float(float) => go::float(*float),
        other => other.to_string(),
    }
}
