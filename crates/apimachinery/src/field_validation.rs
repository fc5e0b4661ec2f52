//! Field validation (`?fieldValidation=`): rejects, warns about or ignores unknown and duplicate fields.

use std::fmt;
use std::str::FromStr;

use crate::go;

/// The client's choice for unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    /// Drop the fields and return warnings.
    #[default]
    Warn,
    /// Reject the object.
    Strict,
}

/// An unknown `fieldValidation` value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of Ignore, Strict, Warn")]
pub struct UnknownMode(String);

/// All unknown and duplicate fields of an object that strict decoding rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct StrictError {
    findings: Vec<String>,
}

impl FieldValidation {
    /// Returns the warnings for the response, or the error in strict mode. The order of findings is kept.
    pub fn check(self, findings: Vec<String>) -> Result<Vec<String>, StrictError> {
        match self {
            Self::Ignore => Ok(Vec::new()),
            Self::Strict if !findings.is_empty() => Err(StrictError { findings }),
            Self::Warn | Self::Strict => Ok(findings),
        }
    }
}

/// Returns the message for a duplicate key.
pub fn duplicate(path: impl fmt::Display) -> String {
    format!("duplicate field {}", go::quote(&path.to_string()))
}

/// Returns the message for an unknown field.
pub fn unknown(path: impl fmt::Display) -> String {
    format!("unknown field {}", go::quote(&path.to_string()))
}

impl FromStr for FieldValidation {
    type Err = UnknownMode;

    /// Parses a mode; an empty text is the default.
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
    /// Returns the individual findings, such as `unknown field "spec.bogus"`.
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
    fn strict_rejects_warn_warns_and_ignore_is_silent() {
        let found = || vec![duplicate("metadata"), unknown("spec.bogus"), unknown("a\"b")];
        let findings = [r#"duplicate field "metadata""#, r#"unknown field "spec.bogus""#, r#"unknown field "a\"b""#];
        assert_eq!(FieldValidation::Ignore.check(found()), Ok(vec![]));
        assert_eq!(FieldValidation::Warn.check(found()).unwrap(), findings);
        let error = FieldValidation::Strict.check(found()).unwrap_err();
        assert_eq!(error.to_string(), format!("strict decoding error: {}", findings.join(", ")));
        assert_eq!(FieldValidation::Strict.check(vec![]), Ok(vec![]));
    }

    #[test]
    fn modes_parse_by_name_and_default_to_warn() {
        assert_eq!("".parse(), Ok(FieldValidation::Warn));
        assert_eq!("Strict".parse(), Ok(FieldValidation::Strict));
        assert!("strict".parse::<FieldValidation>().is_err());
    }
}
