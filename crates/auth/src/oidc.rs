//! OIDC authentication: JSON Web Tokens of other issuers, by `AuthenticationConfiguration` or the `--oidc-*` flags.
//!
//! The server fetches the documents of [`Authenticator::discovery_url`] and [`keys_url`]. All decisions are made here.
//! Such tokens are valid for the API server's own audiences only.

mod config;
mod email;
mod flags;
mod mapping;
mod url;

use apimachinery::time::{Duration, Time};
use apimachinery::{Str, Value, go, json};
use cel::ExpressionContext;

pub use config::{Config, Error as ConfigError};
pub use flags::{Error as FlagsError, Flags};

use crate::User;
use crate::expression::Expression;
use crate::jwt::{self, Token};
use crate::keys::KeySet;

/// Tolerated clock skew for `nbf`.
const NOT_BEFORE_LEEWAY: Duration = Duration::from_seconds(5 * 60);

/// An issuer, and the mapping of its claims to users.
#[derive(Debug)]
pub struct Authenticator {
    pub issuer: Issuer,
    rules: Vec<ClaimRule>,
    username: Mapping,
    groups: Option<Mapping>,
    uid: Option<Mapping>,
    extra: Vec<(Str, Expression)>,
    user_rules: Vec<Rule>,
}

/// A token issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issuer {
    /// The `iss` claim of its tokens.
    pub url: Str,
    /// The URL of the discovery document; empty for the default path below `url`.
    pub discovery_url: Str,
    /// The CA certificates of its servers in PEM; empty for the system's.
    pub certificate_authority: Str,
    /// The egress selector: `controlplane`, `cluster`, or empty for a direct connection.
    pub egress_selector_type: Str,
    /// Accepted audiences; a token must have one of them.
    pub audiences: Vec<Str>,
}

/// The configuration of anonymous requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anonymous {
    /// Whether anonymous requests are allowed.
    pub enabled: bool,
    /// If not empty, only these paths are allowed.
    pub paths: Vec<Str>,
}

/// The source of a user attribute.
#[derive(Debug)]
enum Mapping {
    Claim { name: Str, prefix: Str },
    Expression(Expression),
}

/// A claim validation rule.
#[derive(Debug)]
enum ClaimRule {
    Required { claim: Str, value: Str },
    Expression(Rule),
}

/// An expression that must be true, and the message if it is not.
#[derive(Debug)]
struct Rule {
    expression: Expression,
    message: Str,
}

/// A token of a configured issuer does not yield a user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("oidc: verify token: {0}")]
    Verify(Verify),
    /// A mapped claim is missing or not a string.
    #[error("oidc: parse {attribute} {name:?}: {cause}")]
    Claim {
        /// The user attribute, such as `groups claim`.
        attribute: &'static str,
        name: Str,
        cause: String,
    },
    /// The `email_verified` claim is not a boolean.
    #[error("oidc: parse 'email_verified' claim: {0}")]
    EmailVerified(String),
    #[error("oidc: email not verified")]
    EmailNotVerified,
    #[error("oidc: required claim {0} not present in ID token")]
    RequiredMissing(Str),
    /// A required claim is not a string.
    #[error("oidc: parse claim {0}: {1}")]
    RequiredType(Str, String),
    /// A required claim has another value.
    #[error("oidc: required claim {claim} value does not match. Got = {found}, want = {expected}")]
    RequiredValue {
        claim: Str,
        /// The value in the token.
        found: Str,
        expected: Str,
    },
    /// An expression failed, or has an unusable result.
    #[error("oidc: error evaluating {what}: {cause}")]
    Expression {
        /// The purpose of the expression.
        what: &'static str,
        cause: String,
    },
}

/// A token cannot be verified.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Verify {
    /// The text is not a token, or its algorithm is not accepted.
    #[error("oidc: malformed jwt: {0}")]
    Malformed(jwt::Error),
    /// No key of the issuer verifies the signature.
    #[error("failed to verify signature: failed to verify id token signature")]
    Signature,
    #[error("oidc: token is expired (Token Expiry: {0})")]
    Expired(Time),
    #[error("oidc: current time {now} before the nbf (not before) time: {at}")]
    NotYet {
        /// The time of verification.
        now: Time,
        /// The `nbf` claim.
        at: Time,
    },
    /// The token has none of the accepted audiences.
    #[error("oidc: expected audience in {} got {}", quoted(.expected), quoted(.token))]
    Audience {
        /// The accepted audiences.
        expected: Vec<Str>,
        /// The `aud` claim.
        token: Vec<Str>,
    },
}

/// The issuer's discovery document cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    #[error("oidc: failed to decode provider discovery object")]
    Malformed,
    #[error("oidc: issuer did not match the issuer returned by provider, expected {expected:?} got {found:?}")]
    Issuer {
        /// The configured issuer.
        expected: Str,
        /// The issuer in the document.
        found: Str,
    },
    #[error("oidc: the discovery document has no jwks_uri")]
    NoKeys,
}

impl Anonymous {
    /// Whether anonymous requests may access `path`.
    pub fn allows_path(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|allowed| allowed == path))
    }
}

impl Authenticator {
    /// Returns the URL of the discovery document.
    pub fn discovery_url(&self) -> String {
        match self.issuer.discovery_url.as_str() {
            "" => format!("{}/.well-known/openid-configuration", self.issuer.url.trim_end_matches('/')),
            url => url.to_owned(),
        }
    }

    /// Whether the `iss` claim is this issuer. The signature is not verified.
    pub fn issued(&self, token: &str) -> bool {
        jwt::claimed_issuer(token).is_some_and(|issuer| issuer == self.issuer.url)
    }

    /// Verifies a token and returns its user; `None` if the token is of another issuer.
    // DEVIATION: distributed claims (`_claim_sources`) are not fetched.
    pub fn check(&self, text: &str, keys: &KeySet, now: Time) -> Result<Option<User>, Error> {
        if !self.issued(text) {
            return Ok(None);
        }
        let token = Token::parse(text).map_err(|wrong| Error::Verify(Verify::Malformed(wrong)))?;
        self.verify(&token, keys, now).map_err(Error::Verify)?;
        let mut user = self.map(&token.claims)?;
        self.check_claims(&token.claims)?;
        self.check_user(&user)?;
        user.join(crate::user::AUTHENTICATED);
        Ok(Some(user))
    }

    fn verify(&self, token: &Token<'_>, keys: &KeySet, now: Time) -> Result<(), Verify> {
        let time = |claim| token.seconds(claim).map(|seconds| Time::from_unix(seconds, 0));
        let expiry = time("exp").unwrap_or(Time::from_unix(0, 0));
        if now > expiry {
            return Err(Verify::Expired(expiry));
        }
        if let Some(at) = time("nbf").filter(|at| now.plus(NOT_BEFORE_LEEWAY) < *at) {
            return Err(Verify::NotYet { now, at });
        }
        if !token.is_signed_by_any(keys.candidates(&token.key_id)) {
            return Err(Verify::Signature);
        }
        let audiences = token.audiences();
        if !audiences.iter().any(|audience| self.issuer.audiences.contains(audience)) {
            let mut expected = self.issuer.audiences.clone();
            expected.sort_unstable();
            return Err(Verify::Audience { expected, token: audiences });
        }
        Ok(())
    }

    fn check_claims(&self, claims: &Value) -> Result<(), Error> {
        for rule in &self.rules {
            match rule {
                ClaimRule::Required { claim, value } => check_required(claims, claim, value)?,
                ClaimRule::Expression(rule) => {
                    check_rule(
                        rule,
                        "claim validation expression",
                        ExpressionContext::AuthenticationClaims,
                        "claims",
                        claims,
                    )?;
                }
            }
        }
        Ok(())
    }

    fn check_user(&self, user: &User) -> Result<(), Error> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        // User validation rules see every attribute, also empty ones.
        let mut info = user.to_user_info();
        let fields = info.as_object_mut().expect("user info is a JSON object");
        fields.get_or_insert_with("username", || "".into());
        fields.get_or_insert_with("uid", || "".into());
        fields.get_or_insert_with("groups", || Value::Array(Vec::new()));
        fields.get_or_insert_with("extra", Value::object);
        for rule in &self.user_rules {
            check_rule(rule, "user info validation rule", ExpressionContext::AuthenticationUser, "user", &info)?;
        }
        Ok(())
    }
}

/// Returns the URL of the issuer's keys from its discovery document.
pub fn keys_url(authenticator: &Authenticator, discovery: &[u8]) -> Result<String, DiscoveryError> {
    let document = json::parse(discovery).ok().filter(|document| document.as_object().is_some());
    let document = document.ok_or(DiscoveryError::Malformed)?;
    let found = document.text_at(&["issuer"]);
    if found != authenticator.issuer.url {
        return Err(DiscoveryError::Issuer { expected: authenticator.issuer.url.clone(), found: found.into() });
    }
    let url = document.str_at(&["jwks_uri"]).filter(|url| !url.is_empty());
    url.map(str::to_owned).ok_or(DiscoveryError::NoKeys)
}

fn check_required(claims: &Value, claim: &Str, expected: &Str) -> Result<(), Error> {
    let found = claims.get(claim).ok_or_else(|| Error::RequiredMissing(claim.clone()))?;
    let found = mapping::text(found).map_err(|cause| Error::RequiredType(claim.clone(), cause))?;
    if found == expected.as_str() {
        return Ok(());
    }
    Err(Error::RequiredValue { claim: claim.clone(), found: found.into(), expected: expected.clone() })
}

fn check_rule(
    rule: &Rule,
    what: &'static str,
    host: ExpressionContext,
    variable: &str,
    value: &Value,
) -> Result<(), Error> {
    let source = &rule.expression.source;
    let cause = match rule.expression.holds(host, variable, value) {
        Ok(Some(true)) => return Ok(()),
        Ok(Some(false)) => format!("validation expression '{source}' failed: {}", rule.message),
        Ok(None) => "validation expression must return a boolean".to_owned(),
        Err(failure) => format!("expression '{source}' resulted in error: {failure}"),
    };
    Err(Error::Expression { what, cause })
}

/// Formats a list of strings as Go's `%q`.
fn quoted(list: &[Str]) -> String {
    let items: Vec<_> = list.iter().map(|item| go::quote(item)).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests;
