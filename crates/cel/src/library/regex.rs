//! Regex library: RE2 syntax, matching in time linear in the text, and a limit on the pattern's size.

use ::regex::Regex;

use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

/// Maximum size of a compiled pattern in bytes; a pattern such as `(a{1000}){1000}` is rejected.
const SIZE_MAX: usize = 1 << 20;

pub(super) const ROWS: &[Row] = &[
    row("string.find(string) -> string", Cost::Find, find),
    row("string.findAll(string) -> list<string>", Cost::Find, find_all),
    row("string.findAll(string, int) -> list<string>", Cost::Find, find_all),
];

/// Whether the function takes a pattern; a constant pattern is compiled once.
pub(crate) fn is_pattern_argument(function: &str) -> bool {
    matches!(function, "matches" | "find" | "findAll")
}

/// Compiles a pattern; the error is Go's message.
pub(crate) fn compile(pattern: &str) -> std::result::Result<Regex, String> {
    apimachinery::regexp::compile(pattern, SIZE_MAX).map_err(|error| error.to_string())
}

fn with<T>(args: Args<'_, '_>, run: impl FnOnce(&Regex) -> Result<T>) -> Result<T> {
    if let Some(pattern) = args.pattern {
        return run(pattern);
    }
    let text = args.str(1)?;
    let pattern = args.meter.pattern(text, || {
        args.meter.work(compile_steps(text))?;
        compile(text).map_err(Failure::message)
    })?;
    run(&pattern)
}

/// Returns the number of steps to compile a pattern that is not a constant; upstream charges only for matching.
/// Repeated parts are compiled as often as they may occur, and a Unicode class has hundreds of ranges.
fn compile_steps(pattern: &str) -> usize {
    const BASE: usize = 400;
    const A_BYTE: usize = 8;
    const UNICODE: usize = 64;
    // Compiling a pattern of the size `SIZE_MAX` takes three or four milliseconds.
    const MOST: usize = 160_000;
    let repeated = pattern.split('{').skip(1).map(|bounds| {
        let bounds = bounds.split('}').next().unwrap_or_default();
        bounds.split(',').filter_map(|bound| bound.parse::<usize>().ok()).max().unwrap_or(1).max(1)
    });
    let times = repeated.fold(1, usize::saturating_mul);
    let unicode = if pattern.contains("\\p") || pattern.contains("\\P") { UNICODE } else { 1 };
    (BASE + A_BYTE * pattern.len()).saturating_mul(times).saturating_mul(unicode).min(MOST + A_BYTE * pattern.len())
}

pub(super) fn matches<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let text = args.str(0)?;
    with(args, |pattern| Ok(Val::Bool(pattern.is_match(text))))
}

fn find<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let text = args.str(0)?;
    with(args, |pattern| Ok(Val::text(pattern.find(text).map_or("", |found| found.as_str()))))
}

fn find_all<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let text = args.str(0)?;
    let limit = if args.args.len() > 2 { args.int(2)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    with(args, |pattern| {
        let mut found = Vec::new();
        for one in pattern.find_iter(text).take(limit) {
            args.meter.allocate(one.len() + size_of::<Val<'_>>())?;
            found.push(Val::text(one.as_str()));
        }
        Ok(Val::list(found))
    })
}
