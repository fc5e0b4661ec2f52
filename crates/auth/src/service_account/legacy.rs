//! Legacy service account tokens: unbound, without expiration, valid while their Secret holds them.

use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::time::{Duration, Time};
use apimachinery::{Str, Value, value};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::bound::{BoundObjects, ValidationResult};
use super::token::{Error, ObjectRef};
use super::{parse, user_name};
use crate::jwt::{self, Token};
use crate::keys::{self, PrivateKey};
use crate::service_account;

/// The `iss` claim of legacy tokens.
pub const ISSUER: &str = "kubernetes/serviceaccount";
/// The label with the day of the last use.
pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The label of a Secret whose token is invalidated.
pub const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

const NAME: &str = "kubernetes.io/serviceaccount/service-account.name";
const UID: &str = "kubernetes.io/serviceaccount/service-account.uid";
const SECRET: &str = "kubernetes.io/serviceaccount/secret.name";
const NAMESPACE: &str = "kubernetes.io/serviceaccount/namespace";

/// A legacy token with a verified signature.
#[derive(Clone, PartialEq, Eq)]
pub struct Legacy {
    /// The namespace of the service account and the Secret.
    pub namespace: Str,
    pub account: ObjectRef,
    pub secret: Str,
    text: String,
}

/// A legacy token is no longer valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The Secret was deleted.
    #[error("Token has been invalidated")]
    Invalidated,
    /// The Secret holds another token.
    #[error("Token does not match server's copy")]
    Replaced,
    #[error("{}", Status::not_found(GroupName::new("", "serviceaccounts"), .0).message)]
    NoAccount(Str),
    /// The service account is being deleted.
    #[error("ServiceAccount {0}/{1} has been deleted")]
    AccountDeleted(Str, Str),
    /// The service account has the same name and another UID.
    #[error("ServiceAccount UID ({0}) does not match claim ({1})")]
    Uid(Str, Str),
    /// The token was invalidated because it was unused.
    #[error(
        "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. Use tokens \
         from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the \
         secret to temporarily allow use of this token"
    )]
    MarkedInvalid {
        namespace: Str,
        secret: Str,
        account: Str,
        /// The new value of the Secret's last-used label, if it changes: the attempt is recorded.
        mark_used: Option<String>,
    },
}

const AUTO_GENERATED: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.";

/// Issues a legacy token for a Secret of type `kubernetes.io/service-account-token`.
pub fn issue(key: &PrivateKey, namespace: &str, account: &ObjectRef, secret: &str) -> Result<String, keys::Error> {
    let claims = value!({
        "iss": ISSUER,
        "sub": (user_name(namespace, &account.name)),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": (account.name.clone()),
        "kubernetes.io/serviceaccount/service-account.uid": (account.uid.clone()),
    });
    jwt::sign(key, &claims)
}

/// Parses the claims of a token with a verified signature.
pub(super) fn read(token: &Token<'_>, text: &str) -> Result<Legacy, Error> {
    let claim = |name: &str, called: &'static str| match token.text(name) {
        "" => Err(Error::Missing(called)),
        value => Ok(Str::from(value)),
    };
    let subject = claim("sub", "sub")?;
    let namespace = claim(NAMESPACE, "namespace")?;
    let secret = claim(SECRET, "secretName")?;
    let name = claim(NAME, "serviceAccountName")?;
    let uid = claim(UID, "serviceAccountUID")?;
    if parse(&subject) != Some((namespace.as_str(), name.as_str())) {
        return Err(Error::Subject);
    }
    Ok(Legacy { namespace, account: ObjectRef { name, uid }, secret, text: text.to_owned() })
}

/// Decides whether the token is valid, given its Secret and service account.
pub(super) fn validate(token: &Legacy, found: &BoundObjects<'_>, now: Time) -> Result<ValidationResult, Rejection> {
    let Legacy { namespace, account, .. } = token;
    let secret = found.secret.filter(|secret| !Meta::of(secret).is_deleting()).ok_or(Rejection::Invalidated)?;
    let stored = secret.str_at(&["data", "token"]).and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    verify_slices_are_equal(&stored, token.text.as_bytes()).map_err(|_| Rejection::Replaced)?;
    let object = found.account.ok_or_else(|| Rejection::NoAccount(account.name.clone()))?;
    let meta = Meta::of(object);
    if meta.is_deleting() {
        return Err(Rejection::AccountDeleted(namespace.clone(), account.name.clone()));
    }
    if meta.uid() != account.uid {
        return Err(Rejection::Uid(meta.uid().into(), account.uid.clone()));
    }
    let mark_used = mark_used(secret, now);
    if Meta::of(secret).label(INVALID_SINCE).is_some_and(|since| !since.is_empty()) {
        let (namespace, secret, account) = (namespace.clone(), token.secret.clone(), account.name.clone());
        return Err(Rejection::MarkedInvalid { namespace, secret, account, mark_used });
    }
    let user = service_account::user(namespace, &account.name, &account.uid);
    let listed = object.list_at(&["secrets"]);
    let is_listed = listed.iter().any(|listed| listed.str_at(&["name"]) == Some(&token.secret));
    let (annotation, warnings) = if is_listed {
        ("authentication.k8s.io/legacy-token-autogenerated-secret", vec![AUTO_GENERATED.to_owned()])
    } else {
        ("authentication.k8s.io/legacy-token-manual-secret", Vec::new())
    };
    Ok(ValidationResult { user, annotations: vec![(annotation, token.secret.to_string())], warnings, mark_used })
}

/// Returns the new last-used label, unless the label is today or, because of clock skew, tomorrow.
fn mark_used(secret: &Value, now: Time) -> Option<String> {
    let day = |time: Time| time.to_string()[..10].to_owned();
    let (today, tomorrow) = (day(now), day(now.plus(Duration::from_seconds(24 * 60 * 60))));
    let last_used = Meta::of(secret).label(LAST_USED);
    (last_used != Some(&today) && last_used != Some(&tomorrow)).then_some(today)
}

/// Prints the owner of the token and never the token.
impl std::fmt::Debug for Legacy {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Legacy({}/{} in {})", self.namespace, self.account.name, self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeySet;
    use crate::keys::tests::rsa_pem;
    use crate::service_account::bound::{self, Bound};
    use crate::service_account::token::Checker;

    const NOW: Time = Time::from_unix(86_400, 0);

    fn made() -> (String, Bound) {
        let key = PrivateKey::from_pem(rsa_pem()).unwrap();
        let account = ObjectRef { name: "robot".into(), uid: "u1".into() };
        let text = issue(&key, "ns", &account, "robot-token").unwrap();
        let checker = Checker {
            issuers: vec!["https://me".into()],
            keys: KeySet::of([key.public().clone()]),
            audiences: vec!["a".into()],
        };
        let checked = checker.check(&text, &[], NOW).unwrap().unwrap();
        assert_eq!(checked.audiences, ["a"], "legacy tokens are valid for the server's own audience only");
        let subject = "system:serviceaccount:ns:robot".to_owned();
        assert_eq!(checked.annotations, [("authentication.k8s.io/legacy-token", subject)]);
        assert!(checker.check(&text, &["vault".into()], NOW).is_err());
        (text, checked.bound)
    }

    #[test]
    fn legacy_token_is_valid_while_its_secret_holds_it() {
        let (text, bound) = made();
        let secret = value!({"metadata": {"labels": {}}, "data": {"token": (STANDARD.encode(&text))}});
        let labelled = |label: &str, day: &str| {
            let mut secret = secret.clone();
            apimachinery::meta::MetaMut::of(&mut secret).unwrap().set_label(label, day);
            secret
        };
        let account = value!({"metadata": {"uid": "u1"}, "secrets": [{"name": "robot-token"}]});
        let check = |secret: Option<&Value>, account: Option<&Value>| {
            let found = BoundObjects { secret, account, ..BoundObjects::default() };
            bound::validate(&bound, &found, NOW).map_err(|error| error.to_string())
        };
        let verdict = check(Some(&secret), Some(&account)).unwrap();
        assert_eq!(verdict.user, service_account::user("ns", "robot", "u1"));
        assert_eq!(verdict.mark_used.as_deref(), Some("1970-01-02"));
        assert_eq!(verdict.warnings, [AUTO_GENERATED]);
        let annotation = ("authentication.k8s.io/legacy-token-autogenerated-secret", "robot-token".to_owned());
        assert_eq!(verdict.annotations, [annotation]);
        for (day, expect) in [("1970-01-02", None), ("1970-01-03", None), ("1970-01-01", Some("1970-01-02"))] {
            let used = labelled(LAST_USED, day);
            assert_eq!(check(Some(&used), Some(&account)).unwrap().mark_used.as_deref(), expect, "{day}");
        }
        let manual = check(Some(&secret), Some(&value!({"metadata": {"uid": "u1"}}))).unwrap();
        assert_eq!(manual.annotations[0].0, "authentication.k8s.io/legacy-token-manual-secret");
        assert!(manual.warnings.is_empty());

        let assert_rejected = |secret: Option<&Value>, account: Option<&Value>, expect: &str| {
            assert_eq!(check(secret, account).unwrap_err(), expect);
        };
        assert_rejected(None, Some(&account), "Token has been invalidated");
        assert_rejected(
            Some(&value!({"data": {"token": "AAAA"}})),
            Some(&account),
            "Token does not match server's copy",
        );
        assert_rejected(Some(&secret), None, r#"serviceaccounts "robot" not found"#);
        let going = value!({"metadata": {"uid": "u1", "deletionTimestamp": "1970-01-01T00:00:00Z"}});
        assert_rejected(Some(&secret), Some(&going), "ServiceAccount ns/robot has been deleted");
        assert_rejected(
            Some(&secret),
            Some(&value!({"metadata": {"uid": "u2"}})),
            "ServiceAccount UID (u2) does not match claim (u1)",
        );
        let invalid = labelled(INVALID_SINCE, "1970-01-01");
        assert!(
            check(Some(&invalid), Some(&account)).unwrap_err().starts_with("the token in secret ns/robot-token for")
        );
    }

    #[test]
    fn legacy_token_requires_its_claims() {
        let check = |claims: Value, expect: &str| {
            let key = PrivateKey::from_pem(rsa_pem()).unwrap();
            let text = jwt::sign(&key, &claims).unwrap();
            let message = read(&Token::parse(&text).unwrap(), &text).unwrap_err().to_string();
            assert_eq!(message, expect);
        };
        check(value!({}), "sub claim is missing");
        check(value!({"sub": "x"}), "namespace claim is missing");
        let named = value!({
            "sub": "system:serviceaccount:ns:other", "kubernetes.io/serviceaccount/namespace": "ns",
            "kubernetes.io/serviceaccount/secret.name": "s", "kubernetes.io/serviceaccount/service-account.name": "robot",
            "kubernetes.io/serviceaccount/service-account.uid": "u1",
        });
        check(named, "sub claim is invalid");
    }
}
