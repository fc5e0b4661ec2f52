//! Service account tokens of projected volumes: requested, cached and renewed before they expire.

use std::collections::BTreeMap;

use apimachinery::time::{Duration, Time};
use apimachinery::{Value, value};
use client::{Client, Target, WriteOptions};
use controller::kinds;

use super::VolumeError;
use crate::pod::Pod;

/// Share of its lifetime after which a token is renewed, in percent. `RENEW_MAX` limits the time until renewal.
const RENEW_PERCENT: i64 = 80;
const RENEW_MAX: Duration = Duration::from_seconds(24 * 3600);
/// Minimum interval between renewals, against clock differences between this host and the server.
const RENEW_MIN: Duration = Duration::from_seconds(60);

/// The tokens of one pod, by volume and path.
#[derive(Clone, Debug, Default)]
pub struct Tokens(BTreeMap<(String, String), Token>);

/// A service account token.
#[derive(Clone)]
pub(crate) struct Token {
    pub text: String,
    pub renew_at: Time,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Token").field("renew_at", &self.renew_at).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Returns the token for a file of a volume.
    pub fn token(&self, volume: &str, path: &str) -> Option<&str> {
        self.0.get(&(volume.to_owned(), path.to_owned())).map(|token| token.text.as_str())
    }

    /// Returns the time of the next renewal.
    pub fn refresh_at(&self) -> Option<Time> {
        self.0.values().map(|token| token.renew_at).min()
    }

    /// Requests the tokens of a volume that are missing or due for renewal.
    pub async fn renew(&mut self, client: &Client, pod: Pod<'_>, volume: &Value, now: Time) -> Result<(), VolumeError> {
        let name = volume.str_at(&["name"]).unwrap_or_default();
        for source in volume["projected"]["sources"].as_array().unwrap_or_default() {
            let Some(source) = source.get("serviceAccountToken").filter(|source| !source.is_null()) else { continue };
            let key = (name.to_owned(), source.str_at(&["path"]).unwrap_or_default().to_owned());
            if self.0.get(&key).is_some_and(|token| now < token.renew_at) {
                continue;
            }
            let account =
                pod.spec().str_at(&["serviceAccountName"]).filter(|name| !name.is_empty()).unwrap_or("default");
            let audience = source.str_at(&["audience"]).unwrap_or_default();
            let seconds = source["expirationSeconds"].as_int();
            match request(client, pod, account, audience, seconds, now).await {
                Ok(token) => drop(self.0.insert(key, token)),
                // The previous token is still valid for some time.
                Err(error) if self.0.contains_key(&key) => {
                    tracing::warn!(pod = pod.described(), error = %error, "failed to renew a service account token");
                    if let Some(token) = self.0.get_mut(&key) {
                        token.renew_at = now.plus(RENEW_MIN);
                    }
                }
                Err(error) => {
                    return Err(VolumeError::Api { what: "failed to fetch token".to_owned(), source: Box::new(error) });
                }
            }
        }
        Ok(())
    }
}

/// Requests a token of a service account that is bound to a pod, for an hour by default.
pub(crate) async fn request(
    client: &Client,
    pod: Pod<'_>,
    account: &str,
    audience: &str,
    expiration_seconds: Option<i64>,
    now: Time,
) -> Result<Token, client::Error> {
    let audiences: Vec<Value> = Some(audience).filter(|one| !one.is_empty()).map(Value::from).into_iter().collect();
    let seconds = expiration_seconds.unwrap_or(3600);
    let body = value!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "audiences": audiences, "expirationSeconds": seconds,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": (pod.name()), "uid": (pod.uid())}}});
    let target = Target::named(&kinds::SERVICE_ACCOUNTS, pod.namespace(), account).subresource("token");
    let response = client.create(&target, &body, &WriteOptions::default()).await?;
    let text = response.str_at(&["status", "token"]).unwrap_or_default().to_owned();
    let ends = response.str_at(&["status", "expirationTimestamp"]).and_then(|text| Time::parse(text).ok());
    let lifetime = Duration::from_seconds(response["spec"]["expirationSeconds"].as_int().unwrap_or(seconds));
    let left = ends.map_or(lifetime, |ends| ends.since(now));
    Ok(Token { text, renew_at: now.plus(renew_after(lifetime.max(Duration::from_seconds(seconds)), left)) })
}

/// Returns the time until renewal from the requested and the remaining lifetime. The server may grant a longer lifetime
/// than requested, which is ignored.
fn renew_after(lifetime: Duration, left: Duration) -> Duration {
    Duration::from_nanos(left.min(lifetime).nanos() / 100 * RENEW_PERCENT).min(RENEW_MAX).max(RENEW_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_renewed_after_80_percent_of_its_lifetime_or_a_day() {
        let check = |lifetime: i64, left: i64, expect: i64| {
            let wait = renew_after(Duration::from_seconds(lifetime), Duration::from_seconds(left));
            assert_eq!(wait, Duration::from_seconds(expect), "{lifetime} {left}");
        };
        check(600, 600, 480);
        check(3600, 3600, 2880);
        check(3600, 365 * 24 * 3600, 2880);
        check(48 * 3600, 48 * 3600, 24 * 3600);
        check(365 * 24 * 3600, 365 * 24 * 3600, 24 * 3600);
        // This host's clock is ahead of the server's, by less or by more than the token's lifetime.
        check(600, 300, 240);
        check(600, 10, 60);
        check(600, -50, 60);
    }
}
