//! Who asks: each way of proving it is asked in turn.

mod issuers;
mod webhook;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use auth::keys::PrivateKey;
use auth::service_account::bound::{self, Found, Lookup};
use auth::service_account::request;
use auth::service_account::token::Checker;
use auth::token_review::Answer;
use auth::{User, bearer, bootstrap_token, headers, impersonation, request_header};
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use machinery::Str;
use machinery::status::Status;
use machinery::time::Time;
use registry::admission::{Known, View};

pub use issuers::Issuers;
pub use webhook::Webhook;

use crate::life::Asked;
use crate::reload::Reloaded;
use crate::state::{State, now};

/// The ways of proving who one is that are configured.
#[derive(Default)]
pub struct Authenticators {
    /// Tokens that are given at start.
    pub tokens: BTreeMap<Str, User>,
    /// Static tokens of a file: `--token-auth-file`.
    pub token_file: Option<Reloaded<BTreeMap<Str, User>>>,
    /// Tokens of service accounts.
    pub service_accounts: Option<ServiceAccounts>,
    /// Whether secrets of the bootstrap kind are tokens.
    pub bootstrap_tokens: bool,
    /// Whom a proxy in front of the server may speak for.
    pub request_header: Option<request_header::Config>,
    /// Issuers outside the cluster: `--oidc-*`, `--authentication-config`.
    pub issuers: Option<Issuers>,
    /// Another server that knows whose a token is.
    pub webhook: Option<Webhook>,
    /// Whether those who prove nothing are let through to authorization.
    pub anonymous: bool,
    /// If there are any, only for these paths.
    pub anonymous_paths: Vec<Str>,
}

/// What makes and checks the tokens of service accounts.
pub struct ServiceAccounts {
    /// Signs new tokens.
    pub key: PrivateKey,
    /// How they are made.
    pub config: request::Config,
    /// Checks tokens.
    pub checker: Checker,
    /// Where others find the keys, if not here.
    pub keys_uri: Str,
}

/// Who a connection's certificate says is at its other end.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Whom a verified client certificate names.
    pub user: Option<User>,
    /// The common name of a certificate that the authority of front proxies signed.
    pub proxy: Option<Str>,
    /// Whether it showed a certificate that nobody vouches for.
    pub is_unproved: bool,
    /// When its certificate expires. From then on it proves nothing, though the connection was made before.
    pub expires: Option<Time>,
    /// Where it is.
    pub address: Option<SocketAddr>,
}

impl Peer {
    /// Who it is now: nobody, once its certificate has expired.
    fn current(&self, now: Time) -> Cow<'_, Self> {
        match self.expires {
            Some(end) if now.to_seconds() > end => {
                Cow::Owned(Self { is_unproved: true, address: self.address, ..Self::default() })
            }
            _ => Cow::Borrowed(self),
        }
    }
}

/// What is said of a token that nobody knows.
const UNKNOWN_TOKEN: &str = "invalid bearer token";

impl Authenticators {
    /// Who asks. A wrong proof is refused; none at all is anonymous, where that is allowed. Nobody behind sees what was shown.
    pub async fn identify(&self, asked: &mut Asked, peer: &Peer, state: &State) -> Result<User, Status> {
        let peer = &*peer.current(now());
        if let (Some(config), Some(proxy)) = (&self.request_header, &peer.proxy)
            && let Ok(Some(user)) = config.authenticate(proxy, &pairs(&asked.headers))
        {
            asked.forget(|header| config.owns(header));
            return Ok(user);
        }
        let shown = shown_token(&mut asked.headers);
        if let Some(user) = &peer.user {
            return Ok(user.clone());
        }
        match shown.map_err(|_| unauthorized())? {
            Some(token) => {
                let found = self.by_token(&token, self.audiences(), state).await;
                found.map(|answer| answer.user).map_err(|_| unauthorized())
            }
            None if !peer.is_unproved && self.lets_anybody(&asked.info.path) => Ok(User::anonymous()),
            None => Err(unauthorized()),
        }
    }

    fn static_token(&self, token: &str) -> Option<User> {
        let from_file = || self.token_file.as_ref()?.current().get(token).cloned();
        self.tokens.get(token).cloned().or_else(from_file)
    }

    fn lets_anybody(&self, path: &str) -> bool {
        self.anonymous
            && (self.anonymous_paths.is_empty() || self.anonymous_paths.iter().any(|allowed| allowed == path))
    }

    /// The server's own audiences.
    pub fn audiences(&self) -> &[Str] {
        self.service_accounts.as_ref().map_or(&[], |accounts| &accounts.config.audiences)
    }

    /// Whose token this is, for one of `audiences`; or why nobody's.
    pub async fn by_token(&self, token: &str, audiences: &[Str], state: &State) -> Result<Answer, String> {
        if let Some(user) = self.static_token(token) {
            return Ok(Answer { user: known(user), audiences: audiences.to_vec() });
        }
        if let Some(accounts) = &self.service_accounts
            && let Some(checked) = accounts
                .checker
                .check(token, audiences, now())
                .map_err(|error| format!("[{UNKNOWN_TOKEN}, {error}]"))?
        {
            let verdict = judge(&checked.bound, state).map_err(|refusal| format!("[{UNKNOWN_TOKEN}, {refusal}]"))?;
            return Ok(Answer { user: known(verdict.user), audiences: checked.audiences });
        }
        if self.bootstrap_tokens
            && let Some(token) = bootstrap_token::Token::parse(token)
            && let Some(secret) = state.object("", "secrets", "kube-system", &token.secret_name())
            && let Ok(user) = token.user(&secret, now())
        {
            return Ok(Answer { user: known(user), audiences: audiences.to_vec() });
        }
        if let Some(issuers) = &self.issuers
            && let Some(user) = issuers.check(token).await.map_err(|error| format!("[{UNKNOWN_TOKEN}, {error}]"))?
        {
            return Ok(Answer { user: known(user), audiences: audiences.to_vec() });
        }
        if let Some(webhook) = &self.webhook
            && let Some(answer) = webhook
                .check(token, audiences, self.audiences())
                .await
                .map_err(|error| format!("[{UNKNOWN_TOKEN}, {error}]"))?
        {
            return Ok(Answer { user: known(answer.user), audiences: answer.audiences });
        }
        Err(UNKNOWN_TOKEN.to_owned())
    }
}

/// The token that a request shows, taken out of its headers.
///
/// # Errors
/// The protocols of a WebSocket should hold one and do not.
fn shown_token(headers: &mut HeaderMap) -> Result<Option<String>, NoToken> {
    if let Some(value) = headers.remove(AUTHORIZATION) {
        // Another scheme proves nothing here, as if it were not there.
        return Ok(bearer::from_header(text(&value).ok_or(NoToken)?).map(str::to_owned));
    }
    let shown = |name: &HeaderName| headers.get(name).and_then(text).unwrap_or_default();
    if !shown(&UPGRADE).eq_ignore_ascii_case("websocket") {
        return Ok(None);
    }
    let Some((token, others)) = bearer::from_protocols(shown(&SEC_WEBSOCKET_PROTOCOL)).map_err(|_| NoToken)? else {
        return Ok(None);
    };
    let others = others.join(", ").parse().map_err(|_| NoToken)?;
    headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    Ok(Some(token))
}

/// There is no token where there should be one.
#[derive(Debug)]
struct NoToken;

/// Whether what a token is bound to still exists.
fn judge(bound: &bound::Bound, view: &dyn View) -> Result<bound::Verdict, bound::Refusal> {
    let mut objects: [Option<Known>; 4] = [None, None, None, None];
    for lookup in bound.lookups() {
        let (slot, found) = match lookup {
            Lookup::Account(namespace, name) => (0, view.object("", "serviceaccounts", namespace, name)),
            Lookup::Pod(namespace, name) => (1, view.object("", "pods", namespace, name)),
            Lookup::Secret(namespace, name) => (2, view.object("", "secrets", namespace, name)),
            Lookup::Node(name) => (3, view.object("", "nodes", "", name)),
        };
        objects[slot] = found;
    }
    let [account, pod, secret, node] = &objects;
    let found =
        Found { account: account.as_deref(), pod: pod.as_deref(), secret: secret.as_deref(), node: node.as_deref() };
    bound::judge(bound, &found, now())
}

fn known(mut user: User) -> User {
    user.join(auth::user::AUTHENTICATED);
    user
}

/// Headers as names and values, without those that are no text: see [`check_readable`].
pub fn pairs(headers: &HeaderMap) -> Vec<(&str, &str)> {
    headers::pairs(bytes(headers))
}

/// Refuses a request with an impersonation or front-proxy header that cannot be read.
///
/// # Errors
/// 400 that names the header.
pub fn check_readable(headers: &HeaderMap, proxies: Option<&request_header::Config>) -> Result<(), Status> {
    let says_who = |name: &str| impersonation::owns(name) || proxies.is_some_and(|config| config.owns(name));
    headers::check(bytes(headers), says_who).map_err(|error| Status::bad_request(error.to_string()))
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
