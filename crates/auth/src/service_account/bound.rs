//! Bound objects of a service account token, which must exist while the token is used.

use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::time::{Duration, Time};
use apimachinery::{Str, Value};

use super::legacy::{self, Legacy};
use super::token::{Claims, ObjectRef};
use super::{NODE_NAME, NODE_UID, POD_NAME, POD_UID};
use crate::jwt::LEEWAY_SECONDS;
use crate::user::CREDENTIAL_ID;
use crate::{User, service_account};

/// The objects that must exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The objects in the token's claims.
    Claims {
        /// The service account, and the pod, Secret or node.
        claims: Claims,
        subject: Str,
    },
    /// The Secret that holds the token, and the service account.
    Legacy(Legacy),
}

/// An object to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// A ServiceAccount by namespace and name.
    Account(&'a str, &'a str),
    /// A Pod by namespace and name.
    Pod(&'a str, &'a str),
    /// A Secret by namespace and name.
    Secret(&'a str, &'a str),
    /// A Node by name.
    Node(&'a str),
}

/// The objects found.
#[derive(Clone, Copy, Debug, Default)]
pub struct BoundObjects<'a> {
    pub account: Option<&'a Value>,
    pub pod: Option<&'a Value>,
    pub secret: Option<&'a Value>,
    pub node: Option<&'a Value>,
}

/// The authenticated user, and the follow-up actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationResult {
    pub user: User,
    /// Audit annotations.
    pub annotations: Vec<(&'static str, String)>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// The new value of the Secret's last-used label, if it changes.
    pub mark_used: Option<String>,
}

/// A token is no longer valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("{}", Status::not_found(GroupName::new("", "serviceaccounts"), .0).message)]
    NoAccount(Str),
    /// The service account is being deleted.
    #[error("service account {0}/{1} has been deleted")]
    AccountDeleted(Str, Str),
    /// An object has the same name and another UID.
    #[error("{what} UID ({found}) does not match {claim} ({claimed})")]
    Uid {
        /// The kind of the object.
        what: &'static str,
        found: Str,
        /// The description of the claim.
        claim: &'static str,
        claimed: Str,
    },
    /// The bound object was deleted.
    #[error("service account token has been invalidated")]
    Invalidated,
    #[error(transparent)]
    Legacy(#[from] legacy::Rejection),
}

impl Bound {
    /// Returns the objects that [`validate`] needs.
    pub fn lookups(&self) -> Vec<Lookup<'_>> {
        match self {
            Self::Claims { claims, .. } => {
                let namespace = claims.namespace.as_str();
                let account = Lookup::Account(namespace, &claims.account.name);
                let pod = claims.pod.iter().map(|pod| Lookup::Pod(namespace, &pod.name));
                let secret = claims.secret.iter().map(|secret| Lookup::Secret(namespace, &secret.name));
                // The node of a bound pod is only informational: the pod decides about the validity.
                let node = claims.node.iter().filter(|_| claims.pod.is_none()).map(|node| Lookup::Node(&node.name));
                [account].into_iter().chain(secret).chain(pod).chain(node).collect()
            }
            Self::Legacy(token) => {
                let namespace = token.namespace.as_str();
                vec![Lookup::Secret(namespace, &token.secret), Lookup::Account(namespace, &token.account.name)]
            }
        }
    }
}

/// Decides whether a token is valid, given the objects of [`Bound::lookups`].
pub fn validate(bound: &Bound, found: &BoundObjects<'_>, now: Time) -> Result<ValidationResult, Rejection> {
    match bound {
        Bound::Legacy(token) => Ok(legacy::validate(token, found, now)?),
        Bound::Claims { claims, subject } => {
            validate_account(claims, found, now)?;
            let secret = ("secret", "service account secret ref claim");
            validate_object(claims.secret.as_ref(), found.secret, secret, now)?;
            validate_object(claims.pod.as_ref(), found.pod, ("pod", "service account pod ref claim"), now)?;
            let node = claims.node.as_ref().filter(|_| claims.pod.is_none());
            validate_object(node, found.node, ("node", "service account node ref claim"), now)?;
            Ok(ValidationResult {
                user: user(claims),
                annotations: stale(claims, subject, now),
                ..ValidationResult::default()
            })
        }
    }
}

fn validate_account(claims: &Claims, found: &BoundObjects<'_>, now: Time) -> Result<(), Rejection> {
    let Claims { namespace, account, .. } = claims;
    let meta = Meta::of(found.account.ok_or_else(|| Rejection::NoAccount(account.name.clone()))?);
    same_uid(account, meta, ("service account", "claim"))?;
    if is_deleted(meta, now) {
        return Err(Rejection::AccountDeleted(namespace.clone(), account.name.clone()));
    }
    Ok(())
}

fn validate_object(
    claimed: Option<&ObjectRef>,
    found: Option<&Value>,
    labels: (&'static str, &'static str),
    now: Time,
) -> Result<(), Rejection> {
    let Some(claimed) = claimed else { return Ok(()) };
    let meta = Meta::of(found.ok_or(Rejection::Invalidated)?);
    same_uid(claimed, meta, labels)?;
    if is_deleted(meta, now) { Err(Rejection::Invalidated) } else { Ok(()) }
}

fn same_uid(claimed: &ObjectRef, meta: Meta<'_>, (what, claim): (&'static str, &'static str)) -> Result<(), Rejection> {
    if claimed.uid == meta.uid() {
        return Ok(());
    }
    Err(Rejection::Uid { what, found: meta.uid().into(), claim, claimed: claimed.uid.clone() })
}

/// Whether the deletion timestamp is older than the leeway. Until then the object's token may be needed for a graceful
/// shutdown.
fn is_deleted(meta: Meta<'_>, now: Time) -> bool {
    meta.deletion_timestamp().is_some_and(|at| at < now.plus(Duration::from_seconds(-LEEWAY_SECONDS)))
}

fn user(claims: &Claims) -> User {
    let mut user = service_account::user(&claims.namespace, &claims.account.name, &claims.account.uid);
    if let Some(pod) = &claims.pod {
        user = user.with_extra(POD_NAME, pod.name.clone()).with_extra(POD_UID, pod.uid.clone());
    }
    if !claims.id.is_empty() {
        user = user.with_extra(CREDENTIAL_ID, format!("JTI={}", claims.id));
    }
    if let Some(node) = &claims.node {
        user = user.with_extra(NODE_NAME, node.name.clone());
        if !node.uid.is_empty() {
            user = user.with_extra(NODE_UID, node.uid.clone());
        }
    }
    user
}

/// Returns the audit annotation of an extended token that is used after its requested lifetime.
fn stale(claims: &Claims, subject: &str, now: Time) -> Vec<(&'static str, String)> {
    let late = claims.warn_after.map(|after| now.unix_seconds().saturating_sub(after)).filter(|late| *late > 0);
    let annotation = |late| format!("subject: {subject}, seconds after warning threshold: {late}");
    late.map(|late| ("authentication.k8s.io/stale-token", annotation(late))).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    const NOW: Time = Time::from_unix(1_000_000, 0);

    fn object(uid: &str) -> Value {
        value!({"metadata": {"uid": uid}})
    }

    fn deleted(uid: &str, at: i64) -> Value {
        value!({"metadata": {"uid": uid, "deletionTimestamp": (Time::from_unix(at, 0).to_string())}})
    }

    fn reference(name: &str, uid: &str) -> Option<ObjectRef> {
        Some(ObjectRef { name: name.into(), uid: uid.into() })
    }

    fn bound(pod: Option<ObjectRef>, secret: Option<ObjectRef>, node: Option<ObjectRef>) -> Bound {
        let account = ObjectRef { name: "robot".into(), uid: "u1".into() };
        let claims = Claims { namespace: "ns".into(), account, pod, secret, node, id: "j".into(), warn_after: None };
        Bound::Claims { claims, subject: "s".into() }
    }

    #[test]
    fn token_is_valid_while_its_bound_objects_exist() {
        let account = object("u1");
        let found = BoundObjects { account: Some(&account), ..BoundObjects::default() };
        let user = validate(&bound(None, None, None), &found, NOW).unwrap().user;
        assert_eq!(user, service_account::user("ns", "robot", "u1").with_extra(CREDENTIAL_ID, "JTI=j"));

        let pod = object("u2");
        let found = BoundObjects { pod: Some(&pod), ..found };
        let verdict = validate(&bound(reference("p", "u2"), None, reference("n", "u3")), &found, NOW).unwrap();
        let expect = service_account::user("ns", "robot", "u1")
            .with_extra(POD_NAME, "p")
            .with_extra(POD_UID, "u2")
            .with_extra(CREDENTIAL_ID, "JTI=j")
            .with_extra(NODE_NAME, "n")
            .with_extra(NODE_UID, "u3");
        assert_eq!(verdict.user, expect);
    }

    #[test]
    fn token_is_invalid_after_its_bound_object() {
        let (account, good, other) = (object("u1"), object("u2"), object("u9"));
        let (going, deleted_pod) = (deleted("u2", 999_940), deleted("u2", 999_939));
        let (deleted_account, account_other) = (deleted("u1", 999_000), object("u8"));
        let check = |bound: &Bound, found: BoundObjects<'_>, expect: &str| {
            let message = validate(bound, &found, NOW).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(message, expect, "{bound:?}");
        };
        let plain = bound(None, None, None);
        let with = |account| BoundObjects { account, ..BoundObjects::default() };
        check(&plain, with(None), r#"serviceaccounts "robot" not found"#);
        check(&plain, with(Some(&deleted_account)), "service account ns/robot has been deleted");
        check(&plain, with(Some(&account_other)), "service account UID (u8) does not match claim (u1)");
        let found = with(Some(&account));
        let invalidated = "service account token has been invalidated";

        let pod = bound(reference("p", "u2"), None, None);
        check(&pod, found, invalidated);
        check(&pod, BoundObjects { pod: Some(&good), ..found }, "");
        check(&pod, BoundObjects { pod: Some(&going), ..found }, "");
        check(&pod, BoundObjects { pod: Some(&deleted_pod), ..found }, invalidated);
        let message = "pod UID (u9) does not match service account pod ref claim (u2)";
        check(&pod, BoundObjects { pod: Some(&other), ..found }, message);

        let secret = bound(None, reference("s", "u2"), None);
        check(&secret, found, invalidated);
        let message = "secret UID (u9) does not match service account secret ref claim (u2)";
        check(&secret, BoundObjects { secret: Some(&other), ..found }, message);

        let node = bound(None, None, reference("n", "u2"));
        check(&node, found, invalidated);
        let message = "node UID (u9) does not match service account node ref claim (u2)";
        check(&node, BoundObjects { node: Some(&other), ..found }, message);
        check(&node, BoundObjects { node: Some(&good), ..found }, "");
    }

    #[test]
    fn only_relevant_objects_are_looked_up() {
        let check = |bound: &Bound, expect: &[Lookup<'_>]| assert_eq!(bound.lookups(), expect);
        let account = Lookup::Account("ns", "robot");
        check(&bound(None, None, None), &[account]);
        check(&bound(reference("p", ""), None, reference("n", "")), &[account, Lookup::Pod("ns", "p")]);
        check(&bound(None, reference("s", ""), None), &[account, Lookup::Secret("ns", "s")]);
        check(&bound(None, None, reference("n", "")), &[account, Lookup::Node("n")]);
    }

    #[test]
    fn use_of_a_stale_token_is_audited() {
        let account = object("u1");
        let found = BoundObjects { account: Some(&account), ..BoundObjects::default() };
        let annotations = |warn_after| {
            let Bound::Claims { claims, subject } = bound(None, None, None) else {
                unreachable!("created from claims")
            };
            let bound = Bound::Claims { claims: Claims { warn_after: Some(warn_after), ..claims }, subject };
            validate(&bound, &found, NOW).unwrap().annotations
        };
        assert_eq!(annotations(1_000_000), []);
        let expect = "subject: s, seconds after warning threshold: 5".to_owned();
        assert_eq!(annotations(999_995), [("authentication.k8s.io/stale-token", expect)]);
    }
}
