//! Label selectors: the text form, the `LabelSelector` object form, and matching.

mod object;
mod parse;

use std::fmt;

pub use object::{SelectorError, format_labels, format_selector, from_object, validate_object};
pub use parse::ParseError;

use crate::field::{self, Error};
use crate::{Object, Path, Str, Value, names};

/// A label selector. All requirements must hold; an empty selector matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Matches labels that meet all requirements, which are sorted by key.
    All(Vec<Requirement>),
    /// Matches nothing, like an absent selector.
    Nothing,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: Str,
    operator: Operator,
    values: Vec<Str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `key=value`
    Equals,
    /// `key==value`, equivalent to `Equals`
    DoubleEquals,
    /// `key!=value`, also if the label is absent
    NotEquals,
    /// `key in (a,b)`
    In,
    /// `key notin (a,b)`, also if the label is absent
    NotIn,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key>1`
    GreaterThan,
    /// `key<1`
    LessThan,
}

impl Selector {
    pub const EVERYTHING: Self = Self::All(Vec::new());

    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }

    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self::All(requirements)
    }

    pub const fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// Returns the requirements, sorted by key; `None` if the selector matches nothing.
    pub fn requirements(&self) -> Option<&[Requirement]> {
        match self {
            Self::All(requirements) => Some(requirements),
            Self::Nothing => None,
        }
    }

    /// Whether the selector matches; `label` returns the value of a label.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::All(requirements) => {
                requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
            }
            Self::Nothing => false,
        }
    }

    /// Whether the selector matches a map of labels; `None` is an empty map.
    pub fn matches_labels(&self, labels: Option<&Object>) -> bool {
        self.matches(|key| labels?.get(key)?.as_str())
    }

    /// Whether the selector matches the labels of an object.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches_labels(object.at(&["metadata", "labels"]).and_then(Value::as_object))
    }

    /// Returns the single value that the selector requires of the label `key`, if any.
    pub fn exact_value(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements()?.iter().find(|requirement| requirement.key == key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl Requirement {
    /// Builds a requirement; fails if key, operator and values are invalid or do not match. `path` is used in errors.
    pub fn new(key: &str, operator: Operator, values: Vec<Str>, path: &Path) -> Result<Self, field::Errors> {
        let mut errors = Vec::new();
        let wrong = names::qualified_name(key);
        if !wrong.is_empty() {
            errors.push(Error::invalid(&path.field("key"), key, wrong.join("; ")));
        }
        let at = path.field("values");
        let list = || Value::Array(values.iter().cloned().map(Value::String).collect());
        let count = |errors: &mut field::Errors, right: bool, detail: &str| {
            if !right {
                errors.push(Error::invalid(&at, list(), detail));
            }
        };
        match operator {
            Operator::In | Operator::NotIn => {
                count(&mut errors, !values.is_empty(), "for 'in', 'notin' operators, values set can't be empty");
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
                count(&mut errors, values.len() == 1, "exact-match compatibility requires one single value");
            }
            Operator::Exists | Operator::DoesNotExist => {
                count(&mut errors, values.is_empty(), "values set must be empty for exists and does not exist");
            }
            Operator::GreaterThan | Operator::LessThan => {
                count(&mut errors, values.len() == 1, "for 'Gt', 'Lt' operators, exactly one value is required");
                for (at, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(Error::invalid(&path.field("values").index(at), value.clone(), detail));
                }
            }
        }
        for (index, value) in values.iter().enumerate() {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                errors.push(Error::invalid(&at.index(index).key(key), value.clone(), wrong.join("; ")));
            }
        }
        if errors.is_empty() { Ok(Self { key: key.into(), operator, values }) } else { Err(errors) }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub const fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[Str] {
        &self.values
    }

    /// Whether the requirement holds for a label value; `None` is an absent label.
    pub fn matches(&self, label: Option<&str>) -> bool {
        let among = |value: &str| self.values.iter().any(|one| one == value);
        let compared = |by: fn(&i64, &i64) -> bool| {
            let label = label.and_then(|label| label.parse().ok());
            let bound = self.values.first().and_then(|value| value.parse().ok());
            matches!((label, bound), (Some(label), Some(bound)) if by(&label, &bound))
        };
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => label.is_some_and(among),
            Operator::NotEquals | Operator::NotIn => !label.is_some_and(among),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => compared(i64::gt),
            Operator::LessThan => compared(i64::lt),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements().unwrap_or_default().iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(out, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let mut values: Vec<&str> = values.iter().map(Str::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        match operator {
            Operator::Equals => write!(out, "{key}={values}"),
            Operator::DoubleEquals => write!(out, "{key}=={values}"),
            Operator::NotEquals => write!(out, "{key}!={values}"),
            Operator::In => write!(out, "{key} in ({values})"),
            Operator::NotIn => write!(out, "{key} notin ({values})"),
            Operator::Exists => write!(out, "{key}"),
            Operator::DoesNotExist => write!(out, "!{key}"),
            Operator::GreaterThan => write!(out, "{key}>{values}"),
            Operator::LessThan => write!(out, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests;
