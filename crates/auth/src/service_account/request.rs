//! TokenRequest: defaults, validation, the bound object, and the issued token.
//!
//! The functions are in the order in which the server calls them. In between it looks up the service account and the
//! object of [`reference()`].

use apimachinery::field::{self, Errors};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::{GroupName, Status};
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupVersionKind, Path, Str, Value, go, value};

use super::token::{self, Claims, ObjectRef, Terms};
use crate::keys::{self, PrivateKey};

/// Default lifetime of a token.
pub const DEFAULT_SECONDS: i64 = 60 * 60;
/// Minimum requested lifetime.
pub const MIN_SECONDS: i64 = 10 * 60;
/// Maximum requested lifetime.
pub const MAX_SECONDS: i64 = 1 << 32;
/// Lifetime requested by the default projected volume: an hour and seven seconds, by which such requests are
/// recognized.
pub const WARN_ONLY_SECONDS: i64 = 60 * 60 + 7;
/// Lifetime granted to such requests during the migration from tokens without expiration: a year.
pub const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

const KIND: GroupName<'static> = GroupName::new("authentication.k8s.io", "TokenRequest");

/// The kind of a bound object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Pod in the service account's namespace.
    Pod,
    /// A Secret in the service account's namespace.
    Secret,
    Node,
}

/// The object that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub kind: Kind,
    pub name: Str,
    /// The required UID; empty if the request has none.
    pub uid: Str,
}

#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The `iss` claim.
    pub issuer: Str,
    /// Default audiences: those of the API server.
    pub audiences: Vec<Str>,
    /// `--service-account-extend-token-expiration`
    pub extend_expiration: bool,
    /// `--service-account-max-token-expiration`, if set.
    pub max_seconds: Option<i64>,
}

/// The side effects of an issued token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssueResult {
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations.
    pub annotations: Vec<(&'static str, String)>,
}

/// Sets the defaults of a request.
pub fn set_defaults(request: &mut Value) {
    let Some(spec) = request.as_object_mut().map(|request| request.get_or_insert_with("spec", Value::object)) else {
        return;
    };
    let Some(spec) = spec.as_object_mut() else { return };
    if spec.get("expirationSeconds").is_none_or(Value::is_null) {
        spec.insert("expirationSeconds", DEFAULT_SECONDS);
    }
}

/// Rejects a request whose metadata names another service account than its path.
pub fn check_path(request: &Value, namespace: &str, name: &str) -> Result<(), Status> {
    let meta = Meta::of(request);
    let metadata = Path::of("metadata");
    let named = [("name", meta.name(), name), ("namespace", meta.namespace(), namespace)];
    match named.into_iter().find(|(_, have, path)| !have.is_empty() && have != path) {
        None => Ok(()),
        Some((field, have, _)) => {
            let detail = format!("must match the service account {field} if specified");
            let error = field::Error::invalid(&metadata.field(field), have, detail);
            Err(Status::invalid(KIND, name, &[error]))
        }
    }
}

/// Completes the request from the service account and rejects it if it is invalid.
pub fn prepare(request: &mut Value, account: &Value, audiences: &[Str], now: Time) -> Result<(), Status> {
    let account = Meta::of(account);
    if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("audiences").and_then(Value::as_array).is_none_or(<[Value]>::is_empty)
    {
        spec.insert("audiences", Value::Array(audiences.iter().cloned().map(Value::String).collect()));
    }
    if let Some(mut meta) = MetaMut::of(request) {
        let named = [("name", account.name()), ("namespace", account.namespace()), ("uid", account.uid())];
        for (field, value) in named {
            if meta.view().value(field).and_then(Value::as_str).is_none_or(str::is_empty) {
                meta.set(field, value);
            }
        }
        let uid = meta.view().uid();
        if uid != account.uid() {
            let (have, name) = (account.uid(), account.name());
            let cause =
                format!("the UID in the token request ({uid}) does not match the UID of the service account ({have})");
            return Err(Status::conflict(KIND, name, cause));
        }
        meta.set("creationTimestamp", now.to_string());
    }
    if let Some(request) = request.as_object_mut() {
        request.remove("status");
    }
    let errors = validate(request);
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(KIND, "", &errors)) }
}

/// Returns all validation errors of a request.
pub fn validate(request: &Value) -> Errors {
    let spec = Path::of("spec");
    let at = spec.field("expirationSeconds");
    let seconds = expiration_seconds(request);
    let mut errors = Errors::new();
    if seconds < MIN_SECONDS {
        errors.push(field::Error::invalid(&at, seconds, "may not specify a duration less than 10 minutes"));
    }
    if seconds > MAX_SECONDS {
        errors.push(field::Error::invalid(&at, seconds, "may not specify a duration larger than 2^32 seconds"));
    }
    errors
}

/// Returns the bound object of the request.
pub fn reference(request: &Value) -> Result<Option<Reference>, Status> {
    let Some(object) = request.at(&["spec", "boundObjectRef"]).filter(|object| !object.is_null()) else {
        return Ok(None);
    };
    let text = |key| object.text_at(&[key]);
    let api_version = text("apiVersion");
    // An apiVersion with two slashes has no group, as everywhere in Kubernetes.
    let kind = GroupVersionKind::parse(api_version, text("kind")).unwrap_or_default();
    let found = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => Kind::Pod,
        ("", "Secret") => Kind::Secret,
        ("", "Node") => Kind::Node,
        (group, _) => {
            let gvk = format!("{group}/{}, Kind={}", kind.version, kind.kind);
            return Err(Status::bad_request(format!("cannot bind token to object of type {gvk}")));
        }
    };
    Ok(Some(Reference { kind: found, name: text("name").into(), uid: text("uid").into() }))
}

/// Returns the name of the pod's node. The token contains it, with the node's UID if the node exists.
pub fn node_of(pod: &Value) -> Option<&str> {
    pod.str_at(&["spec", "nodeName"]).filter(|name| !name.is_empty())
}

/// Returns the claims: the service account and its bound object. `node` is the object found for [`node_of`] a pod.
pub fn claims(
    account: &Value,
    bound: Option<(&Reference, &Value)>,
    node: Option<&Value>,
    id: &str,
) -> Result<Claims, Status> {
    let meta = Meta::of(account);
    let mut claims =
        Claims { namespace: meta.namespace().into(), account: object_ref(account), id: id.into(), ..Claims::default() };
    let Some((reference, object)) = bound else { return Ok(claims) };
    match reference.kind {
        Kind::Pod => {
            if object.text_at(&["spec", "serviceAccountName"]) != meta.name() {
                let name = go::quote(meta.name());
                let message = format!(
                    "cannot bind token for serviceaccount {name} to pod running with different serviceaccount name."
                );
                return Err(Status::bad_request(message));
            }
            claims.pod = Some(object_ref(object));
            claims.node = node_of(object).map(|name| ObjectRef {
                name: name.into(),
                uid: node.map(|node| Meta::of(node).uid()).unwrap_or_default().into(),
            });
        }
        Kind::Secret => claims.secret = Some(object_ref(object)),
        Kind::Node => claims.node = Some(object_ref(object)),
    }
    if !reference.uid.is_empty() && reference.uid != Meta::of(object).uid() {
        let resource = GroupName::new("", reference.kind.name());
        let uid = &reference.uid;
        let cause = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(resource, &reference.name, cause));
    }
    Ok(claims)
}

/// Issues the token and adds it to the request's status.
pub fn issue_token(
    request: &mut Value,
    mut claims: Claims,
    key: &PrivateKey,
    config: &Config,
    now: Time,
) -> Result<IssueResult, keys::Error> {
    let mut response = IssueResult::default();
    let requested = expiration_seconds(request);
    let granted = config.max_seconds.filter(|max| *max > 0 && requested > *max).unwrap_or(requested);
    if granted != requested {
        response.warnings.push(format!("requested expiration of {requested} seconds shortened to {granted} seconds"));
        if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("expirationSeconds", granted);
        }
    }
    let audiences = request.list_at(&["spec", "audiences"]);
    let audiences: Vec<Str> = audiences.iter().filter_map(Value::as_str).map(Str::from).collect();
    let for_server = audiences.iter().all(|audience| config.audiences.contains(audience));
    let extended = config.extend_expiration && claims.pod.is_some() && granted == WARN_ONLY_SECONDS && for_server;
    let expiration_seconds = if extended { EXTENDED_SECONDS } else { granted };
    claims.warn_after = extended.then(|| now.unix_seconds() + granted);
    let terms = Terms { issuer: &config.issuer, audiences: &audiences, issued_at: now, expiration_seconds };
    let token = token::issue(key, &claims, &terms)?;
    // The status has the requested expiration, so that the client renews the token by then. The extended lifetime is
    // only a safety net.
    let expires = now.plus(Duration::from_seconds(granted)).to_string();
    if let Some(request) = request.as_object_mut() {
        request.insert("status", value!({"token": token, "expirationTimestamp": expires}));
    }
    if !claims.id.is_empty() {
        let annotation = "authentication.kubernetes.io/issued-credential-id";
        response.annotations.push((annotation, format!("JTI={}", claims.id)));
    }
    Ok(response)
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Secret => "Secret",
            Self::Node => "Node",
        }
    }
}

fn expiration_seconds(request: &Value) -> i64 {
    request.int_at(&["spec", "expirationSeconds"]).unwrap_or_default()
}

fn object_ref(object: &Value) -> ObjectRef {
    let meta = Meta::of(object);
    ObjectRef { name: meta.name().into(), uid: meta.uid().into() }
}

#[cfg(test)]
mod tests;
