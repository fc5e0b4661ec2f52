//! OIDC claim mapping: from claims to a user.

use std::collections::BTreeMap;

use apimachinery::{Str, Value};
use cel::{ExpressionContext, Val};

use super::{Authenticator, Error, Mapping};
use crate::User;
use crate::expression::Expression;

const LIST: &str = "expression must return a string or a list of strings";

impl Authenticator {
    /// Maps claims to a user, without the groups that the server adds.
    pub(super) fn map(&self, claims: &Value) -> Result<User, Error> {
        Ok(User {
            name: self.map_username(claims)?,
            groups: self.map_groups(claims)?,
            uid: self.map_uid(claims)?,
            extra: self.map_extra(claims)?,
        })
    }

    fn map_username(&self, claims: &Value) -> Result<Str, Error> {
        match &self.username {
            Mapping::Expression(expression) => one_text(
                expression,
                claims,
                "username claim expression",
                "username claim expression must return a string",
            ),
            Mapping::Claim { name, prefix } => {
                let username = claim_text(claims, name, "username claims")?;
                if name == "email" {
                    check_email(claims)?;
                }
                Ok(format!("{prefix}{username}").into())
            }
        }
    }

    fn map_groups(&self, claims: &Value) -> Result<Vec<Str>, Error> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(Mapping::Expression(expression)) => texts(expression, claims, "group claim expression"),
            Some(Mapping::Claim { name, prefix }) => {
                let Some(value) = claims.get(name) else { return Ok(Vec::new()) };
                let wrong = |cause| Error::Claim { attribute: "groups claim", name: name.clone(), cause };
                // Some issuers have a single role instead of a list of groups.
                let groups = match value {
                    Value::Array(items) => items.iter().map(text).collect::<Result<Vec<_>, _>>(),
                    other => text(other).map(|one| vec![one]),
                };
                Ok(groups.map_err(wrong)?.into_iter().map(|group| format!("{prefix}{group}").into()).collect())
            }
        }
    }

    fn map_uid(&self, claims: &Value) -> Result<Str, Error> {
        match &self.uid {
            None => Ok(Str::default()),
            Some(Mapping::Claim { name, .. }) => claim_text(claims, name, "uid claim").map(Str::from),
            Some(Mapping::Expression(expression)) => {
                one_text(expression, claims, "uid claim expression", "uid claim expression must return a string")
            }
        }
    }

    fn map_extra(&self, claims: &Value) -> Result<BTreeMap<Str, Vec<Str>>, Error> {
        let mut extra = BTreeMap::new();
        for (key, expression) in &self.extra {
            let values = texts(expression, claims, "extra claim expression")?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }
}

/// Returns a string claim, or the error message of Go's decoder.
pub(super) fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("json: cannot unmarshal {} into Go value of type string", value.kind()))
}

fn claim_text<'a>(claims: &'a Value, name: &Str, attribute: &'static str) -> Result<&'a str, Error> {
    let found = claims.get(name).ok_or_else(|| "claim not present".to_owned()).and_then(text);
    found.map_err(|cause| Error::Claim { attribute, name: name.clone(), cause })
}

/// Rejects an unverified email address, which may belong to another person.
fn check_email(claims: &Value) -> Result<(), Error> {
    match claims.get("email_verified") {
        None | Some(Value::Bool(true)) => Ok(()),
        Some(Value::Bool(false)) => Err(Error::EmailNotVerified),
        Some(other) => {
            let message = format!("json: cannot unmarshal {} into Go value of type bool", other.kind());
            Err(Error::EmailVerified(message))
        }
    }
}

fn one_text(expression: &Expression, claims: &Value, what: &'static str, otherwise: &str) -> Result<Str, Error> {
    let text = evaluate(expression, claims, what, |value| value.as_str().map(Str::from))?;
    text.ok_or_else(|| Error::Expression { what, cause: otherwise.to_owned() })
}

/// Returns one or several strings without empty ones.
fn texts(expression: &Expression, claims: &Value, what: &'static str) -> Result<Vec<Str>, Error> {
    let found = evaluate(expression, claims, what, |value| match value {
        Val::Null => Some(Vec::new()),
        Val::String(text) => Some(vec![Str::from(text.as_str())]),
        Val::List(list) => list.iter().map(|item| item.ok()?.as_str().map(Str::from)).collect(),
        _ => None,
    })?;
    let mut found = found.ok_or_else(|| Error::Expression { what, cause: LIST.to_owned() })?;
    found.retain(|text| !text.is_empty());
    Ok(found)
}

fn evaluate<T>(
    expression: &Expression,
    claims: &Value,
    what: &'static str,
    take: impl FnOnce(&Val<'_>) -> T,
) -> Result<T, Error> {
    expression.evaluate(ExpressionContext::AuthenticationClaims, "claims", claims, take).map_err(|failure| {
        Error::Expression { what, cause: format!("expression '{}' resulted in error: {failure}", expression.source) }
    })
}
