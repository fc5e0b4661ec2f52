//! ClusterTrustBundle publisher: publishes the root certificates of the API server's serving certificate.

use std::convert::Infallible;

use api::resources::{CLUSTER_TRUST_BUNDLES, NAMESPACES};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use aws_lc_rs::digest;
use controller::{Action, Cache, Controller, Plan, Write, kinds};

/// The signer of the bundle.
const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// The only key: a namespace that exists in every cluster, so that the controller runs before a bundle exists.
const KEY: &str = "kube-system";

/// Root certificates in PEM. If empty, nothing is published.
#[derive(Clone, Debug, Default)]
pub struct Config(pub String);

pub struct TrustBundlePublisher;

/// The published bundles of the signer, and the desired certificates.
pub struct Observation<'a> {
    bundles: Vec<&'a Value>,
    certificates: &'a str,
}

impl Controller for TrustBundlePublisher {
    type Observed<'a> = Observation<'a>;
    type Config = Config;
    type Effect = Infallible;
    const NAME: &'static str = "kube-apiserver-serving-clustertrustbundle-publisher-controller";
    const READS: &'static [GroupResource] = &[NAMESPACES, CLUSTER_TRUST_BUNDLES];
    const WRITES: &'static [Write] = &[(CLUSTER_TRUST_BUNDLES, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let affected_keys = if kind == NAMESPACES { Meta::of(object).name() == KEY } else { is_own_bundle(object) };
        keys.extend(affected_keys.then(|| Key::cluster(KEY)));
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Config, key: &Key) -> Option<Observation<'a>> {
        let certificates = Some(config.0.as_str()).filter(|pem| !pem.is_empty())?;
        let bundles =
            cache.of(Self::READS[1]).iter().map(|it| &it.value).filter(|bundle| is_own_bundle(bundle)).collect();
        (key.name == KEY).then_some(Observation { bundles, certificates })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let resource = kinds::CLUSTER_TRUST_BUNDLES.clone();
        let name = name_of(observed.certificates);
        let spec = value!({"signerName": SIGNER, "trustBundle": (observed.certificates)});
        let mut plan = Plan::default();
        match observed.bundles.iter().find(|bundle| Meta::of(bundle).name() == name) {
            None => {
                let object = value!({"apiVersion": (resource.api_version()), "kind": "ClusterTrustBundle",
                    "metadata": {"name": name}, "spec": spec});
                plan.push(Action::Create { resource, object, result_event: None });
            }
            Some(bundle) if bundle.get("spec") != Some(&spec) => {
                let object = Value::clone(bundle);
                plan.push(Action::Update { resource, object, result_event: None }.with(&["spec"], spec));
            }
            // Old bundles are deleted only after the new one exists.
            Some(_) => {
                let old = observed.bundles.iter().filter(|bundle| Meta::of(bundle).name() != name);
                plan.actions.extend(old.map(|bundle| Action::delete(&resource, bundle)));
            }
        }
        plan
    }
}

fn is_own_bundle(bundle: &Value) -> bool {
    bundle.text_at(&["spec", "signerName"]) == SIGNER
}

/// Returns a name derived from the content, so that two controller managers with different roots do not overwrite each
/// other.
fn name_of(certificates: &str) -> String {
    let hash = digest::digest(&digest::SHA256, certificates.as_bytes());
    let hex: String = hash.as_ref()[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{hex}", SIGNER.replace('/', ":"))
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties_with, run_until_stable_with};

    use super::*;

    #[test]
    fn current_roots_are_published_and_old_bundles_deleted() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let config = Config("new".into());
        cluster.add(&kinds::NAMESPACES, value!({"metadata": {"name": "kube-system"}}));
        for (name, signer) in [("kubernetes.io:kube-apiserver-serving:old", SIGNER), ("other", "example.org/x")] {
            cluster.add(
                &kinds::CLUSTER_TRUST_BUNDLES,
                value!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": "old"}}),
            );
        }
        check_properties_with::<TrustBundlePublisher>(&config, &cluster, |_| false);
        run_until_stable_with::<TrustBundlePublisher>(&config, &mut cluster, |_| false);
        let name = "kubernetes.io:kube-apiserver-serving:11507a0e2f5e69d5dfa40a62";
        let made = format!("create clustertrustbundles.certificates.k8s.io {name}");
        let deletion = "delete clustertrustbundles.certificates.k8s.io kubernetes.io:kube-apiserver-serving:old";
        assert_eq!(cluster.log, [made.as_str(), deletion]);
        cluster.change(&kinds::CLUSTER_TRUST_BUNDLES, &Key::cluster(name), |bundle| {
            bundle.get_mut("spec").and_then(Value::as_object_mut).unwrap().insert("trustBundle", "evil");
        });
        run_until_stable_with::<TrustBundlePublisher>(&config, &mut cluster, |_| false);
        let stored = cluster.get(&kinds::CLUSTER_TRUST_BUNDLES, &Key::cluster(name)).unwrap();
        assert_eq!(stored.text_at(&["spec", "trustBundle"]), "new");
    }
}
