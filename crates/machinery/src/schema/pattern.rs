//! Regular expressions as Go understands them, on the engine we have.

use std::fmt;

use regex::{Regex, RegexBuilder};

use crate::Str;

/// The most memory a compiled pattern may take: far beyond any honest one, and little enough for a thousand of them.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A compiled regular expression that remembers how it was written.
#[derive(Clone)]
pub struct Pattern {
    source: Str,
    regex: Regex,
}

/// Why a pattern cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(#[from] regex::Error);

impl Pattern {
    /// Compiles a pattern written for Go's engine.
    pub fn new(source: &str) -> Result<Self, Error> {
        let regex = RegexBuilder::new(&translate(source)).size_limit(COMPILED_BYTES_MAX).build()?;
        Ok(Self { source: source.into(), regex })
    }

    /// The pattern as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether some part of `text` looks like this.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pattern({})", self.source)
    }
}

/// Go's classes `\d`, `\w`, `\s` and `\b` know ASCII only, a `[` or `&&` inside a class is nothing special, a `{` that
/// starts no repetition stands for itself, and `\Q…\E` quotes.
fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 16);
    let mut rest = source;
    let mut class = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => escape(after, class, &mut out),
            '[' if class => named_class(after, &mut out),
            '[' => {
                class = true;
                open_class(after, &mut out)
            }
            ']' if class => {
                class = false;
                out.push(']');
                after
            }
            '&' | '~' if class => {
                out.extend(['\\', c]);
                after
            }
            '{' if !class && !starts_repetition(after) => {
                out.push_str("\\{");
                after
            }
            _ => {
                out.push(c);
                after
            }
        };
    }
    out
}

/// What follows a backslash; gives back what is left.
fn escape<'a>(after: &'a str, class: bool, out: &mut String) -> &'a str {
    let Some(c) = after.chars().next() else {
        out.push('\\');
        return after;
    };
    let rest = &after[c.len_utf8()..];
    let words = match c {
        'd' if class => "0-9",
        'd' => "[0-9]",
        'D' => "[^0-9]",
        'w' if class => "0-9A-Za-z_",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        's' if class => r"\t\n\x0C\r ",
        's' => r"[\t\n\x0C\r ]",
        'S' => r"[^\t\n\x0C\r ]",
        'b' if !class => r"(?-u:\b)",
        '<' => "<",
        '>' => ">",
        'Q' => {
            let (quoted, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(quoted));
            return rest;
        }
        _ => {
            out.extend(['\\', c]);
            return rest;
        }
    };
    out.push_str(words);
    rest
}

/// A `[` outside a class: a `]` right at the start stands for itself.
fn open_class<'a>(after: &'a str, out: &mut String) -> &'a str {
    out.push('[');
    let mut rest = after;
    if let Some(negated) = rest.strip_prefix('^') {
        out.push('^');
        rest = negated;
    }
    if let Some(literal) = rest.strip_prefix(']') {
        out.push_str("\\]");
        rest = literal;
    }
    rest
}

/// A `[` inside a class: either `[:alpha:]` or nothing special.
fn named_class<'a>(after: &'a str, out: &mut String) -> &'a str {
    match after.strip_prefix(':').and_then(|named| named.split_once(":]")) {
        Some((name, rest)) if name.bytes().all(|b| b.is_ascii_lowercase() || b == b'^') => {
            out.extend(["[:", name, ":]"]);
            rest
        }
        _ => {
            out.push_str("\\[");
            after
        }
    }
}

fn starts_repetition(after: &str) -> bool {
    let Some((count, _)) = after.split_once('}') else { return false };
    let (low, high) = count.split_once(',').unwrap_or((count, ""));
    !low.is_empty() && low.bytes().chain(high.bytes()).all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], failing: &[&str]) {
        let compiled = Pattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        for text in matching {
            assert!(compiled.is_match(text), "{pattern} matches {text}");
        }
        for text in failing {
            assert!(!compiled.is_match(text), "{pattern} does not match {text}");
        }
    }

    #[test]
    fn patterns_mean_what_they_mean_to_go() {
        check(r"^\d+$", &["0123"], &["", "٣", "12a"]);
        check(r"^[\w.-]+$", &["a_b.c-d"], &["é", "a b"]);
        check(r"^\S+\s\S+$", &["a b"], &["ab"]);
        check(r"^[^\d]+$", &["abc"], &["a1"]);
        check(r"^a{2}b{,3}$", &["aab{,3}"], &["aabbb"]);
        check(r"^{x}$", &["{x}"], &["x"]);
        check(r"^[[]$", &["["], &["]"]);
        check(r"^[]a]+$", &["]a"], &["b"]);
        check(r"^[a&&b]+$", &["a&b"], &["c"]);
        check(r"^[[:alpha:]_]+$", &["ab_"], &["1"]);
        check(r"^\Qa.b\E$", &["a.b"], &["axb"]);
        check(r"^\<a\>$", &["<a>"], &["a"]);
        check(r"\bfoo\b", &["a foo b"], &["foobar"]);
        check(r"^.$", &["é"], &["éé", ""]);
    }

    #[test]
    fn what_does_not_compile_or_is_too_large_is_refused() {
        for bad in ["(", "a**b(", "[z-a]", r"(?=a)", "(a{1000}){1000}", "\\"] {
            assert!(Pattern::new(bad).is_err(), "{bad}");
        }
    }
}
