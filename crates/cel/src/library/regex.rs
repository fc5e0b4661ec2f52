//! Regular expressions in RE2's notation, in time linear in the text and with a bound on the size of the pattern.

use ::regex::{Regex, RegexBuilder};
use std::borrow::Cow;

use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

/// What a compiled pattern may take; a pattern such as `(a{1000}){1000}` is refused instead of built.
const SIZE_MAX: usize = 1 << 20;

pub const ROWS: &[Row] = &[
    row("string.find(string) -> string", Cost::Find, find),
    row("string.findAll(string) -> list<string>", Cost::Find, find_all),
    row("string.findAll(string, int) -> list<string>", Cost::Find, find_all),
];

/// The function's argument that is a pattern, if it takes one: a constant there is compiled once.
pub fn is_pattern_argument(function: &str) -> bool {
    matches!(function, "matches" | "find" | "findAll")
}

/// Compiles a pattern.
pub fn compile(pattern: &str) -> std::result::Result<Regex, String> {
    RegexBuilder::new(&translate(pattern)).size_limit(SIZE_MAX).dfa_size_limit(SIZE_MAX).build().map_err(|error| {
        let text = error.to_string();
        let why = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        format!("error parsing regexp: {}", why.trim().trim_start_matches("error: "))
    })
}

/// RE2's classes are ASCII and its brackets hold no nested sets, unlike those of the engine used here.
fn translate(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains(['\\', '[', '{']) {
        return Cow::Borrowed(pattern);
    }
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    let mut class = false;
    let mut class_start = false;
    while let Some(c) = chars.next() {
        let starts = std::mem::take(&mut class_start);
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str(if class { "0-9" } else { "[0-9]" }),
                Some('w') => out.push_str(if class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                Some('s') => out.push_str(if class { "\\t\\n\\f\\r " } else { "[\\t\\n\\f\\r ]" }),
                Some('D') => out.push_str("[^0-9]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
                Some(edge @ ('b' | 'B')) if !class => {
                    out.push_str("(?-u:\\");
                    out.push(edge);
                    out.push(')');
                }
                Some('C') => out.push('.'),
                Some('Q') => quote(&mut chars, &mut out),
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            },
            '[' if !class => {
                class = true;
                class_start = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
            }
            // A bracket right after the opening one stands for itself.
            ']' if class && starts => out.push_str("\\]"),
            ']' if class => {
                class = false;
                out.push(']');
            }
            '[' if chars.peek() == Some(&':') => out.push('['),
            '[' => out.push_str("\\["),
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            '{' if !class && chars.peek() == Some(&',') => out.push_str("\\{"),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Everything up to `\E` stands for itself.
fn quote(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            return;
        }
        out.push_str(&::regex::escape(c.encode_utf8(&mut [0; 4])));
    }
}

fn with<T>(args: Args<'_, '_>, run: impl FnOnce(&Regex) -> Result<T>) -> Result<T> {
    match args.pattern {
        Some(pattern) => run(pattern),
        None => run(&compile(args.str(1)?).map_err(Failure::message)?),
    }
}

pub fn matches<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
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
