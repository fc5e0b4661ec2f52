//! What to do about fields that are unknown or given twice: refuse, warn or ignore (`?fieldValidation=`).

use std::fmt;
use std::str::FromStr;

use crate::go;

/// What a client wants done about fields that are unknown or given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and say so.
    #[default]
    Warn,
    /// Refuse the object.
    Strict,
}

/// A mode that does not exist.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of Ignore, Strict, Warn")]
pub struct UnknownMode(String);

/// Why a strict decoder refuses an object: all the fields that are unknown or given twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct StrictError {
    findings: Vec<String>,
}

impl FieldValidation {
    /// Judges what decoding found, in the order in which it is told: the warnings to send along, or the refusal.
    pub fn judge(self, findings: Vec<String>) -> Result<Vec<String>, StrictError> {
        match self {
            Self::Ignore => Ok(Vec::new()),
            Self::Strict if !findings.is_empty() => Err(StrictError { findings }),
            Self::Warn | Self::Strict => Ok(findings),
        }
    }
}

/// What is said of a key that is given twice.
pub fn duplicate(path: impl fmt::Display) -> String {
    format!("duplicate field {}", go::quote(&path.to_string()))
}

/// What is said of a field that no type has.
pub fn unknown(path: impl fmt::Display) -> String {
    format!("unknown field {}", go::quote(&path.to_string()))
}

impl FromStr for FieldValidation {
    type Err = UnknownMode;

    /// An empty word is the default.
    fn from_str(word: &str) -> Result<Self, UnknownMode> {
        match word {
            "" => Ok(Self::default()),
            "Ignore" => Ok(Self::Ignore),
            "Warn" => Ok(Self::Warn),
            "Strict" => Ok(Self::Strict),
            other => Err(UnknownMode(other.to_owned())),
        }
    }
}

impl StrictError {
    /// Each finding by itself: `unknown field "spec.bogus"`.
    pub fn findings(&self) -> &[String] {
        &self.findings
    }
}

impl fmt::Display for StrictError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "strict decoding error: {}", self.findings.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_refuses_warn_tells_and_ignore_is_silent() {
        let found = || vec![duplicate("metadata"), unknown("spec.bogus"), unknown("a\"b")];
        let findings = [r#"duplicate field "metadata""#, r#"unknown field "spec.bogus""#, r#"unknown field "a\"b""#];
        assert_eq!(FieldValidation::Ignore.judge(found()), Ok(vec![]));
        assert_eq!(FieldValidation::Warn.judge(found()).unwrap(), findings);
        let error = FieldValidation::Strict.judge(found()).unwrap_err();
        assert_eq!(error.to_string(), format!("strict decoding error: {}", findings.join(", ")));
        assert_eq!(FieldValidation::Strict.judge(vec![]), Ok(vec![]));
    }

    #[test]
    fn modes_go_by_their_names_and_warning_is_the_default() {
        assert_eq!("".parse(), Ok(FieldValidation::Warn));
        assert_eq!("Strict".parse(), Ok(FieldValidation::Strict));
        assert!("strict".parse::<FieldValidation>().is_err());
    }
}
