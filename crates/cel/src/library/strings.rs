//! Strings library: the extended string functions; positions count characters.

use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

pub(super) const ROWS: &[Row] = &[
    row("string.charAt(int) -> string", Cost::Unit, char_at),
    row("string.indexOf(string) -> int", Cost::Traverse, index_of),
    row("string.indexOf(string, int) -> int", Cost::Traverse, index_of),
    row("string.lastIndexOf(string) -> int", Cost::Traverse, last_index_of),
    row("string.lastIndexOf(string, int) -> int", Cost::Traverse, last_index_of),
    row("string.lowerAscii() -> string", Cost::ScanSame, lower),
    row("string.upperAscii() -> string", Cost::ScanSame, upper),
    row("string.trim() -> string", Cost::ScanSame, trim),
    row("string.substring(int) -> string", Cost::ScanSame, substring),
    row("string.substring(int, int) -> string", Cost::ScanSame, substring),
    row("string.replace(string, string) -> string", Cost::Replace, replace),
    row("string.replace(string, string, int) -> string", Cost::Replace, replace),
    row("string.split(string) -> list<string>", Cost::Split, split),
    row("string.split(string, int) -> list<string>", Cost::Split, split),
    row("list<string>.join() -> string", Cost::Join, join),
    row("list<string>.join(string) -> string", Cost::Join, join),
];

/// Introduced in a later version than the others.
pub(super) const REVERSE: &[Row] = &[row("string.reverse() -> string", Cost::ScanSame, reverse)];

/// Formats a key or an index for errors: strings without quotes.
pub(crate) fn plain(value: &Val<'_>) -> String {
    match value {
        Val::String(text) => text.to_string(),
        Val::Uint(uint) => uint.to_string(),
        other => other.to_string(),
    }
}

fn out_of_range(at: i64) -> Failure {
    Failure::message(format!("index out of range: {at}"))
}

/// Returns the byte offset of the character at `at`; the end is a valid position.
fn byte_at(text: &str, at: i64) -> Result<usize> {
    let char_index = usize::try_from(at).map_err(|_| out_of_range(at))?;
    if text.is_ascii() {
        return if char_index <= text.len() { Ok(char_index) } else { Err(out_of_range(at)) };
    }
    text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(char_index).ok_or_else(|| out_of_range(at))
}

fn char_at<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let text = args.str(0)?;
    let from = byte_at(text, args.int(1)?)?;
    Ok(Val::text(text[from..].chars().next().map(String::from).unwrap_or_default()))
}

fn index_of<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (text, needle) = (args.str(0)?, args.str(1)?);
    let from = if args.args.len() > 2 { byte_at(text, args.int(2)?)? } else { 0 };
    let found = text[from..].find(needle).map(|at| text[..from + at].chars().count());
    Ok(position(found))
}

fn last_index_of<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (text, needle) = (args.str(0)?, args.str(1)?);
    let end = if args.args.len() > 2 {
        let last = byte_at(text, args.int(2)?)?;
        (last + needle.len()).min(text.len())
    } else {
        text.len()
    };
    // The end may fall inside a character, where no match can end either.
    let end = (0..=end).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let found = text[..end].rfind(needle).map(|at| text[..at].chars().count());
    Ok(position(found))
}

fn position<'a>(found: Option<usize>) -> Val<'a> {
    Val::Int(found.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
}

fn lower<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::text(args.str(0)?.to_ascii_lowercase()))
}

fn upper<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::text(args.str(0)?.to_ascii_uppercase()))
}

fn trim<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::text(args.str(0)?.trim()))
}

fn reverse<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::text(args.str(0)?.chars().rev().collect::<String>()))
}

fn substring<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (text, start) = (args.str(0)?, args.int(1)?);
    if args.args.len() == 2 {
        return Ok(Val::text(&text[byte_at(text, start)?..]));
    }
    let end = args.int(2)?;
    if start > end {
        return Err(Failure::message(format!("invalid substring range. start: {start}, end: {end}")));
    }
    Ok(Val::text(&text[byte_at(text, start)?..byte_at(text, end)?]))
}

fn replace<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (text, old, new) = (args.str(0)?, args.str(1)?, args.str(2)?);
    let limit = if args.args.len() > 3 { args.int(3)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let places = if old.is_empty() { text.chars().count() + 1 } else { text.len() / old.len() };
    args.meter.allocate(text.len().saturating_add(places.min(limit).saturating_mul(new.len())))?;
    Ok(Val::text(text.replacen(old, new, limit)))
}

fn split<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (text, separator) = (args.str(0)?, args.str(1)?);
    let limit = if args.args.len() > 2 { args.int(2)? } else { -1 };
    args.meter.allocate(text.len().saturating_mul(if separator.is_empty() { 16 } else { 2 }))?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Val::list(Vec::new()));
    }
    if !separator.is_empty() {
        return Ok(Val::list(text.splitn(limit, separator).map(Val::text).collect()));
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let width = if parts.len() + 1 == limit { rest.len() } else { first.len_utf8() };
        parts.push(Val::text(&rest[..width]));
        rest = &rest[width..];
    }
    Ok(Val::list(parts))
}

fn join<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let separator = if args.args.len() > 1 { args.str(1)? } else { "" };
    let mut joined = String::new();
    for (at, item) in args.list(0)?.iter().enumerate() {
        let item = item?;
        let text = item.as_str().ok_or_else(Failure::no_overload)?;
        args.meter.allocate(text.len() + separator.len())?;
        joined.push_str(if at > 0 { separator } else { "" });
        joined.push_str(text);
    }
    Ok(Val::text(joined))
}
