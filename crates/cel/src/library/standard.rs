//! Standard library: sizes, and the string functions of every environment.

use super::{Args, Row, regex, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

pub(super) const ROWS: &[Row] = &[
    row("size(string) -> int", Cost::Unit, size),
    row("size(bytes) -> int", Cost::Unit, size),
    row("size(list<A>) -> int", Cost::Unit, size),
    row("size(map<A, B>) -> int", Cost::Unit, size),
    row("string.size() -> int", Cost::Unit, size),
    row("bytes.size() -> int", Cost::Unit, size),
    row("list<A>.size() -> int", Cost::Unit, size),
    row("map<A, B>.size() -> int", Cost::Unit, size),
    row("string.contains(string) -> bool", Cost::Contains, contains),
    row("string.startsWith(string) -> bool", Cost::Affix, starts_with),
    row("string.endsWith(string) -> bool", Cost::Affix, ends_with),
    row("string.matches(string) -> bool", Cost::Match, regex::matches),
    row("matches(string, string) -> bool", Cost::Match, regex::matches),
];

fn size<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let size = args.args[0].size().ok_or_else(Failure::no_overload)?;
    Ok(Val::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn contains<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Bool(args.str(0)?.contains(args.str(1)?)))
}

fn starts_with<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Bool(args.str(0)?.starts_with(args.str(1)?)))
}

fn ends_with<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Bool(args.str(0)?.ends_with(args.str(1)?)))
}
