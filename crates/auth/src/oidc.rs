//! Users that other issuers vouch for by JSON Web Tokens: `AuthenticationConfiguration`, or the `--oidc-*` flags.
//!
//! The server fetches what [`Authenticator::discovery_url`] and [`keys_url`] name; everything else is decided here.
//! Tokens made so are for this server's own audiences alone.

mod config;
mod email;
mod flags;
mod mapping;
mod url;

use cel::Host;
use machinery::time::{Duration, Time};
use machinery::{Str, Value, go, json};

pub use config::{Config, Error as ConfigError};
pub use flags::{Error as FlagsError, Flags};

use crate::User;
use crate::expression::Expression;
use crate::jwt::{self, Token};
use crate::keys::KeySet;

/// How far ahead of ours an issuer's clock may be.
const NOT_BEFORE_LEEWAY: Duration = Duration::from_seconds(5 * 60);

/// One issuer, and how its tokens make users.
#[derive(Debug)]
pub struct Authenticator {
    /// The issuer.
    pub issuer: Issuer,
    rules: Vec<ClaimRule>,
    username: Mapping,
    groups: Option<Mapping>,
    uid: Option<Mapping>,
    extra: Vec<(Str, Expression)>,
    user_rules: Vec<Rule>,
}

/// Who issues tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issuer {
    /// What its tokens say in `iss`.
    pub url: Str,
    /// Where its discovery document is; empty for the usual place below its URL.
    pub discovery_url: Str,
    /// The CA of its servers in PEM; empty for the system's.
    pub certificate_authority: Str,
    /// The network that it is reached by: `controlplane`, `cluster`, or empty for directly.
    pub egress_selector_type: Str,
    /// A token must be for one of these.
    pub audiences: Vec<Str>,
}

/// Which requests may come from nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anonymous {
    /// Whether any may.
    pub enabled: bool,
    /// If there are any, only these paths.
    pub paths: Vec<Str>,
}

/// Where a part of a user comes from.
#[derive(Debug)]
enum Mapping {
    Claim { name: Str, prefix: Str },
    Expression(Expression),
}

/// What must hold of a token.
#[derive(Debug)]
enum ClaimRule {
    Required { claim: Str, value: Str },
    Expression(Rule),
}

/// An expression that must hold, and what is said if it does not.
#[derive(Debug)]
struct Rule {
    expression: Expression,
    message: Str,
}

/// Why a token of an issuer of ours makes no user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be believed.
    #[error("oidc: verify token: {0}")]
    Verify(Verify),
    /// A claim that a part of the user comes from is not there or not text.
    #[error("oidc: parse {part} {name:?}: {why}")]
    Claim {
        /// Which part.
        part: &'static str,
        /// Which claim.
        name: Str,
        /// What is wrong with it.
        why: String,
    },
    /// The claim that says whether an address is verified is not a boolean.
    #[error("oidc: parse 'email_verified' claim: {0}")]
    EmailVerified(String),
    /// The address is not verified.
    #[error("oidc: email not verified")]
    EmailNotVerified,
    /// A claim that must be there is not.
    #[error("oidc: required claim {0} not present in ID token")]
    RequiredMissing(Str),
    /// A claim that must be text is not.
    #[error("oidc: parse claim {0}: {1}")]
    RequiredType(Str, String),
    /// A claim has another value than it must.
    #[error("oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}")]
    RequiredValue {
        /// Which claim.
        claim: Str,
        /// What it is.
        found: Str,
        /// What it must be.
        wanted: Str,
    },
    /// An expression failed, or gave what nobody can use.
    #[error("oidc: error evaluating {what}: {why}")]
    Expression {
        /// What it is for.
        what: &'static str,
        /// What went wrong.
        why: String,
    },
}

/// Why a token cannot be believed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Verify {
    /// It is not a token, or signed in a way that nobody accepts.
    #[error("oidc: malformed jwt: {0}")]
    Malformed(jwt::Error),
    /// None of the issuer's keys signed it.
    #[error("failed to verify signature: failed to verify id token signature")]
    Signature,
    /// Its time is over.
    #[error("oidc: token is expired (Token Expiry: {0})")]
    Expired(Time),
    /// It was made for later.
    #[error("oidc: current time {now} before the nbf (not before) time: {at}")]
    NotYet {
        /// When it was used.
        now: Time,
        /// From when on it counts.
        at: Time,
    },
    /// It is for others.
    #[error("oidc: expected audience in {} got {}", quoted(.wanted), quoted(.token))]
    Audience {
        /// Whom it would have to be for.
        wanted: Vec<Str>,
        /// Whom it is for.
        token: Vec<Str>,
    },
}

/// Why an issuer's documents cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// The document is not a JSON object.
    #[error("oidc: failed to decode provider discovery object")]
    Malformed,
    /// The document is another issuer's.
    #[error("oidc: issuer did not match the issuer returned by provider, expected {expected:?} got {found:?}")]
    Issuer {
        /// Whose it should be.
        expected: Str,
        /// Whose it is.
        found: Str,
    },
    /// The document does not say where the keys are.
    #[error("oidc: the discovery document has no jwks_uri")]
    NoKeys,
}

impl Anonymous {
    /// Whether nobody may ask for `path`.
    pub fn may_ask(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|allowed| allowed == path))
    }
}

impl Authenticator {
    /// Where the issuer's discovery document is.
    pub fn discovery_url(&self) -> String {
        match self.issuer.discovery_url.as_str() {
            "" => format!("{}/.well-known/openid-configuration", self.issuer.url.trim_end_matches('/')),
            url => url.to_owned(),
        }
    }

    /// Whether a token claims to be of this issuer. Costs no cryptography.
    pub fn issued(&self, token: &str) -> bool {
        jwt::claimed_issuer(token).is_some_and(|issuer| issuer == self.issuer.url)
    }

    /// Whose token it is. `None` if it is of another issuer.
    // DEVIATION: claims that an issuer distributes over other servers (`_claim_sources`) are not fetched.
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
            let mut wanted = self.issuer.audiences.clone();
            wanted.sort_unstable();
            return Err(Verify::Audience { wanted, token: audiences });
        }
        Ok(())
    }

    fn check_claims(&self, claims: &Value) -> Result<(), Error> {
        for rule in &self.rules {
            match rule {
                ClaimRule::Required { claim, value } => check_required(claims, claim, value)?,
                ClaimRule::Expression(rule) => {
                    check_rule(rule, "claim validation expression", Host::AuthenticationClaims, "claims", claims)?;
                }
            }
        }
        Ok(())
    }

    fn check_user(&self, user: &User) -> Result<(), Error> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        // Rules see every part, empty or not.
        let mut info = user.to_user_info();
        let fields = info.as_object_mut().expect("a user is shown as an object");
        fields.get_or_insert_with("username", || "".into());
        fields.get_or_insert_with("uid", || "".into());
        fields.get_or_insert_with("groups", || Value::Array(Vec::new()));
        fields.get_or_insert_with("extra", Value::object);
        for rule in &self.user_rules {
            check_rule(rule, "user info validation rule", Host::AuthenticationUser, "user", &info)?;
        }
        Ok(())
    }
}

/// Where an issuer's keys are, by its discovery document.
pub fn keys_url(authenticator: &Authenticator, discovery: &[u8]) -> Result<String, DiscoveryError> {
    let document = json::parse(discovery).ok().filter(|document| document.as_object().is_some());
    let document = document.ok_or(DiscoveryError::Malformed)?;
    let found = document.str_at(&["issuer"]).unwrap_or_default();
    if found != authenticator.issuer.url {
        return Err(DiscoveryError::Issuer { expected: authenticator.issuer.url.clone(), found: found.into() });
    }
    let url = document.str_at(&["jwks_uri"]).filter(|url| !url.is_empty());
    url.map(str::to_owned).ok_or(DiscoveryError::NoKeys)
}

fn check_required(claims: &Value, claim: &Str, wanted: &Str) -> Result<(), Error> {
    let found = claims.get(claim).ok_or_else(|| Error::RequiredMissing(claim.clone()))?;
    let found = mapping::text(found).map_err(|why| Error::RequiredType(claim.clone(), why))?;
    if found == wanted.as_str() {
        return Ok(());
    }
    Err(Error::RequiredValue { claim: claim.clone(), found: found.into(), wanted: wanted.clone() })
}

fn check_rule(rule: &Rule, what: &'static str, host: Host, variable: &str, value: &Value) -> Result<(), Error> {
    let source = &rule.expression.source;
    let why = match rule.expression.holds(host, variable, value) {
        Ok(Some(true)) => return Ok(()),
        Ok(Some(false)) => format!("validation expression '{source}' failed: {}", rule.message),
        Ok(None) => "validation expression must return a boolean".to_owned(),
        Err(failure) => format!("expression '{source}' resulted in error: {failure}"),
    };
    Err(Error::Expression { what, why })
}

/// A list of strings as Go's `%q` shows it.
fn quoted(list: &[Str]) -> String {
    let items: Vec<_> = list.iter().map(|item| go::quote(item)).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests;
