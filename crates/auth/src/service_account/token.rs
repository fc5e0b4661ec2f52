//! Service account tokens: what they say, how they are made, and whether one may be believed.

use machinery::time::{Duration, Time};
use machinery::{Object, Str, Value, go, value};

use super::bound::Bound;
use super::{legacy, user_name};
use crate::jwt::{self, Age, Token};
use crate::keys::{self, KeySet, PrivateKey};

/// An object that a token names: it counts only while one of this name has this uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRef {
    /// Its name.
    pub name: Str,
    /// Its uid.
    pub uid: Str,
}

/// What a token says of its bearer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The namespace of the service account, and of the pod or secret it is bound to.
    pub namespace: Str,
    /// The service account.
    pub account: ObjectRef,
    /// The pod whose end is the token's end.
    pub pod: Option<ObjectRef>,
    /// The secret whose end is the token's end.
    pub secret: Option<ObjectRef>,
    /// The node of the pod; without a pod, the node whose end is the token's end.
    pub node: Option<ObjectRef>,
    /// A name for this one token; may be empty.
    pub id: Str,
    /// From when on its use is to be complained about, in seconds since 1970.
    pub warn_after: Option<i64>,
}

/// Whom a token is for and how long it lasts.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Who issues it.
    pub issuer: &'a str,
    /// Whom it is for.
    pub audiences: &'a [Str],
    /// When it is issued.
    pub issued_at: Time,
    /// How long it lasts.
    pub expiration_seconds: i64,
}

/// A token that may be believed, as far as can be told without looking at the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Which of the wanted audiences it is for.
    pub audiences: Vec<Str>,
    /// What must still exist.
    pub bound: Bound,
    /// What the audit log should say of it.
    pub annotations: Vec<(&'static str, String)>,
}

/// Checks tokens of this cluster's issuers.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    /// Who may have issued a token; the first one issues new tokens.
    pub issuers: Vec<Str>,
    /// The keys that tokens may be signed with.
    pub keys: KeySet,
    /// The server's own audiences.
    pub audiences: Vec<Str>,
}

/// Why a token that claims to be ours is not believed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its key is not among ours.
    #[error("invalid signature, no keys found")]
    NoKey,
    /// It is not signed with the key it names.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    /// It is for others.
    #[error("token audiences {} is invalid for the target audiences {}", quoted(.token), quoted(.wanted))]
    Audiences {
        /// Whom it is for.
        token: Vec<Str>,
        /// Whom it would have to be for.
        wanted: Vec<Str>,
    },
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// It was made for later.
    #[error("service account token is not valid yet")]
    NotYet,
    /// It says that it was issued later than now.
    #[error("service account token is issued in the future")]
    Future,
    /// It lacks something that every token of its kind has.
    #[error("{0} claim is missing")]
    Missing(&'static str),
    /// Its subject is not the service account it names.
    #[error("sub claim is invalid")]
    Subject,
}

impl Claims {
    /// The claims as a token carries them, besides those of [`Terms`].
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
            namespace: kubernetes.str_at(&["namespace"]).unwrap_or_default().into(),
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
        let text = |key| value.str_at(&[key]).unwrap_or_default().into();
        Self { name: text("name"), uid: text("uid") }
    }

    fn to_value(&self) -> Value {
        let set = [("name", &self.name), ("uid", &self.uid)].into_iter().filter(|(_, text)| !text.is_empty());
        Value::Object(set.map(|(key, text)| (key, text.clone())).collect())
    }
}

/// Makes a token.
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
        token.as_object_mut().expect("made as an object above").insert("jti", claims.id.clone());
    }
    jwt::sign(key, &token)
}

impl Checker {
    /// Checks a token for `wanted` audiences; none are the server's own. `None` if it is nothing that we issue.
    pub fn check(&self, text: &str, wanted: &[Str], now: Time) -> Result<Option<Checked>, Error> {
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
            // From before there were audiences: such a token is for this server alone.
            annotations.push(("authentication.k8s.io/legacy-token", token.text("sub").to_owned()));
            of_token.clone_from(&self.audiences);
        }
        let audiences = self.audiences(of_token, wanted)?;
        if is_legacy {
            return Ok(Some(Checked { audiences, annotations, bound: Bound::Legacy(legacy::read(&token, text)?) }));
        }
        match token.age(now) {
            Age::Expired => Err(Error::Expired),
            Age::NotYet => Err(Error::NotYet),
            Age::Future => Err(Error::Future),
            Age::Valid => {
                let bound = Bound::Claims { claims: Claims::read(&token), subject: token.text("sub").into() };
                Ok(Some(Checked { audiences, bound, annotations }))
            }
        }
    }

    /// Which of the wanted audiences a token for `of_token` is for.
    fn audiences(&self, of_token: Vec<Str>, wanted: &[Str]) -> Result<Vec<Str>, Error> {
        let wanted = if wanted.is_empty() { &self.audiences } else { wanted };
        let both: Vec<Str> = of_token.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
        if both.is_empty() && !self.audiences.is_empty() {
            return Err(Error::Audiences { token: of_token, wanted: wanted.to_vec() });
        }
        Ok(both)
    }
}

/// A list of strings as Go's `%q` shows it.
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
    fn a_token_says_what_upstream_would_say() {
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
    fn a_token_is_read_back_as_it_was_issued() {
        let checked = checker().check(&issued("https://me", "https://me"), &[], NOW).unwrap().unwrap();
        assert_eq!(checked.audiences, ["https://me"]);
        let bound = Bound::Claims { claims: claims(), subject: "system:serviceaccount:ns:robot".into() };
        assert_eq!(checked.bound, bound);
    }

    #[test]
    fn what_is_not_ours_is_left_to_others() {
        let other = issued("https://other", "a");
        for text in ["", "a.b.c", "opaque-token", other.as_str()] {
            assert_eq!(checker().check(text, &[], NOW), Ok(None), "{text}");
        }
    }

    #[test]
    fn what_is_ours_and_wrong_is_refused_in_upstreams_words() {
        let ours = issued("https://me", "https://me");
        let refusal = |checker: &Checker, text: &str, wanted: &[Str], now| {
            checker.check(text, wanted, now).unwrap_err().to_string()
        };
        let later = Time::from_unix(1_000_661, 0);
        assert_eq!(refusal(&checker(), &ours, &[], later), "service account token has expired");
        assert_eq!(
            refusal(&checker(), &ours, &[], Time::from_unix(999_939, 0)),
            "service account token is not valid yet"
        );
        assert_eq!(
            refusal(&checker(), &issued("https://me", "vault"), &["a".into(), "b".into()], NOW),
            r#"token audiences ["vault"] is invalid for the target audiences ["a" "b"]"#
        );
        let stranger = PrivateKey::from_pem(&p256_pem()).unwrap().public().clone();
        let other_key = Checker { keys: KeySet::of([stranger.clone()]), ..checker() };
        assert_eq!(refusal(&other_key, &ours, &[], NOW), "invalid signature, no keys found");
        let mislabelled = Checker { keys: KeySet(vec![(key().public().id(), stranger)]), ..checker() };
        assert_eq!(refusal(&mislabelled, &ours, &[], NOW), "go-jose/go-jose: error in cryptographic primitive");
    }

    #[test]
    fn an_audience_that_is_asked_for_is_told_back() {
        let checked =
            checker().check(&issued("https://me", "vault"), &["x".into(), "vault".into()], NOW).unwrap().unwrap();
        assert_eq!(checked.audiences, ["vault"]);
    }
}
