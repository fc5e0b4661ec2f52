//! Go regular expressions on Rust's engine: parses RE2 syntax and translates it to equivalent syntax of the `regex`
//! crate.
//!
//! Patterns of CRD schemas, CEL expressions and admission policies are written for Go's `regexp` package. Its syntax
//! resembles that of the `regex` crate but differs in many details: classes such as `\d` are ASCII, classes do not
//! nest, `\<` is a literal, `{` may be a literal, repetitions do not stack. Patterns are therefore parsed by Go's
//! rules, with Go's errors, and translated to a small subset of the common syntax: characters, bracketed classes,
//! groups without names, repetitions.
//!
//! ```text
//! pattern ── parse (Go's grammar) ──> nodes ── write ──> pattern of the regex crate ── compile, size-limited ──> Regex
//! ```

mod class;
#[doc(hidden)]
pub mod fuzz;
mod names;
mod parse;

use std::fmt;

use regex::{Regex, RegexBuilder};

/// Compiles a pattern in Go's syntax; fails if the program exceeds `bytes_max` bytes.
pub fn compile(pattern: &str, bytes_max: usize) -> Result<Regex, Error> {
    let translated = translate(pattern)?;
    let compiled = RegexBuilder::new(&translated).size_limit(bytes_max).dfa_size_limit(bytes_max).build();
    compiled.map_err(|error| {
        let code = match error {
            regex::Error::Syntax(_) => Code::NestingDepth,
            _ => Code::Large,
        };
        Error::new(code, pattern)
    })
}

/// Translates a pattern from Go's syntax to that of the `regex` crate. Groups lose their names and do not capture.
pub fn translate(pattern: &str) -> Result<String, Error> {
    parse::Parser::new(pattern).parse()
}

/// A pattern is not a valid regular expression; the message is Go's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    expression: String,
}

impl Error {
    fn new(code: Code, expression: &str) -> Self {
        Self { code, expression: expression.to_owned() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "error parsing regexp: {}: `{}`", self.code.text(), self.expression)
    }
}

impl std::error::Error for Error {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    InvalidCharRange,
    InvalidEscape,
    InvalidNamedCapture,
    InvalidPerlOp,
    InvalidRepeatOp,
    InvalidRepeatSize,
    MissingBracket,
    MissingParen,
    MissingRepeatArgument,
    TrailingBackslash,
    UnexpectedParen,
    NestingDepth,
    Large,
}

impl Code {
    const fn text(self) -> &'static str {
        match self {
            Self::InvalidCharRange => "invalid character class range",
            Self::InvalidEscape => "invalid escape sequence",
            Self::InvalidNamedCapture => "invalid named capture",
            Self::InvalidPerlOp => "invalid or unsupported Perl syntax",
            Self::InvalidRepeatOp => "invalid nested repetition operator",
            Self::InvalidRepeatSize => "invalid repeat count",
            Self::MissingBracket => "missing closing ]",
            Self::MissingParen => "missing closing )",
            Self::MissingRepeatArgument => "missing argument to repetition operator",
            Self::TrailingBackslash => "trailing backslash at end of expression",
            Self::UnexpectedParen => "unexpected )",
            Self::NestingDepth => "expression nests too deeply",
            Self::Large => "expression too large",
        }
    }
}

/// Splits off the first character.
fn next(text: &str) -> Option<(char, &str)> {
    let first = text.chars().next()?;
    Some((first, &text[first.len_utf8()..]))
}

/// Returns the part of `whole` before `rest`.
fn consumed<'a>(whole: &'a str, rest: &str) -> &'a str {
    &whole[..whole.len() - rest.len()]
}

#[cfg(test)]
mod tests;
