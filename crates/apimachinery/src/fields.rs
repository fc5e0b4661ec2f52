//! Field selectors: `metadata.name=a,status.phase!=Running`.

use std::fmt;

/// A field selector. All requirements must hold; an empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

/// A requirement on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The path of the field, as listed in the kind's selectable fields.
    pub field: String,
    pub operator: Operator,
    /// An absent field has the empty value.
    pub value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=` or `==`
    Equals,
    /// `!=`
    NotEquals,
}

/// The text is not a valid field selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The complete selector text.
        selector: String,
        term: String,
    },
    /// A backslash precedes a character that needs no escape.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A character of the syntax occurs in a value without a backslash.
    // Go prints the code point as a number here, not the character.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
    /// The kind does not support this field in selectors.
    #[error("field label not supported: {0}")]
    Unsupported(String),
}

impl Selector {
    pub const EVERYTHING: Self = Self { requirements: Vec::new() };

    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let terms = terms.into_iter().filter(|term| !term.is_empty()).map(|term| requirement(text, term));
        let mut requirements = terms.collect::<Result<Vec<_>, _>>()?;
        // A term with an empty field and an empty value is ignored.
        requirements.retain(|requirement| !(requirement.field.is_empty() && requirement.value.is_empty()));
        Ok(Self { requirements })
    }

    /// Returns the selector `field=value`.
    pub fn one(field: &str, value: &str) -> Self {
        let requirement = Requirement { field: field.to_owned(), operator: Operator::Equals, value: value.to_owned() };
        Self { requirements: vec![requirement] }
    }

    pub const fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements, sorted by the text of their terms.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Rejects fields for which `supported` returns false.
    pub fn check(&self, supported: impl Fn(&str) -> bool) -> Result<(), Error> {
        match self.requirements.iter().find(|requirement| !supported(&requirement.field)) {
            Some(requirement) => Err(Error::Unsupported(requirement.field.clone())),
            None => Ok(()),
        }
    }

    /// Whether the selector matches. `field` returns the value of a path; an absent field has the empty value.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let same = field(&requirement.field).unwrap_or_default() == requirement.value;
            same == (requirement.operator == Operator::Equals)
        })
    }

    /// Returns the single value that the selector requires of `field`, if any.
    pub fn exact_value(&self, field: &str) -> Option<&str> {
        let exact = |one: &&Requirement| one.field == field && one.operator == Operator::Equals;
        self.requirements.iter().find(exact).map(|requirement| requirement.value.as_str())
    }
}

/// Escapes the characters of the selector syntax with a backslash.
pub fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn requirement(text: &str, term: &str) -> Result<Requirement, Error> {
    let unclear = || Error::Term { selector: text.to_owned(), term: term.to_owned() };
    // The first operator counts. A later one belongs to the value and must be escaped there.
    let at = [term.find("!="), term.find('=')].into_iter().flatten().min().ok_or_else(unclear)?;
    let (field, rest) = term.split_at(at);
    let (operator, value) = match rest.strip_prefix("!=") {
        Some(value) => (Operator::NotEquals, value),
        None => (Operator::Equals, rest.strip_prefix("==").unwrap_or(&rest[1..])),
    };
    Ok(Requirement { field: field.to_owned(), operator, value: unescape(value)? })
}

fn unescape(value: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => return Err(Error::Escape(['\\'].into_iter().chain(other).collect())),
            },
            ',' | '=' => return Err(Error::Unescaped(c)),
            _ => out.push(c),
        }
    }
    Ok(out)
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Requirement { field, operator, value }) in self.requirements.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let operator = if *operator == Operator::Equals { "=" } else { "!=" };
            write!(out, "{comma}{field}{operator}{}", escape(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selectors_parse_and_print_sorted_by_term() {
        let check = |text: &str, printed: &str| assert_eq!(Selector::parse(text).unwrap().to_string(), printed);
        check("", "");
        check(",,", "");
        check("b=2,a==1", "a=1,b=2");
        check("a!=1", "a!=1");
        check("=,!=", "");
        check("=a", "=a");
        check(r"a=\,\=\\", r"a=\,\=\\");
    }

    #[test]
    fn invalid_selectors_fail_with_upstreams_messages() {
        let check = |text: &str, error: &str| assert_eq!(Selector::parse(text).unwrap_err().to_string(), error);
        check("a", "invalid selector: 'a'; can't understand 'a'");
        check("a=1,b", "invalid selector: 'a=1,b'; can't understand 'b'");
        check("a=b=c", "invalid field selector: unescaped character in value: 61");
        check(r"a=\x", r"invalid field selector: invalid escape sequence: \x");
        check(r"a=\", r"invalid field selector: invalid escape sequence: \");
        let error = Selector::parse("spec.x=1").unwrap().check(|field| field == "metadata.name").unwrap_err();
        assert_eq!(error.to_string(), "field label not supported: spec.x");
    }

    #[test]
    fn absent_field_has_the_empty_value() {
        let matches = |text: &str, value: Option<&'static str>| Selector::parse(text).unwrap().matches(|_| value);
        assert!(matches("a=", None));
        assert!(matches("a!=1", None));
        assert!(matches("a=1,a!=2", Some("1")));
        assert!(!matches("a=1", Some("2")));
        assert_eq!(Selector::parse("a!=1,a=2").unwrap().exact_value("a"), Some("2"));
    }

    proptest! {
        #[test]
        fn any_value_round_trips_through_escaping(value in any::<String>()) {
            let selector = Selector::one("a.b", &value);
            prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
        }

        #[test]
        fn printing_reaches_a_fixed_point(text in r"[ab=!,\\]{0,12}") {
            // The first parse sorts the terms as written; a second parse sorts them as printed.
            let again = |text: &str| Selector::parse(text).map(|selector| selector.to_string());
            if let Ok(printed) = again(&text).and_then(|printed| again(&printed)) {
                prop_assert_eq!(again(&printed), Ok(printed));
            }
        }
    }
}
