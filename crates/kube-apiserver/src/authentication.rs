//! Authentication: tries the configured authenticators in order.

mod issuers;
mod webhook;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use admission::CachedObject;
use api::resources::{NODES, PODS, SECRETS, SERVICE_ACCOUNTS};
use apimachinery::Str;
use apimachinery::status::Status;
use apimachinery::time::Time;
use auth::keys::PrivateKey;
use auth::service_account::bound::{self, BoundObjects, Lookup};
use auth::service_account::request;
use auth::service_account::token::Checker;
use auth::token_review::AuthenticationResponse;
use auth::{User, bearer, bootstrap_token, headers, impersonation, request_header};
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

pub use issuers::Issuers;
pub use webhook::Webhook;

use crate::reload::ReloadedValue;
use crate::request_info::RequestInfo;
use crate::storage::Storage;
use client::clock::now;

/// The configured authenticators.
#[derive(Default)]
pub struct Authenticators {
    /// Static tokens that are configured in the process, not in a file.
    pub tokens: BTreeMap<Str, User>,
    /// `--token-auth-file`.
    pub token_file: Option<ReloadedValue<BTreeMap<Str, User>>>,
    pub service_accounts: Option<ServiceAccounts>,
    /// Whether Secrets of type bootstrap.kubernetes.io/token authenticate (`--enable-bootstrap-token-auth`).
    pub bootstrap_tokens: bool,
    /// Request-header authentication of front proxies (`--requestheader-*`).
    pub request_header: Option<request_header::Config>,
    /// OIDC issuers: `--oidc-*`, `--authentication-config`.
    pub issuers: Option<Issuers>,
    /// The TokenReview webhook.
    pub webhook: Option<Webhook>,
    /// Whether requests without credentials are treated as `system:anonymous`.
    pub anonymous: bool,
    /// If not empty, anonymous requests are only allowed for these paths.
    pub anonymous_paths: Vec<Str>,
}

/// Issues and verifies service account tokens.
pub struct ServiceAccounts {
    /// The signing key of new tokens.
    pub key: PrivateKey,
    /// Issuer, audiences and lifetimes of new tokens.
    pub config: request::Config,
    pub checker: Checker,
    /// The JWKS URI of the discovery document (`--service-account-jwks-uri`).
    pub keys_uri: Str,
}

/// The TLS client identity of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The user of a verified client certificate.
    pub user: Option<User>,
    /// The common name of a certificate that the request-header CA signed.
    pub proxy: Option<Str>,
    /// Whether the client presented a certificate that no configured CA signed.
    pub is_unproved: bool,
    /// The certificate's expiry. After that time the certificate is ignored, even on an existing connection.
    pub expires: Option<Time>,
    /// The remote address.
    pub address: Option<SocketAddr>,
}

impl Peer {
    /// Returns the peer without its certificate identity if the certificate has expired.
    fn current(&self, now: Time) -> Cow<'_, Self> {
        match self.expires {
            Some(end) if now.to_seconds() > end => {
                Cow::Owned(Self { is_unproved: true, address: self.address, ..Self::default() })
            }
            _ => Cow::Borrowed(self),
        }
    }
}

/// Error message for a token that no authenticator accepts.
const UNKNOWN_TOKEN: &str = "invalid bearer token";

impl Authenticators {
    /// Authenticates a request. Invalid credentials are rejected; missing ones are anonymous where allowed. The
    /// credentials are removed from the request.
    pub async fn identify(&self, request: &mut RequestInfo, peer: &Peer, storage: &Storage) -> Result<User, Status> {
        let peer = &*peer.current(now());
        if let (Some(config), Some(proxy)) = (&self.request_header, &peer.proxy)
            && let Ok(Some(user)) = config.authenticate(proxy, &pairs(&request.headers))
        {
            request.remove_headers(|header| config.owns(header));
            return Ok(user);
        }
        let bearer_token = bearer_token(&mut request.headers);
        if let Some(user) = &peer.user {
            return Ok(user.clone());
        }
        match bearer_token.map_err(|_| unauthorized())? {
            Some(token) => {
                let found = self.by_token(&token, self.audiences(), storage).await;
                found.map(|response| response.user).map_err(|_| unauthorized())
            }
            None if !peer.is_unproved && self.allows_anonymous(&request.info.path) => Ok(User::anonymous()),
            None => Err(unauthorized()),
        }
    }

    fn static_token(&self, token: &str) -> Option<User> {
        let from_file = || self.token_file.as_ref()?.current().get(token).cloned();
        self.tokens.get(token).cloned().or_else(from_file)
    }

    fn allows_anonymous(&self, path: &str) -> bool {
        self.anonymous
            && (self.anonymous_paths.is_empty() || self.anonymous_paths.iter().any(|allowed| allowed == path))
    }

    /// Returns the API server's audiences.
    pub fn audiences(&self) -> &[Str] {
        self.service_accounts.as_ref().map_or(&[], |accounts| &accounts.config.audiences)
    }

    /// Authenticates a token for one of `audiences`; otherwise returns the reason of the rejection.
    pub async fn by_token(
        &self,
        token: &str,
        audiences: &[Str],
        storage: &Storage,
    ) -> Result<AuthenticationResponse, String> {
        if let Some(user) = self.static_token(token) {
            return Ok(AuthenticationResponse { user: known(user), audiences: audiences.to_vec() });
        }
        if let Some(accounts) = &self.service_accounts
            && let Some(checked) = accounts
                .checker
                .check(token, audiences, now())
                .map_err(|error| format!("[{UNKNOWN_TOKEN}, {error}]"))?
        {
            let verdict =
                check_bound_objects(&checked.bound, storage).map_err(|error| format!("[{UNKNOWN_TOKEN}, {error}]"))?;
            return Ok(AuthenticationResponse { user: known(verdict.user), audiences: checked.audiences });
        }
        if self.bootstrap_tokens
            && let Some(token) = bootstrap_token::Token::parse(token)
            && let Some(secret) = storage.object(SECRETS, "kube-system", &token.secret_name())
            && let Ok(user) = token.user(&secret, now())
        {
            return Ok(AuthenticationResponse { user: known(user), audiences: audiences.to_vec() });
        }
        if let Some(issuers) = &self.issuers
            && let Some(user) = issuers.check(token).await.map_err(|error| format!("[{UNKNOWN_TOKEN}, {error}]"))?
        {
            return Ok(AuthenticationResponse { user: known(user), audiences: audiences.to_vec() });
        }
        if let Some(webhook) = &self.webhook
            && let Some(response) = webhook
                .check(token, audiences, self.audiences())
                .await
                .map_err(|error| format!("[{UNKNOWN_TOKEN}, {error}]"))?
        {
            return Ok(AuthenticationResponse { user: known(response.user), audiences: response.audiences });
        }
        Err(UNKNOWN_TOKEN.to_owned())
    }
}

/// Removes the bearer token from the request headers and returns it.
///
/// # Errors
/// The Authorization header is not text, or the WebSocket protocol header contains an invalid token.
fn bearer_token(headers: &mut HeaderMap) -> Result<Option<String>, InvalidToken> {
    if let Some(value) = headers.remove(AUTHORIZATION) {
        // Other authentication schemes are ignored.
        return Ok(bearer::from_header(text(&value).ok_or(InvalidToken)?).map(str::to_owned));
    }
    let header_text = |name: &HeaderName| headers.get(name).and_then(text).unwrap_or_default();
    if !header_text(&UPGRADE).eq_ignore_ascii_case("websocket") {
        return Ok(None);
    }
    let Some((token, others)) =
        bearer::from_protocols(header_text(&SEC_WEBSOCKET_PROTOCOL)).map_err(|_| InvalidToken)?
    else {
        return Ok(None);
    };
    let others = others.join(", ").parse().map_err(|_| InvalidToken)?;
    headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    Ok(Some(token))
}

/// The headers should contain a token but do not contain a valid one.
#[derive(Debug)]
struct InvalidToken;

/// Checks that the objects a service account token is bound to still exist.
fn check_bound_objects(bound: &bound::Bound, storage: &Storage) -> Result<bound::ValidationResult, bound::Rejection> {
    let mut objects: [Option<CachedObject>; 4] = [None, None, None, None];
    for lookup in bound.lookups() {
        let (slot, found) = match lookup {
            Lookup::Account(namespace, name) => (0, storage.object(SERVICE_ACCOUNTS, namespace, name)),
            Lookup::Pod(namespace, name) => (1, storage.object(PODS, namespace, name)),
            Lookup::Secret(namespace, name) => (2, storage.object(SECRETS, namespace, name)),
            Lookup::Node(name) => (3, storage.object(NODES, "", name)),
        };
        objects[slot] = found;
    }
    let [account, pod, secret, node] = &objects;
    let found = BoundObjects {
        account: account.as_deref(),
        pod: pod.as_deref(),
        secret: secret.as_deref(),
        node: node.as_deref(),
    };
    bound::validate(bound, &found, now())
}

fn known(mut user: User) -> User {
    user.join(auth::user::AUTHENTICATED);
    user
}

/// Returns header names and values. Values that are not text are skipped; see [`check_readable`].
pub fn pairs(headers: &HeaderMap) -> Vec<(&str, &str)> {
    headers::pairs(bytes(headers))
}

/// Rejects a request with an impersonation or front-proxy header that is not text.
///
/// # Errors
/// 400 with the name of the header.
pub fn check_readable(headers: &HeaderMap, proxies: Option<&request_header::Config>) -> Result<(), Status> {
    let is_identity_header = |name: &str| impersonation::owns(name) || proxies.is_some_and(|config| config.owns(name));
    headers::check(bytes(headers), is_identity_header).map_err(|error| Status::bad_request(error.to_string()))
}

fn bytes(headers: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

fn text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

fn unauthorized() -> Status {
    Status::unauthorized("Unauthorized")
}
