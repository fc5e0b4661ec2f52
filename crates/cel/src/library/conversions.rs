//! Type conversions: `int('3')`, `string(1.5)`, `type(x)`.

use std::fmt::{Display, Write};
use std::sync::Arc;

use apimachinery::Str;

use super::operators::{int_overflow, uint_overflow};
use super::{Args, Row, row, time};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::{Text, Val};

type Result<T> = std::result::Result<T, Failure>;

pub(super) const ROWS: &[Row] = &[
    row("int(int) -> int", Cost::Unit, to_int),
    row("int(uint) -> int", Cost::Unit, to_int),
    row("int(double) -> int", Cost::Unit, to_int),
    row("int(string) -> int", Cost::Unit, to_int),
    row("int(timestamp) -> int", Cost::Unit, to_int),
    row("int(duration) -> int", Cost::Unit, to_int),
    row("uint(uint) -> uint", Cost::Unit, to_uint),
    row("uint(int) -> uint", Cost::Unit, to_uint),
    row("uint(double) -> uint", Cost::Unit, to_uint),
    row("uint(string) -> uint", Cost::Unit, to_uint),
    row("double(double) -> double", Cost::Unit, to_double),
    row("double(int) -> double", Cost::Unit, to_double),
    row("double(uint) -> double", Cost::Unit, to_double),
    row("double(string) -> double", Cost::Unit, to_double),
    row("string(string) -> string", Cost::Unit, to_string),
    row("string(bool) -> string", Cost::Unit, to_string),
    row("string(int) -> string", Cost::Unit, to_string),
    row("string(uint) -> string", Cost::Unit, to_string),
    row("string(double) -> string", Cost::Unit, to_string),
    row("string(bytes) -> string", Cost::BytesToString, to_string),
    row("string(timestamp) -> string", Cost::Unit, to_string),
    row("string(duration) -> string", Cost::Unit, to_string),
    row("bytes(bytes) -> bytes", Cost::Unit, to_bytes),
    row("bytes(string) -> bytes", Cost::StringToBytes, to_bytes),
    row("bool(bool) -> bool", Cost::Unit, to_bool),
    row("bool(string) -> bool", Cost::Unit, to_bool),
    row("timestamp(timestamp) -> timestamp", Cost::Unit, to_timestamp),
    row("timestamp(string) -> timestamp", Cost::Unit, to_timestamp),
    row("timestamp(int) -> timestamp", Cost::Unit, to_timestamp),
    row("duration(duration) -> duration", Cost::Unit, to_duration),
    row("duration(string) -> duration", Cost::Unit, to_duration),
    row("dyn(A) -> dyn", Cost::Unit, to_dyn),
    row("type(A) -> type<A>", Cost::Unit, type_of),
];

fn wrong<'a>(from: &Val<'a>, to: &str) -> Failure {
    Failure::message(format!("type conversion error from '{}' to '{to}'", from.type_of().runtime_name()))
}

fn to_int<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Int(match &args.args[0] {
        Val::Int(int) => *int,
        Val::Uint(uint) => i64::try_from(*uint).map_err(|_| int_overflow())?,
        // Doubles equal to the limits are excluded: they cannot be distinguished from neighboring integers.
        Val::Double(double) if *double > -9_223_372_036_854_775_808.0 && *double < 9_223_372_036_854_775_808.0 => {
            *double as i64
        }
        Val::Double(_) => return Err(int_overflow()),
        Val::String(text) => text.parse().map_err(|_| wrong(&args.args[0], "int"))?,
        Val::Timestamp(at) => at.seconds(),
        Val::Duration(nanos) => *nanos,
        other => return Err(wrong(other, "int")),
    }))
}

fn to_uint<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Uint(match &args.args[0] {
        Val::Uint(uint) => *uint,
        Val::Int(int) => u64::try_from(*int).map_err(|_| uint_overflow())?,
        Val::Double(double) if *double >= 0.0 && *double < 18_446_744_073_709_551_616.0 => *double as u64,
        Val::Double(_) => return Err(uint_overflow()),
        Val::String(text) if !text.starts_with('+') => text.parse().map_err(|_| wrong(&args.args[0], "uint"))?,
        other => return Err(wrong(other, "uint")),
    }))
}

fn to_double<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Double(match &args.args[0] {
        Val::Double(double) => *double,
        Val::Int(int) => *int as f64,
        Val::Uint(uint) => *uint as f64,
        Val::String(text) => parse_double(text).ok_or_else(|| wrong(&args.args[0], "double"))?,
        other => return Err(wrong(other, "double")),
    }))
}

/// Parses a number like Go; a number too large for a double is an error, and white space is not skipped.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let word = unsigned.to_ascii_lowercase();
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && !matches!(word.as_str(), "nan" | "inf" | "infinity")
    {
        return None;
    }
    let double: f64 = text.parse().ok()?;
    (double.is_finite() || !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')).then_some(double)
}

fn to_string<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match &args.args[0] {
        text @ Val::String(_) => text.clone(),
        Val::Bool(bool) => Val::str(if *bool { "true" } else { "false" }),
        Val::Int(int) => printed(int),
        Val::Uint(uint) => printed(uint),
        Val::Double(double) => Val::text(double_text(*double)),
        Val::Bytes(bytes) => {
            let text = str::from_utf8(bytes)
                .map_err(|_| Failure::message("invalid UTF-8 in bytes, cannot convert to string"))?;
            args.meter.allocate(text.len())?;
            Val::text(text)
        }
        Val::Timestamp(at) => Val::text(time::timestamp_text(*at)),
        Val::Duration(nanos) => Val::text(time::duration_text(*nanos)),
        other => return Err(wrong(other, "string")),
    })
}

/// Formats an integer, which has at most twenty digits and needs no allocation.
fn printed<'a>(number: impl Display) -> Val<'a> {
    let mut text = Str::default();
    // Writing to a string cannot fail.
    let _ = write!(text, "{number}");
    Val::String(Text::Short(text))
}

/// Formats a double like Go's `%g`: shortest digits, with an exponent for very large and very small numbers.
pub(super) fn double_text(double: f64) -> String {
    if double.is_nan() {
        return "NaN".into();
    }
    if double.is_infinite() {
        return if double > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let text = format!("{double:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    if !(-4..6).contains(&exponent.parse().unwrap_or(0)) {
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{double}")
}

fn to_bytes<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match &args.args[0] {
        bytes @ Val::Bytes(_) => bytes.clone(),
        Val::String(text) => {
            args.meter.allocate(text.len())?;
            Val::Bytes(text.as_bytes().into())
        }
        other => return Err(wrong(other, "bytes")),
    })
}

fn to_bool<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    match &args.args[0] {
        Val::Bool(bool) => Ok(Val::Bool(*bool)),
        text @ Val::String(_) => match text.as_str() {
            Some("true" | "TRUE" | "True" | "t" | "T" | "1") => Ok(Val::Bool(true)),
            Some("false" | "FALSE" | "False" | "f" | "F" | "0") => Ok(Val::Bool(false)),
            _ => Err(wrong(text, "bool")),
        },
        other => Err(wrong(other, "bool")),
    }
}

fn to_timestamp<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Timestamp(match &args.args[0] {
        Val::Timestamp(at) => *at,
        Val::Int(seconds) => {
            time::Moment::from_seconds(*seconds).ok_or_else(|| Failure::message("timestamp overflow"))?
        }
        text @ Val::String(_) => time::parse_timestamp(text.as_str().unwrap_or_default())
            .ok_or_else(|| wrong(text, "google.protobuf.Timestamp"))?,
        other => return Err(wrong(other, "google.protobuf.Timestamp")),
    }))
}

fn to_duration<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Duration(match &args.args[0] {
        Val::Duration(nanos) => *nanos,
        text @ Val::String(_) => time::parse_duration(text.as_str().unwrap_or_default())
            .ok_or_else(|| wrong(text, "google.protobuf.Duration"))?,
        other => return Err(wrong(other, "google.protobuf.Duration")),
    }))
}

fn to_dyn<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(args.args[0].clone())
}

fn type_of<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Type(Arc::new(args.args[0].type_of())))
}
