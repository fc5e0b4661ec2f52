//! YAML parser and writer with the rules of kubectl's YAML library.
//!
//! That library parses YAML 1.1: `yes` and `on` are booleans, `0644` is octal, `<<` merges. It converts the result to
//! JSON, so keys become strings and a whole float becomes an integer. The writer quotes exactly those texts that would
//! parse as something else.

mod read;
mod resolve;
mod write;

pub use read::Documents;
pub use write::to_string;

use crate::Value;

/// The text is not valid YAML, or cannot be converted to JSON. Lines are counted from one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("yaml: invalid syntax")]
    Syntax(#[from] granit_parser::ScanError),
    /// A key is `null`, a list or a mapping.
    #[error("yaml: line {line}: unsupported map key")]
    Key {
        /// The line of the key.
        line: usize,
    },
    /// The value of `<<` is neither a mapping nor a list of mappings.
    #[error("yaml: line {line}: map merge requires map or sequence of maps as the value")]
    Merge {
        /// The line of the value.
        line: usize,
    },
    /// A value does not match its tag.
    #[error("yaml: line {line}: cannot decode {text:?} as a {tag}")]
    Tag {
        line: usize,
        text: String,
        /// For example `!!int`.
        tag: String,
    },
    /// An alias occurs inside the value of its anchor.
    #[error("yaml: line {line}: anchor value contains itself")]
    Recursive {
        /// The line of the alias.
        line: usize,
    },
    /// Aliases expand to more nodes than the limit.
    #[error("yaml: document contains excessive aliasing")]
    Aliases,
    /// Lists and mappings are nested more than 127 levels deep.
    #[error("yaml: line {line}: exceeded max depth")]
    Depth {
        /// The line of the first value that is too deep.
        line: usize,
    },
    /// A number is NaN or infinite, which JSON cannot represent.
    #[error("yaml: line {line}: unsupported value {text}")]
    NotFinite {
        line: usize,
        /// The number as written.
        text: String,
    },
    /// The text has several documents, but only one is allowed.
    #[error("yaml: more than one document")]
    Several,
}

/// Parses a single document; an empty text is `null`. The last value of a duplicate key counts.
// DEVIATION: upstream parses the first document and silently ignores the others.
pub fn parse(text: &str) -> Result<Value, Error> {
    parse_strict(text).map(|(value, _)| value)
}

/// Parses a single document, and reports each duplicate key: `line 3: key "a" already set in map`.
pub fn parse_strict(text: &str) -> Result<(Value, Vec<String>), Error> {
    let mut documents = documents(text);
    let first = documents.next().transpose()?.unwrap_or_default();
    let repeated = documents.repeated().to_vec();
    match documents.next() {
        None => Ok((first, repeated)),
        Some(Ok(_)) => Err(Error::Several),
        Some(Err(error)) => Err(error),
    }
}

/// Parses all documents. An empty one is `null`.
pub fn parse_all(text: &str) -> Result<Vec<Value>, Error> {
    documents(text).collect()
}

/// Iterates over the documents; ends after the first error.
pub fn documents(text: &str) -> Documents<'_> {
    Documents::new(text)
}

#[cfg(test)]
mod tests;
