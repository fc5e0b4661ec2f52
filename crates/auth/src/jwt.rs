//! JSON Web Tokens in compact form: signing, parsing and verification.

use apimachinery::time::Time;
use apimachinery::{Str, Value, json, value};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::keys::{self, Algorithm, PrivateKey, PublicKey};

/// Tolerated clock difference between issuer and server, in seconds.
pub const LEEWAY_SECONDS: i64 = 60;

/// A text is not a token. The text itself is never part of a message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not three parts of base64url.
    #[error("the token is not in compact form")]
    Form,
    #[error("the token's {0} is not a JSON object")]
    Part(&'static str),
    /// The algorithm is not accepted.
    #[error("unexpected signature algorithm {0:?}")]
    Algorithm(String),
}

/// A token whose signature is not verified yet.
#[derive(Clone, Debug)]
pub struct Token<'a> {
    /// The algorithm in the header.
    pub algorithm: Algorithm,
    /// The key ID in the header; may be empty.
    pub key_id: Str,
    /// The claims, which are untrusted before [`Token::verify`].
    pub claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    pub fn parse(text: &'a str) -> Result<Self, Error> {
        let (signed, signature) = text.rsplit_once('.').ok_or(Error::Form)?;
        let (header, payload) = signed.split_once('.').ok_or(Error::Form)?;
        let header = object(header, "header")?;
        let name = header.text_at(&["alg"]);
        let algorithm = Algorithm::named(name).ok_or_else(|| Error::Algorithm(name.to_owned()))?;
        // A critical header must be understood, and none is supported.
        if header.get("crit").is_some() {
            return Err(Error::Part("header"));
        }
        Ok(Self {
            algorithm,
            key_id: header.text_at(&["kid"]).into(),
            claims: object(payload, "payload")?,
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).map_err(|_| Error::Form)?,
        })
    }

    /// Verifies the signature with `key`.
    pub fn verify(&self, key: &PublicKey) -> Result<(), keys::Error> {
        key.verify(self.algorithm, self.signed.as_bytes(), &self.signature)
    }

    /// Whether one of the keys verifies the signature.
    pub fn is_signed_by_any<'k>(&self, keys: impl IntoIterator<Item = &'k PublicKey>) -> bool {
        keys.into_iter().any(|key| self.verify(key).is_ok())
    }

    /// Returns a string claim; empty if it is absent or of another type.
    pub fn text(&self, claim: &str) -> &str {
        self.claims.text_at(&[claim])
    }

    /// Returns the audiences: a string or a list.
    pub fn audiences(&self) -> Vec<Str> {
        match self.claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(Str::from).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns a NumericDate claim in Unix seconds.
    pub fn seconds(&self, claim: &str) -> Option<i64> {
        numeric_date(self.claims.get(claim)?)
    }
}

/// Returns a NumericDate in Unix seconds, truncated.
pub fn numeric_date(value: &Value) -> Option<i64> {
    match value {
        Value::Int(seconds) => Some(*seconds),
        Value::Float(seconds) => Some(*seconds as i64),
        _ => None,
    }
}

/// Returns the unverified `iss` claim if `text` looks like a token. The claim selects the authenticator, which then
/// verifies the signature.
pub fn claimed_issuer(text: &str) -> Option<Str> {
    let mut parts = text.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    Some(object(payload, "payload").ok()?.text_at(&["iss"]).into())
}

/// Signs claims.
pub fn sign(key: &PrivateKey, claims: &Value) -> Result<String, keys::Error> {
    let public = key.public();
    let header = value!({"alg": (public.algorithm().name()), "kid": (public.id())});
    let encode_segment = |value: &Value| URL_SAFE_NO_PAD.encode(json::to_vec(value));
    let signed = format!("{}.{}", encode_segment(&header), encode_segment(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

/// The validity of a token at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    Valid,
    /// `nbf` is in the future.
    NotYet,
    /// `exp` is in the past.
    Expired,
    /// `iat` is in the future.
    Future,
}

impl Token<'_> {
    /// Compares `now` with `nbf`, `iat` and `exp`, with the leeway.
    pub fn age(&self, now: Time) -> Age {
        let now = now.unix_seconds();
        let after = |claim| self.seconds(claim).is_some_and(|at: i64| now.saturating_add(LEEWAY_SECONDS) < at);
        match self.seconds("exp") {
            _ if after("nbf") => Age::NotYet,
            Some(at) if now.saturating_sub(LEEWAY_SECONDS) > at => Age::Expired,
            _ if after("iat") => Age::Future,
            _ => Age::Valid,
        }
    }
}

fn object(segment: &str, name: &'static str) -> Result<Value, Error> {
    let bytes = URL_SAFE_NO_PAD.decode(segment).map_err(|_| Error::Form)?;
    json::parse(&bytes).ok().filter(|value| value.as_object().is_some()).ok_or(Error::Part(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::tests::{p256_pem, rsa_pem};

    #[test]
    fn signed_token_is_parsed_and_verified_only_by_its_key() {
        let key = PrivateKey::from_pem(rsa_pem()).unwrap();
        let other = PrivateKey::from_pem(&p256_pem()).unwrap();
        let claims = value!({"iss": "me", "aud": ["a", "b"], "exp": 10, "nbf": 5.9});
        let text = sign(&key, &claims).unwrap();
        let token = Token::parse(&text).unwrap();
        assert_eq!((token.algorithm, token.key_id.clone()), (Algorithm::Rs256, key.public().id()));
        assert_eq!(token.claims, claims);
        assert_eq!(token.audiences(), ["a", "b"]);
        assert_eq!((token.seconds("exp"), token.seconds("nbf"), token.seconds("iat")), (Some(10), Some(5), None));
        assert!(token.is_signed_by_any([other.public(), key.public()]));
        assert!(!token.is_signed_by_any([other.public()]));
        assert_eq!(claimed_issuer(&text).as_deref(), Some("me"));
    }

    #[test]
    fn modified_token_is_not_verified() {
        let key = PrivateKey::from_pem(&p256_pem()).unwrap();
        let text = sign(&key, &value!({"sub": "a"})).unwrap();
        let changed = URL_SAFE_NO_PAD.encode(br#"{"sub":"b"}"#);
        let (header, signature) = (text.split('.').next().unwrap(), text.rsplit('.').next().unwrap());
        let forged = format!("{header}.{changed}.{signature}");
        assert!(!Token::parse(&forged).unwrap().is_signed_by_any([key.public()]));
    }

    #[test]
    fn invalid_tokens_are_rejected() {
        let encode_segment = |json: &str| URL_SAFE_NO_PAD.encode(json);
        let check = |text: &str, expect: Error| assert_eq!(Token::parse(text).unwrap_err(), expect, "{text}");
        check("", Error::Form);
        check("a.b", Error::Form);
        check("a.b.c.d", Error::Form);
        check(&format!("{}.{}.AA", encode_segment("1"), encode_segment("{}")), Error::Part("header"));
        check(&format!("{}.{}.AA", encode_segment(r#"{"alg":"RS256"}"#), encode_segment("[]")), Error::Part("payload"));
        check(
            &format!("{}.{}.AA", encode_segment(r#"{"alg":"RS256","crit":["x"]}"#), encode_segment("{}")),
            Error::Part("header"),
        );
        for algorithm in ["none", "HS256", "EdDSA", ""] {
            let header = encode_segment(&format!(r#"{{"alg":"{algorithm}"}}"#));
            check(&format!("{header}.{}.", encode_segment("{}")), Error::Algorithm(algorithm.to_owned()));
        }
    }

    #[test]
    fn clock_skew_of_a_minute_is_tolerated() {
        let key = PrivateKey::from_pem(&p256_pem()).unwrap();
        let text = sign(&key, &value!({"nbf": 1000, "iat": 1000, "exp": 2000})).unwrap();
        let token = Token::parse(&text).unwrap();
        let check = |now, expect| assert_eq!(token.age(Time::from_unix(now, 0)), expect, "{now}");
        check(939, Age::NotYet);
        check(940, Age::Valid);
        check(2060, Age::Valid);
        check(2061, Age::Expired);
        let early = sign(&key, &value!({"iat": 1000})).unwrap();
        assert_eq!(Token::parse(&early).unwrap().age(Time::from_unix(939, 0)), Age::Future);
    }
}
