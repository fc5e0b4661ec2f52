//! Exec credential providers: plugins that return registry credentials for images.
//!
//! ```text
//! image, pod ──> providers whose matchImages match ──> cache, or exec (one per key at a time) ──> credentials
//! ```

mod cache;
pub mod config;
mod exec;
mod tokens;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use client::{Client, Target};
use controller::kinds;
use node_api::cri::v1;
use tokio::sync::OnceCell;

use self::cache::{Cache, Identity};
use self::config::{CacheType, ProviderConfig, TokenAttributes};
use self::exec::{ExecError, Request, Response};
use self::tokens::Tokens;
use super::credentials::{self, Credential};
use super::verification::{self, AccountUse, Source};
use crate::plugins::sha256_hex;
use crate::pod::Pod;

/// The credential providers of a node.
pub(super) struct Providers {
    client: Client,
    tokens: Tokens,
    providers: Vec<Provider>,
}

struct Provider {
    config: ProviderConfig,
    cache: Mutex<Cache>,
    calls: Mutex<BTreeMap<CallKey, Arc<Call>>>,
}

/// A running call of a plugin. All that wait for it share its result.
type Call = OnceCell<Result<Arc<Response>, Arc<ExecError>>>;
/// Image, and the identity of the pod with the hash of its token.
type CallKey = (String, Identity);

/// No credentials were returned.
#[derive(Debug, thiserror::Error)]
enum ProviderError {
    #[error("failed to get the service account")]
    Account(#[source] client::Error),
    #[error("failed to request a service account token")]
    Token(#[source] client::Error),
    #[error(transparent)]
    Exec(#[from] Arc<ExecError>),
    #[error("the plugin returned the service account token as the password, which needs cacheType: Token")]
    Echo,
}

/// The service account of a pod, as far as a provider needs it.
struct Account {
    source: AccountUse,
    annotations: BTreeMap<String, String>,
    token: String,
}

impl Providers {
    pub(super) fn new(client: Client, configs: &[ProviderConfig]) -> Self {
        let provider = |config: &ProviderConfig| Provider {
            config: config.clone(),
            cache: Mutex::default(),
            calls: Mutex::default(),
        };
        Self { client, tokens: Tokens::default(), providers: configs.iter().map(provider).collect() }
    }

    /// Returns the credentials of all providers that match an image, the most specific first. A provider that fails
    /// returns none, and the failure is logged.
    pub(super) async fn credentials(&self, image: &str, pod: Pod<'_>) -> Vec<Credential> {
        let image = verification::repository(image);
        let mut found = Vec::new();
        for provider in self.providers.iter().filter(|provider| provider.config.matches(&image)) {
            match self.ask(provider, &image, pod).await {
                Ok(credentials) => found.extend(credentials),
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    tracing::error!(
                        provider = provider.config.name, image, %error, cause,
                        "failed to get credentials from a credential provider"
                    );
                }
            }
        }
        found.sort_by_key(|(exactness, _)| std::cmp::Reverse(*exactness));
        found.into_iter().map(|(_, credential)| credential).collect()
    }

    async fn ask(
        &self,
        provider: &Provider,
        image: &str,
        pod: Pod<'_>,
    ) -> Result<Vec<(usize, Credential)>, ProviderError> {
        let name = pod.spec().str_at(&["serviceAccountName"]).unwrap_or_default();
        let account = match &provider.config.token {
            None => None,
            // Static pods have no service account.
            Some(attributes) if name.is_empty() && attributes.require_service_account => return Ok(Vec::new()),
            Some(_) if name.is_empty() => None,
            Some(attributes) => match self.account(attributes, pod, name).await? {
                None => return Ok(Vec::new()),
                found => found,
            },
        };
        let response = provider.call(image, account.as_ref()).await?;
        let source = account.map(|account| Source::Account(account.source));
        let credential = |(pattern, login): (&String, &exec::Login)| {
            let exactness = credentials::specificity(pattern, image)?;
            let auth = v1::AuthConfig {
                username: login.username.clone(),
                password: login.password.clone(),
                ..Default::default()
            };
            Some((exactness, Credential { auth, source: source.clone() }))
        };
        Ok(response.auth.iter().filter_map(credential).collect())
    }

    /// Returns the service account of a pod with a token, or `None` if it lacks a required annotation.
    async fn account(
        &self,
        attributes: &TokenAttributes,
        pod: Pod<'_>,
        name: &str,
    ) -> Result<Option<Account>, ProviderError> {
        let target = Target::named(&kinds::SERVICE_ACCOUNTS, pod.namespace(), name);
        let object = self.client.get(&target).await.map_err(ProviderError::Account)?;
        let value = |key: &String| object["metadata"]["annotations"].get(key)?.as_str().map(str::to_owned);
        let mut annotations = BTreeMap::new();
        for key in &attributes.required_annotations {
            let Some(value) = value(key) else {
                tracing::debug!(pod = pod.described(), annotation = key, "the service account lacks an annotation");
                return Ok(None);
            };
            annotations.insert(key.clone(), value);
        }
        for key in &attributes.optional_annotations {
            annotations.extend(value(key).map(|value| (key.clone(), value)));
        }
        let source = AccountUse {
            uid: object.str_at(&["metadata", "uid"]).unwrap_or_default().to_owned(),
            namespace: pod.namespace().to_owned(),
            name: name.to_owned(),
        };
        let token = self.tokens.get(&self.client, pod, &source, &attributes.audience).await;
        Ok(Some(Account { source, annotations, token: token.map_err(ProviderError::Token)? }))
    }
}

impl Provider {
    /// Returns the response for an image from the cache, or from the plugin.
    async fn call(&self, image: &str, account: Option<&Account>) -> Result<Arc<Response>, ProviderError> {
        let by_token = self.config.token.as_ref().is_some_and(|token| token.cache_type == CacheType::Token);
        let identity = |with_token: bool| match account {
            None => Identity::default(),
            Some(account) => Identity {
                account: Some(account.source.clone()),
                annotations: account.annotations.clone(),
                token_hash: with_token.then(|| sha256_hex(&account.token)),
            },
        };
        let cached = self.lock_cache().get(image, &identity(by_token), Instant::now());
        if let Some(found) = cached {
            return Ok(found);
        }
        let key = (image.to_owned(), identity(true));
        let call = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(calls.entry(key.clone()).or_default())
        };
        let request = Request {
            image,
            token: account.map(|account| account.token.as_str()),
            annotations: account.map(|account| &account.annotations),
        };
        let result = call.get_or_init(async || exec::run(&self.config, &request).await.map(Arc::new).map_err(Arc::new));
        let result = result.await.clone();
        {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            if calls.get(&key).is_some_and(|running| Arc::ptr_eq(running, &call)) {
                calls.remove(&key);
            }
        }
        let response = result?;
        let is_echo = |login: &exec::Login| account.is_some_and(|account| account.token == login.password);
        if !by_token && response.auth.values().any(is_echo) {
            return Err(ProviderError::Echo);
        }
        let duration = response.cache_duration.unwrap_or(self.config.default_cache_duration);
        self.lock_cache().insert(image, &identity(by_token), &response, duration, Instant::now());
        Ok(response)
    }

    fn lock_cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
