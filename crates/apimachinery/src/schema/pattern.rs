//! Regular expressions of CRD schemas (`pattern`).

use std::fmt;

use regex::Regex;

pub use crate::regexp::Error;
use crate::{Str, regexp};

/// Maximum size of a compiled pattern in bytes: far above any legitimate pattern, and small enough to keep a thousand
/// of them in memory.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A compiled regular expression with its source.
#[derive(Clone)]
pub struct Pattern {
    source: Str,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern in Go's syntax.
    pub fn new(source: &str) -> Result<Self, Error> {
        Ok(Self { source: source.into(), regex: regexp::compile(source, COMPILED_BYTES_MAX)? })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether any part of `text` matches.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pattern({})", self.source)
    }
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
    fn patterns_match_like_in_go() {
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
    fn invalid_and_oversized_patterns_are_rejected() {
        for bad in ["(", "a**b(", "[z-a]", r"(?=a)", "(a{1000}){1000}", "\\"] {
            assert!(Pattern::new(bad).is_err(), "{bad}");
        }
    }
}
