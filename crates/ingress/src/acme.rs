//! Certificates by ACME (RFC 8555) with HTTP-01 challenges, stored as Secrets.
//!
//! ```text
//! plan ──orders──> Issuer ──Secret──> caches ──> plan
//!                    └──challenges──> plan ──> proxy, which responds to the ACME server
//! ```

mod http;
mod secrets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::Key;
use client::Client;
use client::cache::ChangeQueue;
use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, OrderStatus, RetryPolicy,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::plan::acme::{Order, Progress};

/// Time limit of one order.
const ORDER_LIMIT: Duration = Duration::from_secs(300);
/// Delay before a failed order is retried, doubled with each failure. Servers limit failures per hour.
const RETRY_MIN: Duration = Duration::from_secs(60);
const RETRY_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Time limit for the caches to observe a written Secret.
const OBSERVED: Duration = Duration::from_secs(60);
/// Maximum length of a challenge's token. That of Let's Encrypt has 43 bytes.
const TOKEN_BYTES_MAX: usize = 256;
/// Maximum length of an error in an Event.
const MESSAGE_MAX: usize = 300;

/// Parameters of the ACME server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// URL of the directory of the server, whose terms of service the operator accepts.
    pub directory: String,
    /// Address to which the server may send warnings.
    pub email: Option<String>,
    /// PEM of the CAs that are trusted instead of the system's.
    pub ca_pem: Option<Vec<u8>>,
}

/// Obtains the certificates that the plan orders.
#[derive(Clone)]
pub(crate) struct Issuer {
    client: Client,
    settings: Settings,
    orders: watch::Receiver<Arc<Vec<Order>>>,
    progress: watch::Sender<Progress>,
    /// The progress that the proxy serves.
    served: watch::Receiver<Progress>,
    replan: ChangeQueue,
}

/// The controller's side of an issuer.
pub(crate) struct Handle {
    orders: watch::Sender<Arc<Vec<Order>>>,
    progress: watch::Receiver<Progress>,
    served: watch::Sender<Progress>,
}

#[derive(Debug, thiserror::Error)]
enum IssueError {
    #[error("the ACME server rejected the request: {0}")]
    Acme(#[from] instant_acme::Error),
    #[error("the ACME server offers no HTTP-01 challenge for {0}")]
    NoChallenge(String),
    #[error("the ACME server could not validate the hosts")]
    Invalid,
    #[error("the order was not finished within {ORDER_LIMIT:?}")]
    Timeout,
    #[error("the ACME server named a host that was not ordered, or one of several times: {0}")]
    Host(String),
    #[error("the ACME server sent a token that is not base64url of at most {TOKEN_BYTES_MAX} bytes")]
    Token,
    #[error(transparent)]
    Client(#[from] http::ClientError),
    #[error("the account cannot be read or stored: {0}")]
    Account(String),
    #[error("the Secret cannot be written: {0}")]
    Secret(#[from] client::Error),
}

/// Failed orders of a Secret, and the time of the next attempt.
struct Attempt {
    failures: u32,
    next: Instant,
}

impl Handle {
    /// Passes on the orders of a plan, and the progress that the proxy serves.
    pub(crate) fn follow(&self, orders: &[Order], served: &Progress) {
        self.served.send_if_modified(|current| replace(current, served));
        self.orders.send_if_modified(|current| {
            let is_changed = current.as_slice() != orders;
            if is_changed {
                *current = Arc::new(orders.to_vec());
            }
            is_changed
        });
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }
}

fn replace(current: &mut Progress, next: &Progress) -> bool {
    let is_changed = current != next;
    if is_changed {
        current.clone_from(next);
    }
    is_changed
}

impl Issuer {
    /// Creates an issuer. `replan` is notified of progress.
    pub(crate) fn new(client: Client, settings: Settings, replan: ChangeQueue) -> (Issuer, Handle) {
        let (orders, to_place) = watch::channel(Arc::default());
        let (progress, seen) = watch::channel(Progress::default());
        let (served, is_served) = watch::channel(Progress::default());
        let issuer = Issuer { client, settings, orders: to_place, progress, served: is_served, replan };
        (issuer, Handle { orders, progress: seen, served })
    }

    /// Places orders until the controller stops.
    pub(crate) async fn run(mut self) {
        let mut attempts: BTreeMap<Key, Attempt> = BTreeMap::new();
        let mut account = None;
        loop {
            let orders = Arc::clone(&self.orders.borrow_and_update());
            attempts.retain(|secret, _| orders.iter().any(|order| order.secret == *secret));
            self.change(|progress| {
                progress.failures.retain(|secret, _| orders.iter().any(|order| order.secret == *secret));
            });
            let next = |order: &&Order| attempts.get(&order.secret).map(|attempt| attempt.next);
            let Some(order) = orders.iter().min_by_key(next) else {
                if self.orders.changed().await.is_err() {
                    return;
                }
                continue;
            };
            if let Some(time) = next(&order).filter(|time| *time > Instant::now()) {
                tokio::select! {
                    changed = self.orders.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep_until(time) => {}
                }
                continue;
            }
            let issuing = tokio::time::timeout(ORDER_LIMIT, self.issue(&mut account, order)).await;
            let failures = attempts.get(&order.secret).map_or(0, |attempt| attempt.failures);
            let attempt = match issuing.unwrap_or(Err(IssueError::Timeout)) {
                Ok(()) => {
                    tracing::info!(secret = %order.secret, "obtained a certificate");
                    Attempt { failures: 0, next: Instant::now() + OBSERVED }
                }
                Err(error) => {
                    let wait = RETRY_MIN.saturating_mul(1 << failures.min(16)).min(RETRY_MAX);
                    tracing::warn!(secret = %order.secret, %error, "failed to obtain a certificate; retrying in {wait:?}");
                    let message: String = error.to_string().chars().take(MESSAGE_MAX).collect();
                    self.change(|progress| drop(progress.failures.insert(order.secret.clone(), message)));
                    // The account may have been deactivated.
                    account = None;
                    Attempt { failures: failures + 1, next: Instant::now() + wait }
                }
            };
            attempts.insert(order.secret.clone(), attempt);
            self.change(|progress| progress.challenges.clear());
        }
    }

    async fn issue(&mut self, account: &mut Option<Account>, order: &Order) -> Result<(), IssueError> {
        let account = match account {
            Some(account) => account.clone(),
            None => account.insert(self.account().await?).clone(),
        };
        let identifiers: Vec<Identifier> = order.hosts.iter().cloned().map(Identifier::Dns).collect();
        let mut placed = account.new_order(&NewOrder::new(&identifiers)).await?;
        let mut authorizations = placed.authorizations();
        let mut left = order.hosts.clone();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            let host = authorization.identifier().to_string();
            if !left.remove(&host) {
                return Err(IssueError::Host(host));
            }
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let challenge = authorization.challenge(ChallengeType::Http01);
            let mut challenge = challenge.ok_or_else(|| IssueError::NoChallenge(host.clone()))?;
            if !is_token(&challenge.token) {
                return Err(IssueError::Token);
            }
            let answer = challenge.key_authorization().as_str().to_owned();
            self.serve((host, challenge.token.clone()), answer).await;
            challenge.set_ready().await?;
        }
        let retries = RetryPolicy::default().timeout(ORDER_LIMIT);
        if placed.poll_ready(&retries).await? != OrderStatus::Ready {
            return Err(IssueError::Invalid);
        }
        let key = placed.finalize().await?;
        let chain = placed.poll_certificate(&retries).await?;
        Ok(secrets::write(&self.client, order, &chain, &key).await?)
    }

    /// Waits until the proxy serves the response to a challenge.
    async fn serve(&mut self, challenge: (String, String), answer: String) {
        self.change(|progress| drop(progress.challenges.insert(challenge.clone(), answer)));
        // The sender outlives the issuer, and the order has a time limit.
        let _ = self.served.wait_for(|served| served.challenges.contains_key(&challenge)).await;
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        let changed = self.progress.send_if_modified(|progress| {
            let before = progress.clone();
            change(progress);
            *progress != before
        });
        if changed {
            self.replan.add([Key::default()]);
        }
    }

    /// Returns the stored account, or creates one.
    async fn account(&self) -> Result<Account, IssueError> {
        let http = || http::client(&self.settings);
        if let Some(credentials) = secrets::account(&self.client, &self.settings.directory).await? {
            return Ok(Account::builder_with_http(http()?).from_credentials(credentials).await?);
        }
        let contact = self.settings.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let account = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let directory = self.settings.directory.clone();
        let (account, credentials) = Account::builder_with_http(http()?).create(&account, directory, None).await?;
        secrets::store_account(&self.client, &self.settings.directory, &credentials).await?;
        Ok(account)
    }
}

/// Whether a token is well-formed (RFC 8555, section 8.3). It becomes a part of a path.
fn is_token(token: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_bounded_and_base64url() {
        let check = |token: &str, expect: bool| assert_eq!(is_token(token), expect, "{token}");
        check("evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr_oA", true);
        check(&"x".repeat(TOKEN_BYTES_MAX), true);
        check(&"x".repeat(TOKEN_BYTES_MAX + 1), false);
        check("", false);
        check("../admin", false);
        check("a b", false);
    }
}
