//! CSR signer: signs approved requests of the built-in Kubernetes signers, or sets their Failed condition.

use std::collections::BTreeSet;
use std::fmt;

use api::resources::CERTIFICATE_SIGNING_REQUESTS;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Plan, Write, kinds};

use crate::csr::{check, is, parse, usages};

/// Minimum lifetime of a certificate, also if expirationSeconds is shorter.
const LIFE_MIN: Duration = Duration::from_seconds(600);

/// The configured signers and the certificate lifetime. Without signers nothing is signed.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The signers that have a CA in this cluster.
    pub signers: BTreeSet<&'static str>,
    /// Default and maximum lifetime of certificates.
    pub life: Duration,
}

/// Signs a certificate. The decision to sign is already made. The result is the PEM certificate in base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// The signer, whose CA signs: `kubernetes.io/kubelet-serving`.
    pub signer: String,
    /// The certificate request in DER.
    pub request: Vec<u8>,
    /// The usages as in the API: `client auth`.
    pub usages: Vec<String>,
    /// The lifetime; shorter if the CA expires before.
    pub life: Duration,
}

impl fmt::Display for Sign {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sign as {} for {}, {}", self.signer, self.life, self.usages.join(", "))
    }
}

pub struct CsrSigner;

/// A request that is approved and has no certificate.
pub struct Observation<'a> {
    request: &'a Value,
    config: &'a Config,
}

impl Controller for CsrSigner {
    type Observed<'a> = Observation<'a>;
    type Config = Config;
    type Effect = Sign;
    const NAME: &'static str = "certificatesigningrequest-signing-controller";
    const READS: &'static [GroupResource] = &[CERTIFICATE_SIGNING_REQUESTS];
    const WRITES: &'static [Write] = &[(CERTIFICATE_SIGNING_REQUESTS, "status")];

    fn affected_keys(_: &Cache, _: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        keys.push(Key::of(object));
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Config, key: &Key) -> Option<Observation<'a>> {
        let request = cache.get(Self::READS[0], key)?;
        let is_own_signer = config.signers.contains(request.text_at(&["spec", "signerName"]));
        let is_open = is(request, "Approved") && !is(request, "Denied") && !is(request, "Failed");
        let is_signed = !request.text_at(&["status", "certificate"]).is_empty();
        (is_own_signer && is_open && !is_signed).then_some(Observation { request, config })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan<Sign> {
        let request = observed.request;
        // Validation rejects unparseable requests, so this one comes from a newer API server. Another signer may sign
        // it.
        let Some(x509_request) = parse(request) else {
            return Plan::waiting("the certificate request cannot be parsed");
        };
        let signer = request.text_at(&["spec", "signerName"]);
        if let Err(objection) = check(&x509_request, signer, &usages(request)) {
            return Plan::of(failed(request, &objection.to_string(), now));
        }
        let sign = Sign {
            signer: signer.to_owned(),
            request: x509_request.der,
            usages: usages(request).into_iter().map(str::to_owned).collect(),
            life: life(request, observed.config.life),
        };
        let resource = kinds::CERTIFICATE_SIGNING_REQUESTS.clone();
        let update = Action::UpdateStatus { resource, object: request.clone() };
        Plan::after(sign, &["status", "certificate"], update)
    }
}

/// Returns the requested lifetime, clamped to [`LIFE_MIN`] and `max`.
fn life(request: &Value, max: Duration) -> Duration {
    let requested = request.int_at(&["spec", "expirationSeconds"]);
    requested.map_or(max, |seconds| {
        let requested = Duration::from_nanos(seconds.saturating_mul(1_000_000_000));
        if requested > max { max } else { requested.max(LIFE_MIN) }
    })
}

fn failed(request: &Value, message: &str, now: Time) -> Action {
    let now = now.to_string();
    let mut conditions = request.list_at(&["status", "conditions"]).to_vec();
    conditions
        .push(value!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": message,
        "lastUpdateTime": (now.as_str()), "lastTransitionTime": (now.as_str())}));
    let resource = kinds::CERTIFICATE_SIGNING_REQUESTS.clone();
    Action::UpdateStatus { resource, object: request.clone() }.with(&["status", "conditions"], conditions.into())
}

#[cfg(test)]
mod tests {
    use apimachinery::patch::merge;
    use controller::testing::{FakeCluster, check_properties_with, run_until_stable_with};
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
        let config = Config { signers, life: Duration::from_seconds(24 * 3600) };
        let condition = |kind: &&str| value!({"type": (*kind), "status": "True"});
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        let request = merge::apply(request, value!({"status": {"conditions": conditions}}));
        let key = cluster.add(&kinds::CERTIFICATE_SIGNING_REQUESTS, request);
        check_properties_with::<CsrSigner>(&config, &cluster, |_| false);
        run_until_stable_with::<CsrSigner>(&config, &mut cluster, |_| false);
        let stored = cluster.get(&kinds::CERTIFICATE_SIGNING_REQUESTS, &key).unwrap();
        let certificate = stored.text_at(&["status", "certificate"]).to_owned();
        let failed = condition::find(stored, "Failed").map(|condition| condition.text_at(&["message"]).to_owned());
        assert_eq!(certificate + failed.as_deref().unwrap_or_default(), expect);
    }

    #[test]
    fn approved_requests_are_signed_with_a_clamped_lifetime() {
        let client = request(OF_PERSON, CLIENT, &["client auth"]);
        let lasting = |seconds: i64| merge::apply(client.clone(), value!({"spec": {"expirationSeconds": seconds}}));
        check(client.clone(), &["Approved"], "sign as kubernetes.io/kube-apiserver-client for 24h0m0s, client auth");
        check(lasting(3600), &["Approved"], "sign as kubernetes.io/kube-apiserver-client for 1h0m0s, client auth");
        check(lasting(1), &["Approved"], "sign as kubernetes.io/kube-apiserver-client for 10m0s, client auth");
        check(lasting(i64::MAX), &["Approved"], "sign as kubernetes.io/kube-apiserver-client for 24h0m0s, client auth");
        let serving = request(OF_SERVER, KUBELET_SERVING, &["digital signature", "server auth"]);
        check(
            serving,
            &["Approved"],
            "sign as kubernetes.io/kubelet-serving for 24h0m0s, digital signature, server auth",
        );
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
            let config = Config { signers: signers.into(), life: Duration::from_seconds(3600) };
            let usages: [&[&str]; 3] = [&["client auth", "digital signature"], &["server auth", "digital signature"], &["any"]];
            let conditions = [value!([]), value!([{"type": "Approved"}]), value!([{"type": "Denied"}]),
                value!([{"type": "Approved"}, {"type": "Failed"}])];
            for (number, (pem, signer, usage, index)) in all.iter().enumerate() {
                let request = request([OF_NODE, OF_SERVER, OF_PERSON][*pem], signers[*signer], usages[*usage]);
                let status = value!({"status": {"conditions": (conditions[*index].clone())},
                    "metadata": {"name": (format!("r{number}"))}});
                cluster.add(&kinds::CERTIFICATE_SIGNING_REQUESTS, merge::apply(request, status));
            }
            check_properties_with::<CsrSigner>(&config, &cluster, |_| false);
            run_until_stable_with::<CsrSigner>(&config, &mut cluster, |_| false);
            for entry in cluster.of(CsrSigner::READS[0]).iter() {
                let signed = !entry.value.text_at(&["status", "certificate"]).is_empty();
                let decided = signed || is(&entry.value, "Failed");
                prop_assert_eq!(decided, is(&entry.value, "Approved"));
                prop_assert!(!(signed && is(&entry.value, "Denied")));
            }
        }
    }
}
