//! CSR signer: signs approved requests of the built-in Kubernetes signers, or sets their Failed condition.

use std::collections::BTreeSet;

use apimachinery::time::{Duration, Time};
use apimachinery::{Key, Value, value};
use controller::{Action, Cache, Controller, Order, Plan, SideEffect, kinds};

use crate::csr::{check, is, parse, usages};
use crate::read::{list, text};

/// Minimum lifetime of a certificate, also if expirationSeconds is shorter.
const LIFE_MIN: Duration = Duration::from_seconds(600);

/// The configured signers and the certificate lifetime.
#[derive(Clone, Debug)]
pub struct Config {
    /// The signers that have a CA in this cluster.
    pub signers: BTreeSet<&'static str>,
    /// Default and maximum lifetime of certificates.
    pub life: Duration,
}

pub struct CsrSigner;

/// A request that is approved and has no certificate.
pub struct Observation<'a> {
    request: &'a Value,
    config: &'a Config,
}

impl Controller for CsrSigner {
    type Observed<'a> = Observation<'a>;
    const NAME: &'static str = "certificatesigningrequest-signing-controller";
    const READS: &'static [&'static str] = &["certificatesigningrequests.certificates.k8s.io"];
    const WRITES: &'static [&'static str] = &["certificatesigningrequests.certificates.k8s.io/status"];

    fn affected_keys(_: &Cache, _: &str, object: &Value, keys: &mut Vec<Key>) {
        keys.push(Key::of(object));
    }

    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<Observation<'a>> {
        let config = cache.config::<Config>()?;
        let request = cache.get(Self::READS[0], key)?;
        let is_own_signer = config.signers.contains(text(request, &["spec", "signerName"]));
        let is_open = is(request, "Approved") && !is(request, "Denied") && !is(request, "Failed");
        let is_signed = !text(request, &["status", "certificate"]).is_empty();
        (is_own_signer && is_open && !is_signed).then_some(Observation { request, config })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let request = observed.request;
        // Validation rejects unparseable requests, so this one comes from a newer API server. Another signer may sign
        // it.
        let Some(x509_request) = parse(request) else {
            return Plan::waiting("the certificate request cannot be parsed");
        };
        let signer = text(request, &["spec", "signerName"]);
        if let Err(objection) = check(&x509_request, signer, &usages(request)) {
            return Plan::of(failed(request, &objection.to_string(), now));
        }
        let order = Order {
            signer: signer.to_owned(),
            request: x509_request.der,
            usages: usages(request).into_iter().map(str::to_owned).collect(),
            life: life(request, observed.config.life),
        };
        let resource = kinds::CERTIFICATE_SIGNING_REQUESTS.clone();
        Plan::of(Action::WithSideEffect {
            side_effect: SideEffect::Sign(order),
            into: &["status", "certificate"],
            then: Box::new(Action::UpdateStatus { resource, object: request.clone() }),
        })
    }
}

/// Returns the requested lifetime, clamped to [`LIFE_MIN`] and `max`.
fn life(request: &Value, max: Duration) -> Duration {
    let requested = request.at(&["spec", "expirationSeconds"]).and_then(Value::as_int);
    requested.map_or(max, |seconds| {
        let requested = Duration::from_nanos(seconds.saturating_mul(1_000_000_000));
        if requested > max { max } else { requested.max(LIFE_MIN) }
    })
}

fn failed(request: &Value, message: &str, now: Time) -> Action {
    let now = now.to_string();
    let mut conditions = list(request, &["status", "conditions"]).to_vec();
    conditions
        .push(value!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": message,
        "lastUpdateTime": (now.as_str()), "lastTransitionTime": (now.as_str())}));
    let resource = kinds::CERTIFICATE_SIGNING_REQUESTS.clone();
    Action::UpdateStatus { resource, object: request.clone() }.with(&["status", "conditions"], conditions.into())
}

#[cfg(test)]
mod tests {
    use apimachinery::patch::merge;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};
    use proptest::prelude::*;

    use super::*;
    use crate::condition;
    use crate::csr::tests::{AMBIGUOUS, OF_MASTER, OF_NODE, OF_PERSON, OF_SERVER, request};
    use crate::csr::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN};

    /// Checks the outcome for a request with these conditions: the certificate of the test signer, or the failure
    /// message.
    fn check(request: Value, conditions: &[&str], expect: &str) {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let signers = [CLIENT, KUBELET_CLIENT, KUBELET_SERVING].into();
        cluster.configure(Config { signers, life: Duration::from_seconds(24 * 3600) });
        let condition = |kind: &&str| value!({"type": (*kind), "status": "True"});
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        let request = merge::apply(request, value!({"status": {"conditions": conditions}}));
        let key = cluster.add(&kinds::CERTIFICATE_SIGNING_REQUESTS, request);
        check_properties::<CsrSigner>(&cluster, |_| false);
        run_until_stable::<CsrSigner>(&mut cluster, |_| false);
        let stored = cluster.get(&kinds::CERTIFICATE_SIGNING_REQUESTS, &key).unwrap();
        let certificate = text(stored, &["status", "certificate"]).to_owned();
        let failed = condition::find(stored, "Failed").map(|condition| text(condition, &["message"]).to_owned());
        assert_eq!(certificate + failed.as_deref().unwrap_or_default(), expect);
    }

    #[test]
    fn approved_requests_are_signed_with_a_clamped_lifetime() {
        let client = request(OF_PERSON, CLIENT, &["client auth"]);
        let lasting = |seconds: i64| merge::apply(client.clone(), value!({"spec": {"expirationSeconds": seconds}}));
        check(client.clone(), &["Approved"], "kubernetes.io/kube-apiserver-client for 24h0m0s, client auth");
        check(lasting(3600), &["Approved"], "kubernetes.io/kube-apiserver-client for 1h0m0s, client auth");
        check(lasting(1), &["Approved"], "kubernetes.io/kube-apiserver-client for 10m0s, client auth");
        check(lasting(i64::MAX), &["Approved"], "kubernetes.io/kube-apiserver-client for 24h0m0s, client auth");
        let serving = request(OF_SERVER, KUBELET_SERVING, &["digital signature", "server auth"]);
        check(serving, &["Approved"], "kubernetes.io/kubelet-serving for 24h0m0s, digital signature, server auth");
    }

    #[test]
    fn requests_that_break_signer_rules_fail_with_the_reason() {
        let check_failed = |pem, signer, expect| check(request(pem, signer, &["client auth"]), &["Approved"], expect);
        check_failed(OF_PERSON, KUBELET_CLIENT, "subject organization is not system:nodes");
        check_failed(OF_NODE, KUBELET_SERVING, "DNS or IP subjectAltName is required");
        let masters = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        check_failed(OF_MASTER, CLIENT, masters);
        check_failed(AMBIGUOUS, CLIENT, "");
        let server = request(OF_PERSON, CLIENT, &["server auth"]);
        check(server, &["Approved"], "invalid usage for client certificate: server auth");
    }

    #[test]
    fn unapproved_and_foreign_requests_are_ignored() {
        let client = request(OF_PERSON, CLIENT, &["client auth"]);
        check(client.clone(), &[], "");
        check(client.clone(), &["Approved", "Denied"], "");
        check(request(OF_PERSON, "example.org/theirs", &["client auth"]), &["Approved"], "");
        check(request(OF_PERSON, LEGACY_UNKNOWN, &["client auth"]), &["Approved"], "");
        check(request("nonsense", CLIENT, &["client auth"]), &["Approved"], "");
        check(merge::apply(client, value!({"status": {"certificate": "x"}})), &["Approved"], "x");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn properties_hold_in_generated_clusters(all in prop::collection::vec((0..3usize, 0..4usize, 0..3usize, 0..4usize), 0..4)) {
            let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
            let signers = [CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN];
            cluster.configure(Config { signers: signers.into(), life: Duration::from_seconds(3600) });
            let usages: [&[&str]; 3] = [&["client auth", "digital signature"], &["server auth", "digital signature"], &["any"]];
            let conditions = [value!([]), value!([{"type": "Approved"}]), value!([{"type": "Denied"}]),
                value!([{"type": "Approved"}, {"type": "Failed"}])];
            for (number, (pem, signer, usage, index)) in all.iter().enumerate() {
                let request = request([OF_NODE, OF_SERVER, OF_PERSON][*pem], signers[*signer], usages[*usage]);
                let status = value!({"status": {"conditions": (conditions[*index].clone())},
                    "metadata": {"name": (format!("r{number}"))}});
                cluster.add(&kinds::CERTIFICATE_SIGNING_REQUESTS, merge::apply(request, status));
            }
            check_properties::<CsrSigner>(&cluster, |_| false);
            run_until_stable::<CsrSigner>(&mut cluster, |_| false);
            for entry in cluster.of(CsrSigner::READS[0]).iter() {
                let signed = !text(&entry.value, &["status", "certificate"]).is_empty();
                let decided = signed || is(&entry.value, "Failed");
                prop_assert_eq!(decided, is(&entry.value, "Approved"));
                prop_assert!(!(signed && is(&entry.value, "Denied")));
            }
        }
    }
}
