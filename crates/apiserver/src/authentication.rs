//! Who asks: each way of proving it is asked in turn.

use std::collections::BTreeMap;

use auth::keys::PrivateKey;
use auth::service_account::bound::{self, Found, Lookup};
use auth::service_account::request;
use auth::service_account::token::Checker;
use auth::token_review::Answer;
use auth::{User, bearer, bootstrap_token, request_header};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use machinery::status::Status;
use machinery::{Str, Value};
use registry::admission::View;

use crate::state::now;

/// The ways of proving who one is that are configured.
#[derive(Default)]
pub struct Authenticators {
    /// Static tokens (`--token-auth-file`), and the one that the server gives itself.
    pub tokens: BTreeMap<Str, User>,
    /// Tokens of service accounts.
    pub service_accounts: Option<ServiceAccounts>,
    /// Whether secrets of the bootstrap kind are tokens.
    pub bootstrap_tokens: bool,
    /// Whom a proxy in front of the server may speak for.
    pub request_header: Option<request_header::Config>,
    /// Whether those who prove nothing are let through to authorization.
    pub anonymous: bool,
}

/// What makes and checks the tokens of service accounts.
pub struct ServiceAccounts {
    /// Signs new tokens.
    pub key: PrivateKey,
    /// How they are made.
    pub config: request::Config,
    /// Checks tokens.
    pub checker: Checker,
}

/// Who a connection's certificate says is at its other end.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Whom a verified client certificate names.
    pub user: Option<User>,
    /// The common name of a certificate that the authority of front proxies signed.
    pub proxy: Option<Str>,
}

/// What is said of a token that nobody knows.
const UNKNOWN_TOKEN: &str = "invalid bearer token";

impl Authenticators {
    /// Who asks. A wrong proof is refused; none at all is anonymous, where that is allowed.
    pub fn identify(&self, headers: &HeaderMap, peer: &Peer, view: &dyn View) -> Result<User, Status> {
        if let (Some(config), Some(proxy)) = (&self.request_header, &peer.proxy) {
            let pairs = pairs(headers);
            if let Some(user) = config.authenticate(proxy, &pairs).map_err(|_| unauthorized())? {
                return Ok(user);
            }
        }
        if let Some(user) = &peer.user {
            return Ok(user.clone());
        }
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        match authorization.map(bearer::from_header) {
            Some(Some(token)) => {
                let found = self.by_token(token, self.audiences(), view);
                found.map(|answer| answer.user).map_err(|_| unauthorized())
            }
            None if self.anonymous && !headers.contains_key(AUTHORIZATION) => Ok(User::anonymous()),
            Some(None) | None => Err(unauthorized()),
        }
    }

    /// The server's own audiences.
    pub fn audiences(&self) -> &[Str] {
        self.service_accounts.as_ref().map_or(&[], |accounts| &accounts.config.audiences)
    }

    /// Whose token this is, for one of `audiences`; or why nobody's.
    pub fn by_token(&self, token: &str, audiences: &[Str], view: &dyn View) -> Result<Answer, String> {
        if let Some(user) = self.tokens.get(token) {
            return Ok(Answer { user: known(user.clone()), audiences: audiences.to_vec() });
        }
        if let Some(accounts) = &self.service_accounts
            && let Some(checked) = accounts
                .checker
                .check(token, audiences, now())
                .map_err(|error| format!("[{UNKNOWN_TOKEN}, {error}]"))?
        {
            let verdict = judge(&checked.bound, view).map_err(|refusal| format!("[{UNKNOWN_TOKEN}, {refusal}]"))?;
            return Ok(Answer { user: known(verdict.user), audiences: checked.audiences });
        }
        if self.bootstrap_tokens
            && let Some(token) = bootstrap_token::Token::parse(token)
            && let Some(secret) = view.object("", "secrets", "kube-system", &token.secret_name())
            && let Ok(user) = token.user(&secret, now())
        {
            return Ok(Answer { user: known(user), audiences: audiences.to_vec() });
        }
        Err(UNKNOWN_TOKEN.to_owned())
    }
}

/// Whether what a token is bound to still exists.
fn judge(bound: &bound::Bound, view: &dyn View) -> Result<bound::Verdict, bound::Refusal> {
    let mut objects: [Option<Value>; 4] = [None, None, None, None];
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
    let found = Found { account: account.as_ref(), pod: pod.as_ref(), secret: secret.as_ref(), node: node.as_ref() };
    bound::judge(bound, &found, now())
}

fn known(mut user: User) -> User {
    user.join(auth::user::AUTHENTICATED);
    user
}

/// Headers as names and values.
pub fn pairs(headers: &HeaderMap) -> Vec<(&str, &str)> {
    headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect()
}

fn unauthorized() -> Status {
    Status::unauthorized("Unauthorized")
}
