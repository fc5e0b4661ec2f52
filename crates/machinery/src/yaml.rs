//! YAML to tree and back, by the rules of the library that kubectl uses.
//!
//! That library reads YAML 1.1: `yes` and `on` are booleans, `0644` is octal, `<<` merges. It makes JSON of what it
//! read, so that keys become strings and a whole number loses its point. What it writes is quoted exactly where it
//! would read back as something else.

mod read;
mod resolve;
mod write;

pub use read::Documents;
pub use write::to_string;

use crate::Value;

/// Why a text is not the YAML of a tree. Lines are counted from one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It breaks the grammar.
    #[error("yaml: invalid syntax")]
    Syntax(#[from] granit_parser::ScanError),
    /// A key stands twice in the same mapping.
    #[error("yaml: line {line}: key {key:?} already set in map")]
    Repeated {
        /// Where it stands again.
        line: usize,
        /// The key.
        key: String,
    },
    /// A key is `null`, a list or a mapping.
    #[error("yaml: line {line}: unsupported map key")]
    Key {
        /// Where it stands.
        line: usize,
    },
    /// `<<` has a value that is neither a mapping nor a list of them.
    #[error("yaml: line {line}: map merge requires map or sequence of maps as the value")]
    Merge {
        /// Where it stands.
        line: usize,
    },
    /// A value does not fit its tag.
    #[error("yaml: line {line}: cannot decode {text:?} as a {tag}")]
    Tag {
        /// Where it stands.
        line: usize,
        /// The value.
        text: String,
        /// The tag, such as `!!int`.
        tag: String,
    },
    /// An alias stands inside of what it names.
    #[error("yaml: line {line}: anchor value contains itself")]
    Recursive {
        /// Where the alias stands.
        line: usize,
    },
    /// Aliases stand for more than a document may hold.
    #[error("yaml: document contains excessive aliasing")]
    Aliases,
    /// Lists and mappings stand more than 127 deep inside each other.
    #[error("yaml: line {line}: exceeded max depth")]
    Depth {
        /// Where it is too much.
        line: usize,
    },
    /// A number is none or infinite, which JSON cannot say.
    #[error("yaml: line {line}: unsupported value {text}")]
    NotFinite {
        /// Where it stands.
        line: usize,
        /// The number.
        text: String,
    },
    /// More than one document where one was asked for.
    #[error("yaml: more than one document")]
    Several,
}

/// Reads the only document; none at all is `null`.
// DEVIATION: upstream reads the first document and says nothing of the others.
pub fn parse(text: &str) -> Result<Value, Error> {
    let mut documents = documents(text);
    let first = documents.next().transpose()?.unwrap_or_default();
    match documents.next() {
        None => Ok(first),
        Some(Ok(_)) => Err(Error::Several),
        Some(Err(error)) => Err(error),
    }
}

/// Reads all documents. An empty one is `null`.
pub fn parse_all(text: &str) -> Result<Vec<Value>, Error> {
    documents(text).collect()
}

/// Reads document after document; ends after the first error.
pub fn documents(text: &str) -> Documents<'_> {
    Documents::new(text)
}

#[cfg(test)]
mod tests;
