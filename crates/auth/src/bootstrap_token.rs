//! Bootstrap tokens: Secrets that authenticate a joining node until it has a certificate.

use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Str, Value, json};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::User;

/// The namespace of the Secrets.
pub const NAMESPACE: &str = "kube-system";
/// The type of the Secrets.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of all bootstrap token users.
pub const GROUP: &str = "system:bootstrappers";

const SECRET_PREFIX: &str = "bootstrap-token-";
const USER_PREFIX: &str = "system:bootstrap:";

/// A parsed token. Its Debug output omits the secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// The public token ID, which is part of the Secret's name.
    pub id: &'a str,
    secret: &'a str,
}

/// The reason why a Secret does not confirm a token. Only for logs: the client learns only that the token is unknown.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The Secret is being deleted.
    #[error("is deleted and awaiting removal")]
    Deleted,
    #[error("has invalid type, expected {SECRET_TYPE}")]
    Type,
    /// The Secret has another value for this key.
    #[error("has invalid value for key {0}")]
    Mismatch(&'static str),
    /// The token has expired, or its expiration cannot be parsed.
    #[error("has expired")]
    Expired,
    #[error("not marked usage-bootstrap-authentication=true")]
    Usage,
    /// The Secret names a group without the required prefix.
    #[error("has invalid value for key auth-extra-groups: invalid group {0:?}")]
    Group(String),
}

impl<'a> Token<'a> {
    /// Parses a token such as `abcdef.0123456789abcdef`; `None` if the format is invalid.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (id, secret) = text.split_once('.')?;
        let is =
            |part: &str, len| part.len() == len && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        (is(id, 6) && is(secret, 16)).then_some(Self { id, secret })
    }

    /// Returns the name of the token's Secret.
    pub fn secret_name(&self) -> String {
        format!("{SECRET_PREFIX}{}", self.id)
    }

    /// Verifies a detached JWS as returned by [`signature`].
    pub fn verifies(&self, content: &str, jws: &str) -> bool {
        let Some((header, signature)) = jws.split_once("..") else { return false };
        let decoded = URL_SAFE_NO_PAD.decode(header).ok().and_then(|header| json::parse(&header).ok());
        let header_matches = decoded
            .is_some_and(|header| header.str_at(&["alg"]) == Some("HS256") && header.str_at(&["kid"]) == Some(self.id));
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        let verified = |signature: Vec<u8>| hmac::verify(&key, signed.as_bytes(), &signature).is_ok();
        header_matches && URL_SAFE_NO_PAD.decode(signature).is_ok_and(verified)
    }

    /// Returns the token's user if the Secret confirms the token.
    pub fn user(&self, secret: &Value, now: Time) -> Result<User, Rejection> {
        let data = |key: &str| {
            let text = secret.text_at(&["data", key]);
            STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
        };
        if Meta::of(secret).is_deleting() {
            return Err(Rejection::Deleted);
        }
        if secret.str_at(&["type"]) != Some(SECRET_TYPE) || secret.get("data").and_then(Value::as_object).is_none() {
            return Err(Rejection::Type);
        }
        verify_slices_are_equal(data("token-secret").as_bytes(), self.secret.as_bytes())
            .map_err(|_| Rejection::Mismatch("token-secret"))?;
        if data("token-id") != self.id {
            return Err(Rejection::Mismatch("token-id"));
        }
        let expiration = data("expiration");
        if !expiration.is_empty() && Time::parse(&expiration).ok().is_none_or(|at| at <= now) {
            return Err(Rejection::Expired);
        }
        if data("usage-bootstrap-authentication") != "true" {
            return Err(Rejection::Usage);
        }
        Ok(User::authenticated(format!("{USER_PREFIX}{}", self.id), groups(&data("auth-extra-groups"))?))
    }
}

/// Signs a content with a token. Returns a detached JWS, without the content.
pub fn signature(content: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

/// Returns the default group and the Secret's extra groups, sorted.
fn groups(extra: &str) -> Result<Vec<Str>, Rejection> {
    let mut groups = vec![Str::from(GROUP)];
    if !extra.is_empty() {
        for group in extra.split(',') {
            if !is_extra_group(group) {
                return Err(Rejection::Group(group.to_owned()));
            }
            groups.push(group.into());
        }
    }
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

/// Whether the group is `system:bootstrappers:` and up to 256 letters, digits, colons and dashes, ending with a letter
/// or digit.
fn is_extra_group(group: &str) -> bool {
    let is_end = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let rest = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')).map(str::as_bytes);
    rest.and_then(<[u8]>::split_last).is_some_and(|(last, before)| {
        before.len() <= 255 && is_end(*last) && before.iter().all(|c| is_end(*c) || matches!(*c, b':' | b'-'))
    })
}

impl std::fmt::Debug for Token<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Token({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::{Object, value};

    use super::*;

    const NOW: Time = Time::from_unix(0, 0);
    const TOKEN: &str = "abcdef.0123456789abcdef";

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = vec![
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("expiration", "1970-01-01T00:00:01Z"),
        ];
        data.extend(changes);
        let data: Object = data.into_iter().map(|(key, text)| (key, STANDARD.encode(text))).collect();
        value!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": SECRET_TYPE, "data": data})
    }

    #[test]
    fn signature_verifies_only_with_its_token_and_content() {
        let token = Token::parse(TOKEN).unwrap();
        let jws = signature("content", "abcdef", "0123456789abcdef");
        assert!(token.verifies("content", &jws));
        assert!(!token.verifies("other", &jws));
        assert!(!token.verifies("content", &signature("content", "abcdef", "fedcba9876543210")));
        assert!(!token.verifies("content", &signature("content", "ghijkl", "0123456789abcdef")));
        let unsigned = format!("{}..", URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"abcdef"}"#));
        assert!(["", "..", "a.b.c", unsigned.as_str()].iter().all(|jws| !token.verifies("content", jws)));
    }

    #[test]
    fn token_has_an_id_and_a_secret() {
        assert_eq!(Token::parse(TOKEN).unwrap().secret_name(), "bootstrap-token-abcdef");
        for other in
            ["", "abcdef", "abcdef.", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde", "abcdef.0123456789abcdef0"]
        {
            assert_eq!(Token::parse(other), None, "{other}");
        }
        assert_eq!(format!("{:?}", Token::parse(TOKEN)), "Some(Token(abcdef))");
    }

    #[test]
    fn secret_confirms_the_token_it_holds() {
        let user = |changes: &[(&str, &str)]| Token::parse(TOKEN).unwrap().user(&secret(changes), NOW);
        let plain = user(&[]).unwrap();
        assert_eq!(plain, User::authenticated("system:bootstrap:abcdef", ["system:bootstrappers".into()]));
        let extra = user(&[("auth-extra-groups", "system:bootstrappers:z,system:bootstrappers:a-b:c")]).unwrap();
        let expect =
            ["system:bootstrappers", "system:bootstrappers:a-b:c", "system:bootstrappers:z", "system:authenticated"];
        assert_eq!(extra.groups, expect);
        assert!(user(&[("expiration", "")]).is_ok());
    }

    #[test]
    fn invalid_secret_does_not_confirm_a_token() {
        let check = |changes: &[(&str, &str)], expect: Rejection| {
            assert_eq!(Token::parse(TOKEN).unwrap().user(&secret(changes), NOW), Err(expect));
        };
        check(&[("token-secret", "0123456789abcdee")], Rejection::Mismatch("token-secret"));
        check(&[("token-secret", "")], Rejection::Mismatch("token-secret"));
        check(&[("token-id", "abcdee")], Rejection::Mismatch("token-id"));
        check(&[("expiration", "1970-01-01T00:00:00Z")], Rejection::Expired);
        check(&[("expiration", "soon")], Rejection::Expired);
        check(&[("usage-bootstrap-authentication", "yes")], Rejection::Usage);
        for group in ["system:masters", "system:bootstrappers", "system:bootstrappers:", "system:bootstrappers:a-", ""]
        {
            let list = format!("system:bootstrappers:a,{group}");
            check(&[("auth-extra-groups", &list)], Rejection::Group(group.to_owned()));
        }
        let token = Token::parse(TOKEN).unwrap();
        let other = value!({"type": "Opaque", "data": {}});
        assert_eq!(token.user(&other, NOW), Err(Rejection::Type));
        let going = value!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
        assert_eq!(token.user(&going, NOW), Err(Rejection::Deleted));
    }

    #[test]
    fn signatures_equal_upstreams() {
        // From the tests of upstream's library.
        let expect = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8";
        let content = "Hello from the other side. I must have called a thousand times.";
        assert_eq!(signature(content, "joshua", "my voice is my passcode"), expect);
    }
}
