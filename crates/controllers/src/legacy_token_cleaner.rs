//! Legacy token cleaner: removes unused, auto-generated service account token Secrets.
//!
//! ```text
//!   unused for the period ──> labelled invalid-since ──> unused for another period ──> deleted
//! ```
//!
//! The API server rejects a labelled token. Using the token before it is deleted restores it.

use std::convert::Infallible;

use api::resources::{CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS};
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Patch, Plan, Preconditions, Write, kinds};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The ConfigMap with the date since which the API server records the use of tokens.
const TRACKING: (&str, &str) = ("kube-system", "kube-apiserver-legacy-service-account-token-tracking");
const DAY: Duration = Duration::from_seconds(24 * 3600);

#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Time without use before a token is labelled invalid, and again before it is deleted.
    pub period: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { period: Duration::from_seconds(365 * 24 * 3600) }
    }
}

/// Legacy token cleaner. Its keys are Secrets.
pub struct LegacyTokenCleaner;

/// A token Secret that is listed in its ServiceAccount's `secrets`.
pub struct Observation<'a> {
    secret: &'a Value,
    tracked_since: Option<Time>,
    in_use: bool,
    period: Duration,
}

impl Controller for LegacyTokenCleaner {
    type Observed<'a> = Observation<'a>;
    type Config = Config;
    type Effect = Infallible;
    const NAME: &'static str = "legacy-serviceaccount-token-cleaner-controller";
    const READS: &'static [GroupResource] = &[SECRETS, SERVICE_ACCOUNTS, PODS, CONFIG_MAPS];
    const WRITES: &'static [Write] = &[(SECRETS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            SECRETS => keys.extend(is_token(object).then(|| Key::of(object))),
            CONFIG_MAPS if Key::of(object) == Key::new(TRACKING.0, TRACKING.1) => {
                let secrets = cache.of(SECRETS).iter().filter(|it| is_token(&it.value));
                keys.extend(secrets.map(|it| it.key.clone()));
            }
            // A pod that stops using a Secret is noticed at the next daily check.
            _ => {}
        }
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Config, key: &Key) -> Option<Observation<'a>> {
        let secret = cache.get(SECRETS, key).filter(|secret| is_token(secret))?;
        let meta = Meta::of(secret);
        let account = cache.get(SERVICE_ACCOUNTS, &Key::new(meta.namespace(), meta.annotation(ACCOUNT)?))?;
        let same = meta.annotation(ACCOUNT_UID).is_none_or(|uid| uid.is_empty() || uid == Meta::of(account).uid());
        // Secrets not listed in the ServiceAccount were created by users and are kept.
        let made_by_itself = account.list_at(&["secrets"]).iter().any(|it| it.text_at(&["name"]) == meta.name());
        if meta.is_deleting() || !same || !made_by_itself {
            return None;
        }
        let tracking = cache.get(CONFIG_MAPS, &Key::new(TRACKING.0, TRACKING.1));
        Some(Observation {
            secret,
            // The first day was tracked only partially.
            tracked_since: tracking.and_then(|map| day(map.str_at(&["data", "since"])?)).map(|day| day.plus(DAY)),
            in_use: cache.in_namespace(PODS, &key.namespace).any(|pod| uses(pod, meta.name())),
            period: config.period,
        })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let secret = observed.secret;
        let meta = Meta::of(secret);
        let Some(tracked_since) = observed.tracked_since else {
            return Plan::waiting("the API server does not track the use of tokens");
        };
        let created = meta.creation_timestamp().unwrap_or(now);
        let last_used = match meta.label(LAST_USED).map(day) {
            None => created,
            Some(Some(last)) => last.plus(DAY),
            Some(None) => return Plan::waiting("the last-used label is invalid"),
        };
        let unused_at = created.max(last_used).max(tracked_since).plus(observed.period);
        if now < unused_at {
            return Plan { wake_at: Some(unused_at), ..Plan::default() };
        }
        if observed.in_use {
            return Plan { wake_at: Some(now.plus(DAY)), ..Plan::waiting("a pod uses the Secret") };
        }
        let Some(invalid_since) = meta.label(INVALID_SINCE).and_then(day) else {
            let today = now.to_string()[..10].to_owned();
            return Plan::of(Action::Patch {
                resource: kinds::SECRETS.clone(),
                key: Key::of(secret),
                subresource: "",
                only_if: Preconditions::same(secret),
                patch: Patch::Merge(
                    value!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": today}}}),
                ),
            });
        };
        let goes_at = invalid_since.plus(DAY).plus(observed.period);
        if now < goes_at {
            return Plan { wake_at: Some(goes_at), ..Plan::default() };
        }
        Plan::of(Action::Delete {
            resource: kinds::SECRETS.clone(),
            key: Key::of(secret),
            // The precondition fails if the token is being used now, because the API server records the use in the
            // Secret.
            only_if: Preconditions::unchanged(secret),
            propagation: None,
            grace_seconds: None,
            result_event: None,
        })
    }
}

fn is_token(secret: &Value) -> bool {
    secret.text_at(&["type"]) == TYPE
}

/// Parses a date as its first second, UTC.
fn day(text: &str) -> Option<Time> {
    Time::parse(&format!("{text}T00:00:00Z")).ok()
}

/// Whether a pod refers to the Secret.
fn uses(pod: &Value, secret: &str) -> bool {
    auth::node::secrets_of_pod(pod).any(|name| name == secret)
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties_with, run_until_stable_with};
    use proptest::prelude::*;

    use super::*;

    const PERIOD: i64 = 365;

    const fn config() -> Config {
        Config { period: Duration::from_seconds(PERIOD * 24 * 3600) }
    }

    fn new_cluster(labels: &Value) -> FakeCluster {
        let mut cluster = FakeCluster::new(Time::parse("2023-01-01T12:00:00Z").unwrap());
        cluster.add(
            &kinds::CONFIG_MAPS,
            value!({"metadata": {"namespace": (TRACKING.0), "name": (TRACKING.1)}, "data": {"since": "2022-01-01"}}),
        );
        for name in ["x", "y"] {
            cluster.add(
                &kinds::SERVICE_ACCOUNTS,
                value!({"metadata": {"namespace": "a", "name": name}, "secrets": [{"name": "made"}]}),
            );
        }
        for (name, account) in [("made", "x"), ("by-hand", "x")] {
            cluster.add(
                &kinds::SECRETS,
                value!({"type": TYPE, "metadata": {"namespace": "a", "name": name, "labels": (labels.clone()),
                    "annotations": {"kubernetes.io/service-account.name": account}}}),
            );
        }
        cluster
    }

    fn check(cluster: &mut FakeCluster, expect: &[&str], days: i64) {
        check_properties_with::<LegacyTokenCleaner>(&config(), cluster, |_| false);
        let start = cluster.now;
        run_until_stable_with::<LegacyTokenCleaner>(&config(), cluster, |_| false);
        assert_eq!(cluster.log, expect);
        assert_eq!(cluster.now.since(start).whole_seconds() / (24 * 3600), days);
    }

    const MARK: &str =
        r#"patch secrets a/made {"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2024-01-01"}}}"#;

    #[test]
    fn unused_token_is_invalidated_and_deleted_after_another_period() {
        let late =
            r#"patch secrets a/made {"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2024-06-02"}}}"#;
        check(&mut new_cluster(&value!({})), &[MARK, "delete secrets a/made"], 2 * PERIOD);
        let used = value!({"kubernetes.io/legacy-token-last-used": "2023-06-02"});
        check(&mut new_cluster(&used), &[late, "delete secrets a/made"], 2 * PERIOD + 153);
    }

    #[test]
    fn used_tokens_and_unparseable_dates_are_not_deleted() {
        let mut used = new_cluster(&value!({}));
        let volumes = value!([{"name": "v", "secret": {"secretName": "made"}}]);
        used.add(&kinds::PODS, value!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"volumes": volumes}}));
        run_until_stable_with::<LegacyTokenCleaner>(&config(), &mut used, |_| false);
        assert_eq!(used.log, [""; 0]);
        let mut odd = new_cluster(&value!({"kubernetes.io/legacy-token-last-used": "yesterday"}));
        run_until_stable_with::<LegacyTokenCleaner>(&config(), &mut odd, |_| false);
        assert_eq!(odd.log, [""; 0]);
        let mut untracked = new_cluster(&value!({}));
        untracked.remove(&kinds::CONFIG_MAPS, &Key::new(TRACKING.0, TRACKING.1));
        run_until_stable_with::<LegacyTokenCleaner>(&config(), &mut untracked, |_| false);
        assert_eq!(untracked.log, [""; 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

        #[test]
        fn properties_hold_in_generated_clusters(used in prop::option::of("20(2[0-9])-0[1-9]-[01][1-9]|never"), mounted: bool) {
            let labels = used.as_ref().map_or_else(Value::object, |day| value!({"kubernetes.io/legacy-token-last-used": (day.as_str())}));
            let mut cluster = new_cluster(&labels);
            if mounted {
                let volumes = value!([{"name": "v", "secret": {"secretName": "made"}}]);
                cluster.add(&kinds::PODS, value!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"volumes": volumes}}));
            }
            check_properties_with::<LegacyTokenCleaner>(&config(), &cluster, |_| false);
            run_until_stable_with::<LegacyTokenCleaner>(&config(), &mut cluster, |_| false);
            let stays = mounted || used.as_deref().is_some_and(|used| day(used).is_none());
            prop_assert_eq!(cluster.get(&kinds::SECRETS, &Key::new("a", "made")).is_some(), stays);
            prop_assert!(cluster.get(&kinds::SECRETS, &Key::new("a", "by-hand")).is_some());
        }
    }
}
