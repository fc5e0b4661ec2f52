//! CSR cleaner: deletes old CertificateSigningRequests.

use std::convert::Infallible;

use api::resources::CERTIFICATE_SIGNING_REQUESTS;
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value};
use controller::{Action, Cache, Controller, Plan, Write, kinds};

use crate::condition;

/// Retention after a decision or an issued certificate.
const DECIDED: Duration = Duration::from_seconds(3600);
/// Retention while a decision or a certificate is pending.
const PENDING: Duration = Duration::from_seconds(24 * 3600);

pub struct CsrCleaner;

impl Controller for CsrCleaner {
    type Observed<'a> = &'a Value;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "certificatesigningrequest-cleaner-controller";
    const READS: &'static [GroupResource] = &[CERTIFICATE_SIGNING_REQUESTS];
    const WRITES: &'static [Write] = &[(CERTIFICATE_SIGNING_REQUESTS, "")];

    fn affected_keys(_: &Cache, _: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        keys.push(Key::of(object));
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<&'a Value> {
        cache.get(Self::READS[0], key)
    }

    fn plan(request: &&Value, now: Time) -> Plan {
        let ends = ends_at(request);
        if ends <= now {
            return Plan::of(Action::delete(&kinds::CERTIFICATE_SIGNING_REQUESTS, request));
        }
        Plan { wake_at: Some(ends), ..Plan::default() }
    }
}

/// Returns the time at which a request is deleted: a retention after the earliest decision, or after its creation.
fn ends_at(request: &Value) -> Time {
    let created = Meta::of(request).creation_timestamp().unwrap_or(Time::from_unix(0, 0));
    let decided = ["Approved", "Denied", "Failed"].iter().filter_map(|kind| {
        let condition = condition::find(request, kind)?;
        // An approved request without a certificate is still pending.
        let waits = *kind == "Approved" && request.text_at(&["status", "certificate"]).is_empty();
        let time = condition.str_at(&["lastUpdateTime"]).and_then(|text| Time::parse(text).ok()).unwrap_or(created);
        Some(time.plus(if waits { PENDING } else { DECIDED }))
    });
    decided.min().unwrap_or_else(|| created.plus(PENDING))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn csr_is_deleted_an_hour_after_the_decision_or_a_day_after_creation() {
        let check = |status: Value, hours: i64| {
            let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
            cluster.add(&kinds::CERTIFICATE_SIGNING_REQUESTS, value!({"metadata": {"name": "x"}, "status": status}));
            check_properties::<CsrCleaner>(&cluster, |_| false);
            let start = cluster.now;
            run_until_stable::<CsrCleaner>(&mut cluster, |_| false);
            assert!(cluster.of(CERTIFICATE_SIGNING_REQUESTS).is_empty());
            assert_eq!(cluster.now.since(start).whole_seconds(), hours * 3600);
        };
        let conditions =
            |kind: &str| value!([{"type": kind, "status": "True", "lastUpdateTime": "2023-11-14T22:13:20Z"}]);
        check(value!({}), 24);
        check(value!({"conditions": (conditions("Denied"))}), 1);
        check(value!({"conditions": (conditions("Approved"))}), 24);
        check(value!({"conditions": (conditions("Approved")), "certificate": "x"}), 1);
    }
}
