//! Display of CEL values in the language's notation, for tests, messages and audits.

use std::fmt;

use super::{Map, Val};
use crate::library::time;

impl fmt::Display for Val<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::Bool(bool) => write!(out, "{bool}"),
            Self::Int(int) => write!(out, "{int}"),
            Self::Uint(uint) => write!(out, "{uint}u"),
            Self::Double(double) => show_double(out, *double),
            Self::String(text) => write!(out, "{:?}", text.as_str()),
            Self::Bytes(bytes) => write!(out, "b\"{}\"", bytes.escape_ascii()),
            Self::Duration(nanos) => write!(out, "duration({:?})", time::duration_text(*nanos)),
            Self::Timestamp(at) => write!(out, "timestamp({:?})", time::timestamp_text(*at)),
            Self::List(list) => {
                out.write_str("[")?;
                for (at, item) in list.iter().enumerate() {
                    out.write_str(if at > 0 { ", " } else { "" })?;
                    show_result(out, item)?;
                }
                out.write_str("]")
            }
            Self::Map(map) => show_map(out, map),
            Self::Type(ty) => out.write_str(ty.runtime_name()),
            Self::Optional(None) => out.write_str("optional.none()"),
            Self::Optional(Some(inner)) => write!(out, "optional.of({inner})"),
            Self::PartialObject(built) => {
                write!(out, "{}{{", built.name)?;
                for (at, (name, value)) in built.fields.iter().enumerate() {
                    write!(out, "{}{name}: {value}", if at > 0 { ", " } else { "" })?;
                }
                out.write_str("}")
            }
            Self::Opaque(opaque) => write!(out, "{opaque}"),
        }
    }
}

fn show_map(out: &mut fmt::Formatter<'_>, map: &Map<'_>) -> fmt::Result {
    out.write_str("{")?;
    for (at, key) in map.keys().into_iter().enumerate() {
        write!(out, "{}{key}: ", if at > 0 { ", " } else { "" })?;
        if let Some(value) = map.get(&key) {
            show_result(out, value)?;
        }
    }
    out.write_str("}")
}

fn show_result(out: &mut fmt::Formatter<'_>, value: Result<Val<'_>, crate::eval::Failure>) -> fmt::Result {
    match value {
        Ok(value) => write!(out, "{value}"),
        Err(failure) => write!(out, "error: {failure}"),
    }
}

fn show_double(out: &mut fmt::Formatter<'_>, double: f64) -> fmt::Result {
    match double {
        double if double.is_nan() => out.write_str("NaN"),
        f64::INFINITY => out.write_str("+Inf"),
        f64::NEG_INFINITY => out.write_str("-Inf"),
        double => write!(out, "{double:?}"),
    }
}
