//! Token cleaner: deletes expired bootstrap tokens.

use std::convert::Infallible;

use api::resources::SECRETS;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use controller::{Action, Cache, Controller, Plan, Write, kinds};

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";

/// Token cleaner. Its keys are Secrets.
pub struct TokenCleaner;

impl Controller for TokenCleaner {
    type Observed<'a> = &'a Value;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "token-cleaner-controller";
    const READS: &'static [GroupResource] = &[SECRETS];
    const WRITES: &'static [Write] = &[(SECRETS, "")];

    fn affected_keys(_: &Cache, _: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        keys.extend(is_token(object).then(|| Key::of(object)));
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<&'a Value> {
        cache.get(SECRETS, key).filter(|secret| is_token(secret))
    }

    fn plan(secret: &&Value, now: Time) -> Plan {
        match expires_at(secret) {
            None => Plan::default(),
            Some(time) if time <= now => Plan::of(Action::delete(&kinds::SECRETS, secret)),
            Some(time) => Plan { wake_at: Some(time), ..Plan::default() },
        }
    }
}

fn is_token(secret: &Value) -> bool {
    Meta::of(secret).namespace() == NAMESPACE && secret.text_at(&["type"]) == TYPE
}

/// Returns the expiration of a token; `None` if it cannot be parsed. Such a token is kept, and the authenticator
/// rejects it.
fn expires_at(secret: &Value) -> Option<Time> {
    let bytes = BASE64.decode(secret.str_at(&["data", "expiration"])?).ok()?;
    Time::parse(std::str::from_utf8(&bytes).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn expired_token_is_deleted() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        for (name, seconds) in [("old", -5i64), ("new", 60)] {
            let expiration = BASE64.encode(Time::from_unix(1_700_000_000 + seconds, 0).to_string());
            cluster.add(
                &kinds::SECRETS,
                value!({"type": TYPE, "metadata": {"namespace": NAMESPACE, "name": name}, "data": {"expiration": expiration}}),
            );
        }
        cluster.add(&kinds::SECRETS, value!({"type": TYPE, "metadata": {"namespace": NAMESPACE, "name": "lasting"}}));
        check_properties::<TokenCleaner>(&cluster, |_| false);
        let start = cluster.now;
        run_until_stable::<TokenCleaner>(&mut cluster, |_| false);
        assert_eq!(cluster.log, ["delete secrets kube-system/old", "delete secrets kube-system/new"]);
        assert_eq!(cluster.now.since(start).whole_seconds(), 60);
    }
}
