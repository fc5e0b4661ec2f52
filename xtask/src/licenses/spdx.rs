//! SPDX licence expressions: `MIT OR (Apache-2.0 AND ISC)`, and the `/` of old manifests.

use std::collections::BTreeSet;

/// A licence expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// One licence, with its exception if it has one: `Apache-2.0 WITH LLVM-exception`.
    License(String),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

impl Expression {
    /// Parses an expression. Returns `None` if it is invalid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let tokens: Vec<&str> = text.split_whitespace().collect();
        let mut at = 0;
        let expression = any(&tokens, &mut at)?;
        (at == tokens.len()).then_some(expression)
    }

    /// Returns the licences that satisfy the expression, preferring earlier entries of `allowed`. Returns `None` if no
    /// choice is allowed.
    pub(super) fn choose<'a>(&'a self, allowed: &[String]) -> Option<BTreeSet<&'a str>> {
        match self {
            Self::License(name) => allowed.contains(name).then(|| BTreeSet::from([name.as_str()])),
            Self::All(parts) => {
                parts.iter().map(|part| part.choose(allowed)).try_fold(BTreeSet::new(), |mut chosen, part| {
                    chosen.extend(part?);
                    Some(chosen)
                })
            }
            Self::Any(parts) => {
                let rank = |license: &str| allowed.iter().position(|allowed| allowed == license);
                let worst = |chosen: &BTreeSet<&str>| chosen.iter().filter_map(|license| rank(license)).max();
                parts.iter().filter_map(|part| part.choose(allowed)).min_by_key(worst)
            }
        }
    }
}

fn any(tokens: &[&str], at: &mut usize) -> Option<Expression> {
    let mut parts = vec![all(tokens, at)?];
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        parts.push(all(tokens, at)?);
    }
    Some(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
}

fn all(tokens: &[&str], at: &mut usize) -> Option<Expression> {
    let mut parts = vec![one(tokens, at)?];
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        parts.push(one(tokens, at)?);
    }
    Some(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
}

fn one(tokens: &[&str], at: &mut usize) -> Option<Expression> {
    let word = *tokens.get(*at)?;
    *at += 1;
    match word {
        "(" => {
            let inner = any(tokens, at)?;
            (tokens.get(*at) == Some(&")")).then(|| *at += 1)?;
            Some(inner)
        }
        ")" | "AND" | "OR" | "WITH" => None,
        name if tokens.get(*at) == Some(&"WITH") => {
            let exception = *tokens.get(*at + 1)?;
            *at += 2;
            Some(Expression::License(format!("{name} WITH {exception}")))
        }
        name => Some(Expression::License(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<&[&str]>) {
        let allowed = ["Apache-2.0", "MIT", "ISC"].map(str::to_owned);
        let expression = Expression::parse(text).unwrap();
        let chosen = expression.choose(&allowed).map(|chosen| chosen.into_iter().collect::<Vec<_>>());
        assert_eq!(chosen.as_deref(), expect, "{text}");
    }

    #[test]
    fn preferred_licence_is_chosen() {
        check("MIT", Some(&["MIT"]));
        check("MIT OR Apache-2.0", Some(&["Apache-2.0"]));
        check("MIT/Apache-2.0", Some(&["Apache-2.0"]));
        check("GPL-3.0 OR ISC", Some(&["ISC"]));
        check("GPL-3.0", None);
    }

    #[test]
    fn every_part_of_a_conjunction_must_be_allowed() {
        check("ISC AND (MIT OR Apache-2.0)", Some(&["Apache-2.0", "ISC"]));
        check("ISC AND GPL-3.0", None);
        check("MIT OR ISC AND GPL-3.0", Some(&["MIT"]));
    }

    #[test]
    fn licence_with_exception_is_a_different_licence() {
        check("Apache-2.0 WITH LLVM-exception", None);
        check("Apache-2.0 WITH LLVM-exception OR MIT", Some(&["MIT"]));
    }

    #[test]
    fn invalid_expression_is_rejected() {
        for text in ["", "OR", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "MIT WITH"] {
            assert_eq!(Expression::parse(text), None, "{text}");
        }
    }
}
