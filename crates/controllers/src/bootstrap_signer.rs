//! Bootstrap signer: signs cluster-info for joining nodes.
//!
//! The kubeconfig in kube-public/cluster-info is signed with every bootstrap token that has usage-bootstrap-signing.

use std::convert::Infallible;

use api::resources::{CONFIG_MAPS, SECRETS};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Object, Value};
use auth::bootstrap_token;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use controller::{Action, Cache, Controller, Plan, Write, kinds};

const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
/// Data key of the signed content.
const CONTENT: &str = "kubeconfig";
/// Prefix of the data keys of signatures. The token ID follows.
const PREFIX: &str = "jws-kubeconfig-";

/// Bootstrap signer. The only key is that of the ConfigMap.
pub struct BootstrapSigner;

/// The cluster-info ConfigMap, and the Secrets that may hold bootstrap tokens.
pub struct Observation<'a> {
    map: &'a Value,
    secrets: Vec<&'a Value>,
}

impl Controller for BootstrapSigner {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "bootstrap-signer-controller";
    const READS: &'static [GroupResource] = &[CONFIG_MAPS, SECRETS];
    const WRITES: &'static [Write] = &[(CONFIG_MAPS, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let is = if kind == SECRETS { is_token(object) } else { Key::of(object) == Key::new(NAMESPACE, NAME) };
        keys.extend(is.then(|| Key::new(NAMESPACE, NAME)));
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        if *key != Key::new(NAMESPACE, NAME) {
            return None;
        }
        let secrets = cache.in_namespace(SECRETS, bootstrap_token::NAMESPACE).filter(|secret| is_token(secret));
        Some(Observation { map: cache.get(CONFIG_MAPS, key)?, secrets: secrets.collect() })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let Some(content) = observed.map.str_at(&["data", CONTENT]) else {
            return Plan::waiting("cluster-info has no kubeconfig");
        };
        let before = observed.map.get("data").and_then(Value::as_object).cloned().unwrap_or_else(Object::new);
        let mut data = before.clone();
        data.retain(|key, _| !key.starts_with(PREFIX));
        let mut plan = Plan::default();
        for secret in &observed.secrets {
            let Some((id, token)) = for_signing(secret) else { continue };
            if let Some(ends) = expires_at(secret) {
                if ends <= now {
                    continue;
                }
                plan.wake(ends);
            }
            data.insert(format!("{PREFIX}{id}"), bootstrap_token::signature(content, &id, &token));
        }
        if data != before {
            let mut object = observed.map.clone();
            object.as_object_mut().expect("cached objects are JSON objects").insert("data", data);
            plan.push(Action::Update { resource: kinds::CONFIG_MAPS.clone(), object, result_event: None });
        }
        plan
    }
}

fn is_token(secret: &Value) -> bool {
    secret.text_at(&["type"]) == bootstrap_token::SECRET_TYPE
        && Meta::of(secret).namespace() == bootstrap_token::NAMESPACE
}

/// Returns ID and secret of a token that may sign. The Secret's name must end with the token ID, which is public.
fn for_signing(secret: &Value) -> Option<(String, String)> {
    let (id, token) = (data(secret, "token-id")?, data(secret, "token-secret")?);
    let named = Meta::of(secret).name().strip_prefix("bootstrap-token-")? == id;
    let usable = !token.is_empty() && data(secret, "usage-bootstrap-signing").as_deref() == Some("true");
    (named && usable).then_some((id, token))
}

/// Returns the expiration of a token. An expiration that cannot be parsed counts as expired.
fn expires_at(secret: &Value) -> Option<Time> {
    let text = data(secret, "expiration").filter(|text| !text.is_empty())?;
    Some(Time::parse(&text).unwrap_or(Time::from_unix(0, 0)))
}

fn data(secret: &Value, field: &str) -> Option<String> {
    String::from_utf8(BASE64.decode(secret.str_at(&["data", field])?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    fn token(cluster: &mut FakeCluster, id: &str, signing: &str, expiration: &str) -> Key {
        let encode = |text: &str| BASE64.encode(text);
        let data = value!({"token-id": (encode(id)), "token-secret": (encode("0123456789abcdef")),
            "usage-bootstrap-signing": (encode(signing)), "expiration": (encode(expiration))});
        let name = format!("bootstrap-token-{id}");
        let secret = value!({"type": (bootstrap_token::SECRET_TYPE), "data": data,
            "metadata": {"namespace": "kube-system", "name": name}});
        cluster.add(&kinds::SECRETS, secret)
    }

    fn signed(cluster: &FakeCluster) -> Vec<String> {
        let map = cluster.get(&kinds::CONFIG_MAPS, &Key::new(NAMESPACE, NAME)).unwrap();
        map["data"].as_object().unwrap().keys().map(str::to_owned).collect()
    }

    #[test]
    fn cluster_info_is_signed_by_every_signing_token_until_it_expires() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let map = value!({"metadata": {"namespace": NAMESPACE, "name": NAME},
            "data": {"kubeconfig": "content", "jws-kubeconfig-gone00": "x..y"}});
        cluster.add(&kinds::CONFIG_MAPS, map);
        let first = token(&mut cluster, "abcdef", "true", "");
        token(&mut cluster, "ending", "true", "2023-11-14T22:14:20Z");
        token(&mut cluster, "past00", "true", "2023-11-14T22:13:00Z");
        token(&mut cluster, "other0", "false", "");
        check_properties::<BootstrapSigner>(&cluster, |_| false);
        let mut early = cluster.clone();
        early.now = cluster.now;
        let plan = controller::decide::<BootstrapSigner>(
            &early.cache::<BootstrapSigner>(),
            &(),
            &Key::new(NAMESPACE, NAME),
            early.now,
        );
        plan.actions.iter().for_each(|action| early.execute(action).unwrap());
        assert_eq!(signed(&early), ["jws-kubeconfig-abcdef", "jws-kubeconfig-ending", "kubeconfig"]);
        run_until_stable::<BootstrapSigner>(&mut cluster, |_| false);
        assert_eq!(signed(&cluster), ["jws-kubeconfig-abcdef", "kubeconfig"], "a minute later");
        cluster.remove(&kinds::SECRETS, &first);
        run_until_stable::<BootstrapSigner>(&mut cluster, |_| false);
        assert_eq!(signed(&cluster), ["kubeconfig"]);
    }
}
