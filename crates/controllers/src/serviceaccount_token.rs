//! Service account token Secrets: adds tokens to them, and deletes those whose ServiceAccount was deleted.

use std::convert::Infallible;
use std::sync::Arc;

use api::resources::{SECRETS, SERVICE_ACCOUNTS};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Object, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use controller::{Action, Cache, Controller, Plan, Write, kinds};

const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
/// Delay before deletion, because a Secret may be observed before its ServiceAccount.
const TIMEOUT: Duration = Duration::from_seconds(10);

/// Signs a token for namespace, ServiceAccount, its UID and the Secret.
pub type Sign = Arc<dyn Fn(&str, &str, &str, &str) -> Option<String> + Send + Sync>;

/// The contents of token Secrets. Without a configuration no Secret is changed.
#[derive(Clone)]
pub struct Config {
    pub sign: Sign,
    /// CA certificates of the API server in PEM; empty for none.
    pub root_certificates: String,
}

/// Token controller. Its keys are Secrets.
pub struct ServiceAccountToken;

/// A token Secret and its ServiceAccount.
pub struct Observation<'a> {
    secret: &'a Value,
    account: Option<&'a Value>,
    config: &'a Config,
}

impl Controller for ServiceAccountToken {
    type Observed<'a> = Observation<'a>;
    type Config = Option<Config>;
    type Effect = Infallible;
    const NAME: &'static str = "serviceaccount-token-controller";
    const READS: &'static [GroupResource] = &[SECRETS, SERVICE_ACCOUNTS];
    const WRITES: &'static [Write] = &[(SECRETS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        if kind == SECRETS {
            keys.extend(is_for_token(object).then(|| Key::of(object)));
            return;
        }
        let meta = Meta::of(object);
        let named = |secret: &Value| is_for_token(secret) && Meta::of(secret).annotation(NAME) == Some(meta.name());
        let secrets = cache.of(SECRETS).in_namespace(meta.namespace());
        keys.extend(secrets.filter(|it| named(&it.value)).map(|it| it.key.clone()));
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Option<Config>, key: &Key) -> Option<Observation<'a>> {
        let secret = cache.get(SECRETS, key).filter(|secret| is_for_token(secret))?;
        let name = Meta::of(secret).annotation(NAME)?;
        let account = cache.get(SERVICE_ACCOUNTS, &Key::new(key.namespace.clone(), name));
        Some(Observation { secret, account, config: config.as_ref()? })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let secret = observed.secret;
        let meta = Meta::of(secret);
        if meta.is_deleting() {
            return Plan::default();
        }
        let same = |account: &&Value| meta.annotation(UID).is_none_or(|uid| uid == Meta::of(account).uid());
        match observed.account.filter(same) {
            Some(account) => filled(secret, account, observed.config),
            None => {
                let until = meta.creation_timestamp().unwrap_or(now).plus(TIMEOUT);
                if meta.annotation(UID).is_none() && until > now {
                    return Plan { wake_at: Some(until), ..Plan::waiting("the ServiceAccount does not exist") };
                }
                Plan::of(Action::delete(&kinds::SECRETS, secret))
            }
        }
    }
}

fn is_for_token(secret: &Value) -> bool {
    secret.text_at(&["type"]) == TYPE
}

fn filled(secret: &Value, account: &Value, config: &Config) -> Plan {
    let (of_secret, of_account) = (Meta::of(secret), Meta::of(account));
    let mut data = secret.get("data").and_then(Value::as_object).cloned().unwrap_or_else(Object::new);
    let before = data.clone();
    if !config.root_certificates.is_empty() {
        data.insert("ca.crt", BASE64.encode(&config.root_certificates));
    }
    data.insert("namespace", BASE64.encode(of_secret.namespace()));
    if data.get("token").and_then(Value::as_str).is_none_or(str::is_empty) {
        let signed = (config.sign)(of_secret.namespace(), of_account.name(), of_account.uid(), of_secret.name());
        let Some(token) = signed else { return Plan::waiting("failed to sign the token") };
        data.insert("token", BASE64.encode(token));
    }
    if data == before && of_secret.annotation(UID) == Some(of_account.uid()) {
        return Plan::default();
    }
    let mut object = secret.clone();
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.set_annotation(UID, of_account.uid());
    }
    object.as_object_mut().expect("cached objects are JSON objects").insert("data", data);
    Plan::of(Action::Update { resource: kinds::SECRETS.clone(), object, result_event: None })
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties_with, run_until_stable_with};

    use super::*;

    #[test]
    fn token_secret_is_filled_and_deleted_with_its_service_account() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let sign: Sign = Arc::new(|namespace, name, _, secret| Some(format!("{namespace}/{name}/{secret}")));
        let config = Some(Config { sign, root_certificates: "PEM".into() });
        let account = cluster.add(&kinds::SERVICE_ACCOUNTS, value!({"metadata": {"namespace": "a", "name": "x"}}));
        for (secret, account) in [("s", "x"), ("nobodys", "y")] {
            cluster.add(
                &kinds::SECRETS,
                value!({"type": TYPE, "metadata": {"namespace": "a", "name": secret,
                    "annotations": {"kubernetes.io/service-account.name": account}}}),
            );
        }
        cluster.add(&kinds::SECRETS, value!({"type": "Opaque", "metadata": {"namespace": "a", "name": "other"}}));
        check_properties_with::<ServiceAccountToken>(&config, &cluster, |_| false);
        run_until_stable_with::<ServiceAccountToken>(&config, &mut cluster, |_| false);
        let filled = cluster.get(&kinds::SECRETS, &Key::new("a", "s")).unwrap();
        let expect = r#"{"ca.crt":"UEVN","namespace":"YQ==","token":"YS94L3M="}"#;
        assert_eq!(filled["data"].to_string(), expect);
        assert!(cluster.get(&kinds::SECRETS, &Key::new("a", "nobodys")).is_none());
        cluster.remove(&kinds::SERVICE_ACCOUNTS, &account);
        run_until_stable_with::<ServiceAccountToken>(&config, &mut cluster, |_| false);
        assert_eq!(cluster.of(SECRETS).len(), 1);
    }
}
