//! Types with their own Go decoder: int-or-string, quantities, times.

use std::borrow::Cow;

use super::Error;
use super::error::{Frame, literal};
use crate::{Str, Value, json, quantity, time};

/// Accepts strings and 32-bit integers.
pub(super) fn int_or_string(value: &Value, at: &Frame<'_>) -> Result<(), Error> {
    match value {
        Value::String(_) => Ok(()),
        Value::Int(int) if i32::try_from(*int).is_ok() => Ok(()),
        _ => Err(at.mismatch(literal(value), "int32")),
    }
}

/// Normalizes a quantity. A value that is not a string is parsed from its JSON text, as upstream does.
pub(super) fn quantity(value: &mut Value) -> Result<(), Error> {
    if let Value::String(text) = value {
        return replace(text, quantity::canonical);
    }
    *value = quantity::canonical(&json::to_string(value))?.into_owned().into();
    Ok(())
}

/// Normalizes a time to seconds in UTC.
pub(super) fn time(value: &mut Value, at: &Frame<'_>) -> Result<(), Error> {
    point(value, at, time::canonical)
}

/// Normalizes a time to microseconds in UTC.
pub(super) fn micro_time(value: &mut Value, at: &Frame<'_>) -> Result<(), Error> {
    point(value, at, time::canonical_micro)
}

fn point(
    value: &mut Value,
    at: &Frame<'_>,
    canonical: for<'a> fn(&'a str) -> Result<Cow<'a, str>, time::Error>,
) -> Result<(), Error> {
    match value {
        Value::String(text) => replace(text, canonical),
        _ => Err(at.mismatch(value.kind().to_owned(), "string")),
    }
}

fn replace<E: Into<Error>>(
    text: &mut Str,
    canonical: for<'a> fn(&'a str) -> Result<Cow<'a, str>, E>,
) -> Result<(), Error> {
    let changed = match canonical(text).map_err(Into::into)? {
        Cow::Borrowed(same) if same.len() == text.len() => return Ok(()),
        changed => Str::from(&*changed),
    };
    *text = changed;
    Ok(())
}
