//! String formatting: `'%s is %d'.format([…])` and `strings.quote`.

use std::fmt::Write;

use super::conversions::double_text;
use super::{Args, Row, row, time};
use crate::cost::Cost;
use crate::eval::{Failure, Meter};
use crate::value::{List, Map, Val};

type Result<T> = std::result::Result<T, Failure>;

pub(super) const ROWS: &[Row] = &[
    row("string.format(list<dyn>) -> string", Cost::Format, format),
    row("strings.quote(string) -> string", Cost::Quote, quote),
];

/// Maximum precision of a format clause; more digits would only make long strings.
const PRECISION_MAX: usize = 1000;

fn format<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (text, values) = (args.str(0)?, args.list(1)?);
    let mut out = String::new();
    let (mut rest, mut next) = (text, 0);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let (clause, after) = clause(rest)?;
        let value = values.get(next).ok_or_else(|| wrong(&format!("index {next} out of range")))??;
        next += 1;
        let before = out.len();
        clause.show(&value, &mut out, args.meter)?;
        args.meter.allocate(out.len() - before)?;
        rest = after;
    }
    out.push_str(rest);
    Ok(Val::text(out))
}

fn wrong(what: &str) -> Failure {
    Failure::message(format!("error during formatting: {what}"))
}

struct Clause {
    letter: char,
    precision: Option<usize>,
}

fn clause(rest: &str) -> Result<(Clause, &str)> {
    let unread = |what: String| Failure::message(format!("could not parse formatting clause: {what}"));
    let (precision, rest) = match rest.strip_prefix('.') {
        Some(after) => {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let precision = after[..digits].parse().ok().filter(|precision| *precision <= PRECISION_MAX);
            let precision = precision.ok_or_else(|| unread("error while parsing precision".into()))?;
            (Some(precision), &after[digits..])
        }
        None => (None, rest),
    };
    let letter = rest.chars().next().ok_or_else(|| unread("unexpected end of string".into()))?;
    if !"sdfebxXo".contains(letter) {
        return Err(unread(format!("unrecognized formatting clause \"{letter}\"")));
    }
    Ok((Clause { letter, precision }, &rest[letter.len_utf8()..]))
}

impl Clause {
    fn show(&self, value: &Val<'_>, out: &mut String, meter: &Meter<'_>) -> Result<()> {
        let digits = self.precision.unwrap_or(6);
        meter.work(1)?;
        // Writing to a string cannot fail.
        let _ = match (self.letter, value) {
            ('s', Val::String(text)) => out.write_str(text),
            ('s', value) => out.write_str(&text(value, meter)?),
            ('d', Val::Int(int)) => write!(out, "{int}"),
            ('d', Val::Uint(uint)) => write!(out, "{uint}"),
            ('f' | 'e', Val::Double(double)) if !double.is_finite() => out.write_str(special(*double)),
            ('f', Val::Double(double)) => write!(out, "{double:.digits$}"),
            // DEVIATION: exponents print as in C; upstream's older library prints `1.052033 × 10⁰³`.
            ('e', Val::Double(double)) => {
                let text = format!("{double:.digits$e}");
                let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
                write!(out, "{mantissa}e{sign}{exponent:0>2}")
            }
            ('b', Val::Int(int)) => out.write_str(&signed(*int, |magnitude| format!("{magnitude:b}"))),
            ('b', Val::Uint(uint)) => write!(out, "{uint:b}"),
            ('b', Val::Bool(bool)) => write!(out, "{}", u8::from(*bool)),
            ('o', Val::Int(int)) => out.write_str(&signed(*int, |magnitude| format!("{magnitude:o}"))),
            ('o', Val::Uint(uint)) => write!(out, "{uint:o}"),
            ('x' | 'X', value) => out.write_str(&self.hex(value)?),
            (_, value) => return Err(self.unfit(value)),
        };
        Ok(())
    }

    fn hex(&self, value: &Val<'_>) -> Result<String> {
        let bytes = |bytes: &[u8]| {
            bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
                let _ = write!(out, "{byte:02x}");
                out
            })
        };
        let hex = match value {
            Val::Int(int) => signed(*int, |magnitude| format!("{magnitude:x}")),
            Val::Uint(uint) => format!("{uint:x}"),
            Val::String(text) => bytes(text.as_bytes()),
            Val::Bytes(raw) => bytes(raw),
            value => return Err(self.unfit(value)),
        };
        Ok(if self.letter == 'X' { hex.to_uppercase() } else { hex })
    }

    fn unfit(&self, value: &Val<'_>) -> Failure {
        let given = value.type_of();
        let given = given.runtime_name();
        wrong(&match self.letter {
            'd' => format!("decimal clause can only be used on integers, was given {given}"),
            'f' => format!("fixed-point clause can only be used on doubles, was given {given}"),
            'e' => format!("scientific clause can only be used on doubles, was given {given}"),
            'b' => format!("only integers and bools can be formatted as binary, was given {given}"),
            'o' => format!("octal clause can only be used on integers, was given {given}"),
            _ => format!("only integers, byte buffers, and strings can be formatted as hex, was given {given}"),
        })
    }
}

fn signed(int: i64, show: impl Fn(u64) -> String) -> String {
    format!("{}{}", if int < 0 { "-" } else { "" }, show(int.unsigned_abs()))
}

fn special(double: f64) -> &'static str {
    match double {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

/// Formats a value for `%s`; strings inside lists and maps are quoted.
fn text(value: &Val<'_>, meter: &Meter<'_>) -> Result<String> {
    meter.work(1)?;
    Ok(match value {
        Val::String(text) => text.to_string(),
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Val::Double(double) if !double.is_finite() => special(*double).to_owned(),
        Val::Double(double) => double_text(*double),
        Val::Uint(uint) => uint.to_string(),
        Val::Timestamp(at) => time::timestamp_text(*at),
        Val::Duration(nanos) => time::duration_text(*nanos),
        Val::List(list) => list_text(list, meter)?,
        Val::Map(map) => map_text(map, meter)?,
        Val::Null | Val::Bool(_) | Val::Int(_) | Val::Type(_) => value.to_string(),
        Val::Optional(_) | Val::PartialObject(_) | Val::Opaque(_) => {
            let given = value.type_of();
            return Err(wrong(&format!(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
                given.runtime_name()
            )));
        }
    })
}

fn inner(value: &Val<'_>, meter: &Meter<'_>) -> Result<String> {
    Ok(match value {
        Val::String(_) | Val::Bytes(_) | Val::Timestamp(_) | Val::Duration(_) => value.to_string(),
        Val::Double(double) if !double.is_finite() => format!("{:?}", special(*double)),
        other => text(other, meter)?,
    })
}

fn list_text(list: &List<'_>, meter: &Meter<'_>) -> Result<String> {
    let items = list.iter().map(|item| inner(&item?, meter)).collect::<Result<Vec<_>>>()?;
    let joined = format!("[{}]", items.join(", "));
    meter.allocate(joined.len())?;
    Ok(joined)
}

fn map_text(map: &Map<'_>, meter: &Meter<'_>) -> Result<String> {
    let mut entries = Vec::with_capacity(map.len());
    for key in map.keys() {
        if let Some(value) = map.get(&key) {
            entries.push(format!("{}: {}", inner(&key, meter)?, inner(&value?, meter)?));
        }
    }
    Ok(format!("{{{}}}", entries.join(", ")))
}

fn quote<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let text = args.str(0)?;
    args.meter.allocate(text.len() * 2)?;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(Val::text(out))
}
