//! Label selectors: in text as clients send them, as objects in specifications, and what they match.

mod object;
mod parse;

use std::fmt;

pub use object::{SelectorError, format_labels, format_selector, from_object, validate_object};
pub use parse::ParseError;

use crate::field::{self, Error};
use crate::{Object, Path, Str, Value, names};

/// A condition on labels. All requirements must hold; no requirement matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Matches what meets all of these, which are sorted by key.
    All(Vec<Requirement>),
    /// Matches nothing, as a selector that is absent does.
    Nothing,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: Str,
    operator: Operator,
    values: Vec<Str>,
}

/// How a label relates to the values of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `key=value`
    Equals,
    /// `key==value`, the same in another notation
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
    /// Matches everything.
    pub const EVERYTHING: Self = Self::All(Vec::new());

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }

    /// The selector of these requirements.
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self::All(requirements)
    }

    /// Whether it matches everything.
    pub const fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// The requirements, sorted by key; `None` if it matches nothing.
    pub fn requirements(&self) -> Option<&[Requirement]> {
        match self {
            Self::All(requirements) => Some(requirements),
            Self::Nothing => None,
        }
    }

    /// Whether it matches labels, of which `label` gives the value by key.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::All(requirements) => {
                requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
            }
            Self::Nothing => false,
        }
    }

    /// Whether it matches an object of labels; `None` is an object without any.
    pub fn matches_labels(&self, labels: Option<&Object>) -> bool {
        self.matches(|key| labels?.get(key)?.as_str())
    }

    /// Whether it matches the labels of a whole object.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches_labels(object.at(&["metadata", "labels"]).and_then(Value::as_object))
    }

    /// The one value that the label `key` must have, if the selector asks for one.
    pub fn exact_value(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements()?.iter().find(|requirement| requirement.key == key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl Requirement {
    /// A condition on the label `key`, if key, operator and values go together. `path` is where it stands.
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

    /// The label that it is about.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the label relates to the values.
    pub const fn operator(&self) -> Operator {
        self.operator
    }

    /// The values that the label is compared with.
    pub fn values(&self) -> &[Str] {
        &self.values
    }

    /// Whether it holds for a label of this value; `None` is an absent label.
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
