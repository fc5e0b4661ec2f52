//! Service account tokens: claims, issuing and verification.

use apimachinery::time::{Duration, Time};
use apimachinery::{Object, Str, Value, go, value};

use super::bound::Bound;
use super::{legacy, user_name};
use crate::jwt::{self, Age, Token};
use crate::keys::{self, KeySet, PrivateKey};

/// An object in a token. The token is valid only while an object with this name and UID exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRef {
    pub name: Str,
    pub uid: Str,
}

/// The private claims of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The namespace of the service account and of the bound pod or Secret.
    pub namespace: Str,
    pub account: ObjectRef,
    /// The bound pod.
    pub pod: Option<ObjectRef>,
    /// The bound Secret.
    pub secret: Option<ObjectRef>,
    /// The node of the bound pod; without a pod, the bound node.
    pub node: Option<ObjectRef>,
    /// The `jti` claim; may be empty.
    pub id: Str,
    /// The time after which the use of the token is reported as stale, in Unix seconds.
    pub warn_after: Option<i64>,
}

/// The registered claims of a new token.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    pub issuer: &'a str,
    pub audiences: &'a [Str],
    pub issued_at: Time,
    pub expiration_seconds: i64,
}

/// A token that is verified as far as possible without objects of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The requested audiences that the token has.
    pub audiences: Vec<Str>,
    /// The objects that must exist.
    pub bound: Bound,
    /// Audit annotations.
    pub annotations: Vec<(&'static str, String)>,
}

/// Verifies tokens of this cluster's issuers.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    /// Accepted issuers. The first one issues new tokens.
    pub issuers: Vec<Str>,
    pub keys: KeySet,
    /// The API server's own audiences.
    pub audiences: Vec<Str>,
}

/// A token of this cluster's issuers is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No key has the token's key ID.
    #[error("invalid signature, no keys found")]
    NoKey,
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    /// The token has none of the requested audiences.
    #[error("token audiences {} is invalid for the target audiences {}", quoted(.token), quoted(.requested))]
    Audiences {
        /// The `aud` claim.
        token: Vec<Str>,
        /// The requested audiences.
        requested: Vec<Str>,
    },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYet,
    #[error("service account token is issued in the future")]
    Future,
    /// A claim of legacy tokens is missing.
    #[error("{0} claim is missing")]
    Missing(&'static str),
    /// The subject is not the service account in the claims.
    #[error("sub claim is invalid")]
    Subject,
}

impl Claims {
    /// Returns the claims as JSON, without those of [`Terms`].
    fn to_value(&self) -> Value {
        let mut out = Object::new();
        out.insert("namespace", self.namespace.clone());
        out.insert("serviceaccount", self.account.to_value());
        let objects = [("pod", &self.pod), ("secret", &self.secret), ("node", &self.node)];
        for (key, object) in objects.into_iter().filter_map(|(key, object)| Some((key, object.as_ref()?))) {
            out.insert(key, object.to_value());
        }
        if let Some(seconds) = self.warn_after {
            out.insert("warnafter", seconds);
        }
        Value::Object(out)
    }

    fn read(token: &Token<'_>) -> Self {
        let kubernetes = &token.claims["kubernetes.io"];
        let object = |key: &str| kubernetes.get(key).filter(|value| value.as_object().is_some()).map(ObjectRef::read);
        Self {
            namespace: kubernetes.text_at(&["namespace"]).into(),
            account: object("serviceaccount").unwrap_or_default(),
            pod: object("pod"),
            secret: object("secret"),
            node: object("node"),
            id: token.text("jti").into(),
            warn_after: kubernetes.get("warnafter").and_then(jwt::numeric_date).filter(|seconds| *seconds != 0),
        }
    }
}

impl ObjectRef {
    fn read(value: &Value) -> Self {
        let text = |key| value.text_at(&[key]).into();
        Self { name: text("name"), uid: text("uid") }
    }

    fn to_value(&self) -> Value {
        let set = [("name", &self.name), ("uid", &self.uid)].into_iter().filter(|(_, text)| !text.is_empty());
        Value::Object(set.map(|(key, text)| (key, text.clone())).collect())
    }
}

/// Issues a token.
pub fn issue(key: &PrivateKey, claims: &Claims, terms: &Terms<'_>) -> Result<String, keys::Error> {
    let issued = terms.issued_at.unix_seconds();
    let expires = terms.issued_at.plus(Duration::from_seconds(terms.expiration_seconds)).unix_seconds();
    let audiences = terms.audiences.iter().cloned().map(Value::String).collect();
    let mut token = value!({
        "iss": (terms.issuer),
        "sub": (user_name(&claims.namespace, &claims.account.name)),
        "aud": (Value::Array(audiences)),
        "iat": issued,
        "nbf": issued,
        "exp": expires,
        "kubernetes.io": (claims.to_value()),
    });
    if !claims.id.is_empty() {
        token.as_object_mut().expect("the value was created as an object").insert("jti", claims.id.clone());
    }
    jwt::sign(key, &token)
}

impl Checker {
    /// Verifies a token for the `requested` audiences, by default the server's own. Returns `None` if the token is of
    /// another issuer.
    pub fn check(&self, text: &str, requested: &[Str], now: Time) -> Result<Option<VerifiedToken>, Error> {
        let Some(issuer) = jwt::claimed_issuer(text) else { return Ok(None) };
        let is_legacy = issuer == legacy::ISSUER;
        if !is_legacy && !self.issuers.contains(&issuer) {
            return Ok(None);
        }
        let Ok(token) = Token::parse(text) else { return Ok(None) };
        if self.keys.candidates(&token.key_id).next().is_none() {
            return Err(Error::NoKey);
        }
        if !token.is_signed_by_any(self.keys.candidates(&token.key_id)) {
            return Err(Error::Signature);
        }
        let mut annotations = Vec::new();
        let mut of_token = token.audiences();
        if of_token.is_empty() {
            // A token without audiences is a legacy token, valid for this server only.
            annotations.push(("authentication.k8s.io/legacy-token", token.text("sub").to_owned()));
            of_token.clone_from(&self.audiences);
        }
        let audiences = self.audiences(of_token, requested)?;
        if is_legacy {
            return Ok(Some(VerifiedToken {
                audiences,
                annotations,
                bound: Bound::Legacy(legacy::read(&token, text)?),
            }));
        }
        match token.age(now) {
            Age::Expired => Err(Error::Expired),
            Age::NotYet => Err(Error::NotYet),
            Age::Future => Err(Error::Future),
            Age::Valid => {
                let bound = Bound::Claims { claims: Claims::read(&token), subject: token.text("sub").into() };
                Ok(Some(VerifiedToken { audiences, bound, annotations }))
            }
        }
    }

    /// Returns the requested audiences that the token has.
    fn audiences(&self, of_token: Vec<Str>, requested: &[Str]) -> Result<Vec<Str>, Error> {
        let requested = if requested.is_empty() { &self.audiences } else { requested };
        let both: Vec<Str> = of_token.iter().filter(|audience| requested.contains(audience)).cloned().collect();
        if both.is_empty() && !self.audiences.is_empty() {
            return Err(Error::Audiences { token: of_token, requested: requested.to_vec() });
        }
        Ok(both)
    }
}

/// Formats a list of strings as Go's `%q`.
fn quoted(list: &[Str]) -> String {
    let items: Vec<_> = list.iter().map(|item| go::quote(item)).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::tests::{p256_pem, rsa_pem};

    const NOW: Time = Time::from_unix(1_000_000, 0);

    fn claims() -> Claims {
        let object = |name: &str, uid: &str| ObjectRef { name: name.into(), uid: uid.into() };
        Claims {
            namespace: "ns".into(),
            account: object("robot", "u1"),
            pod: Some(object("p", "u2")),
            secret: None,
            node: Some(object("n", "")),
            id: "j".into(),
            warn_after: Some(1_003_607),
        }
    }

    fn key() -> PrivateKey {
        PrivateKey::from_pem(rsa_pem()).unwrap()
    }

    fn issued(issuer: &str, audience: &str) -> String {
        let audiences = [Str::from(audience)];
        let terms = Terms { issuer, audiences: &audiences, issued_at: NOW, expiration_seconds: 600 };
        issue(&key(), &claims(), &terms).unwrap()
    }

    fn checker() -> Checker {
        let keys = KeySet::of([key().public().clone()]);
        Checker { issuers: vec!["https://me".into()], keys, audiences: vec!["https://me".into()] }
    }

    #[test]
    fn token_claims_equal_upstreams() {
        let text = issued("https://me", "a");
        let expect = value!({
            "iss": "https://me", "sub": "system:serviceaccount:ns:robot", "aud": ["a"],
            "iat": 1_000_000, "nbf": 1_000_000, "exp": 1_000_600, "jti": "j",
            "kubernetes.io": {
                "namespace": "ns", "serviceaccount": {"name": "robot", "uid": "u1"}, "pod": {"name": "p", "uid": "u2"},
                "node": {"name": "n"}, "warnafter": 1_003_607,
            },
        });
        assert_eq!(Token::parse(&text).unwrap().claims, expect);
    }

    #[test]
    fn issued_token_is_verified() {
        let checked = checker().check(&issued("https://me", "https://me"), &[], NOW).unwrap().unwrap();
        assert_eq!(checked.audiences, ["https://me"]);
        let bound = Bound::Claims { claims: claims(), subject: "system:serviceaccount:ns:robot".into() };
        assert_eq!(checked.bound, bound);
    }

    #[test]
    fn tokens_of_other_issuers_are_ignored() {
        let other = issued("https://other", "a");
        for text in ["", "a.b.c", "opaque-token", other.as_str()] {
            assert_eq!(checker().check(text, &[], NOW), Ok(None), "{text}");
        }
    }

    #[test]
    fn invalid_tokens_are_rejected_with_upstreams_messages() {
        let own_token = issued("https://me", "https://me");
        let error_message = |checker: &Checker, text: &str, requested: &[Str], now| {
            checker.check(text, requested, now).unwrap_err().to_string()
        };
        let later = Time::from_unix(1_000_661, 0);
        assert_eq!(error_message(&checker(), &own_token, &[], later), "service account token has expired");
        assert_eq!(
            error_message(&checker(), &own_token, &[], Time::from_unix(999_939, 0)),
            "service account token is not valid yet"
        );
        assert_eq!(
            error_message(&checker(), &issued("https://me", "vault"), &["a".into(), "b".into()], NOW),
            r#"token audiences ["vault"] is invalid for the target audiences ["a" "b"]"#
        );
        let stranger = PrivateKey::from_pem(&p256_pem()).unwrap().public().clone();
        let other_key = Checker { keys: KeySet::of([stranger.clone()]), ..checker() };
        assert_eq!(error_message(&other_key, &own_token, &[], NOW), "invalid signature, no keys found");
        let mislabelled = Checker { keys: KeySet(vec![(key().public().id(), stranger)]), ..checker() };
        assert_eq!(
            error_message(&mislabelled, &own_token, &[], NOW),
            "go-jose/go-jose: error in cryptographic primitive"
        );
    }

    #[test]
    fn matching_requested_audience_is_returned() {
        let checked =
            checker().check(&issued("https://me", "vault"), &["x".into(), "vault".into()], NOW).unwrap().unwrap();
        assert_eq!(checked.audiences, ["vault"]);
    }
}
