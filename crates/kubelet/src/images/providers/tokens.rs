//! Service account tokens for credential providers, cached until they are due for renewal.

use std::collections::BTreeMap;

use apimachinery::time::Time;
use client::Client;
use component_base::clock;
use tokio::sync::Mutex;

use crate::images::verification::AccountUse;
use crate::pod::Pod;
use crate::volumes::token::{self, Token};

/// Maximum number of tokens. The one that is renewed first makes room.
const TOKENS_MAX: usize = 1000;

/// Tokens by pod UID, service account and audience.
#[derive(Default)]
pub(super) struct Tokens(Mutex<BTreeMap<(String, AccountUse, String), Token>>);

impl Tokens {
    /// Returns a token that is bound to a pod, a cached one if it is not due for renewal.
    pub(super) async fn get(
        &self,
        client: &Client,
        pod: Pod<'_>,
        account: &AccountUse,
        audience: &str,
    ) -> Result<String, client::Error> {
        let key = (pod.uid().to_owned(), account.clone(), audience.to_owned());
        let now: Time = clock::now();
        if let Some(token) = self.0.lock().await.get(&key).filter(|token| now < token.renew_at) {
            return Ok(token.text.clone());
        }
        let token = token::request(client, pod, &account.name, audience, None, now).await?;
        let text = token.text.clone();
        let mut tokens = self.0.lock().await;
        tokens.retain(|_, token| now < token.renew_at);
        if tokens.len() >= TOKENS_MAX {
            let first = tokens.iter().min_by_key(|(_, token)| token.renew_at).map(|(key, _)| key.clone());
            first.map(|key| tokens.remove(&key));
        }
        tokens.insert(key, token);
        Ok(text)
    }
}
