//! Semver library: semantic versions.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::opaque::Opaque;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

pub const ROWS: &[Row] = &[
    row("semver(string) -> Semver", Cost::Scan, semver),
    row("semver(string, bool) -> Semver", Cost::Scan, semver),
    row("isSemver(string) -> bool", Cost::Scan, is_semver),
    row("isSemver(string, bool) -> bool", Cost::Scan, is_semver),
    row("Semver.major() -> int", Cost::Unit, |args| number(args, 0)),
    row("Semver.minor() -> int", Cost::Unit, |args| number(args, 1)),
    row("Semver.patch() -> int", Cost::Unit, |args| number(args, 2)),
    row("Semver.compareTo(Semver) -> int", Cost::Unit, |args| Ok(Val::Int(order(args)? as i64))),
    row("Semver.isLessThan(Semver) -> bool", Cost::Unit, |args| Ok(Val::Bool(order(args)? == Ordering::Less))),
    row("Semver.isGreaterThan(Semver) -> bool", Cost::Unit, |args| Ok(Val::Bool(order(args)? == Ordering::Greater))),
];

/// A semantic version. Build metadata is kept for printing and ignored in comparisons.
#[derive(Clone, Debug)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Identifier>,
    build: Box<str>,
}

/// One identifier of a pre-release; numbers sort before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Alphanumeric(Box<str>),
}

impl Semver {
    /// Parses `1.2.3-rc.1+build`.
    ///
    /// # Errors
    /// Upstream's error message.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
        let parts: Vec<&str> = core.splitn(3, '.').collect();
        let [major, minor, patch] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let numbers = [plain(major, "Major")?, plain(minor, "Minor")?, plain(patch, "Patch")?];
        let pre = pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(identifier).collect())?;
        if let Some(build) = build
            && build.split('.').any(|part| part.is_empty() || !is_word(part))
        {
            return Err(format!("Invalid character(s) found in build meta data {build:?}"));
        }
        Ok(Self { numbers, pre, build: build.unwrap_or_default().into() })
    }

    /// Normalizes a lenient version: a leading `v`, leading zeros, missing parts.
    fn normalize(text: &str) -> String {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let (core, rest) = text.split_at(end);
        let mut parts: Vec<String> = core
            .split('.')
            .map(|part| {
                let short = part.trim_start_matches('0');
                if short.is_empty() && !part.is_empty() { "0".into() } else { short.into() }
            })
            .collect();
        while parts.len() < 3 {
            parts.push("0".into());
        }
        parts.join(".") + rest
    }

    fn order(&self, other: &Self) -> Ordering {
        // A version without a pre-release is later than any of its pre-releases.
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre.cmp(&other.pre),
        })
    }
}

impl PartialEq for Semver {
    fn eq(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Equal
    }
}

impl fmt::Display for Semver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(out, "{major}.{minor}.{patch}")?;
        for (at, part) in self.pre.iter().enumerate() {
            out.write_str(if at == 0 { "-" } else { "." })?;
            match part {
                Identifier::Number(number) => write!(out, "{number}")?,
                Identifier::Alphanumeric(word) => out.write_str(word)?,
            }
        }
        if self.build.is_empty() { Ok(()) } else { write!(out, "+{}", self.build) }
    }
}

fn plain(text: &str, which: &str) -> std::result::Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {} number {text:?}", which.to_ascii_lowercase()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{which} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| format!("{which} number is too large {text:?}"))
}

fn identifier(part: &str) -> std::result::Result<Identifier, String> {
    if part.is_empty() {
        return Err("Prerelease is empty".into());
    }
    if part.bytes().all(|b| b.is_ascii_digit()) {
        return plain(part, "Numeric PreRelease version").map(Identifier::Number);
    }
    if is_word(part) {
        Ok(Identifier::Alphanumeric(part.into()))
    } else {
        Err(format!("Invalid character(s) found in prerelease {part:?}"))
    }
}

fn is_word(part: &str) -> bool {
    part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn parse_args(args: Args<'_, '_>) -> Result<std::result::Result<Semver, String>> {
    let text = args.str(0)?;
    Ok(match args.args.get(1) {
        Some(Val::Bool(true)) => Semver::parse(&Semver::normalize(text)),
        Some(Val::Bool(false)) | None => Semver::parse(text),
        Some(_) => return Err(Failure::no_overload()),
    })
}

fn semver<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    parse_args(args)?.map(|version| Val::Opaque(Opaque::Semver(Arc::new(version)))).map_err(Failure::message)
}

fn is_semver<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Bool(parse_args(args)?.is_ok()))
}

fn version<'c>(value: &'c Val<'_>) -> Result<&'c Semver> {
    match value {
        Val::Opaque(Opaque::Semver(version)) => Ok(version),
        _ => Err(Failure::no_overload()),
    }
}

fn number<'a>(args: Args<'_, 'a>, which: usize) -> Result<Val<'a>> {
    let number = version(&args.args[0])?.numbers[which];
    i64::try_from(number).map(Val::Int).map_err(|_| Failure::message("integer overflow"))
}

fn order(args: Args<'_, '_>) -> Result<Ordering> {
    Ok(version(&args.args[0])?.order(version(&args.args[1])?))
}
