//! Root CA publisher: publishes the API server's CA certificates in every namespace.

use std::convert::Infallible;

use api::resources::{CONFIG_MAPS, NAMESPACES};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Plan, Write, kinds};

use crate::serviceaccount::is_active;

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
    internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// CA certificates in PEM. Without a configuration nothing is published.
#[derive(Clone, Debug)]
pub struct Config(pub String);

/// Root CA publisher. Its keys are namespaces.
pub struct RootCaPublisher;

/// A namespace with its existing ConfigMap and the desired certificates.
pub struct Observation<'a> {
    namespace: &'a Value,
    published: Option<&'a Value>,
    certificates: &'a str,
}

impl Controller for RootCaPublisher {
    type Observed<'a> = Observation<'a>;
    type Config = Option<Config>;
    type Effect = Infallible;
    const NAME: &'static str = "root-ca-certificate-publisher-controller";
    const READS: &'static [GroupResource] = &[NAMESPACES, CONFIG_MAPS];
    const WRITES: &'static [Write] = &[(CONFIG_MAPS, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            CONFIG_MAPS if meta.name() != NAME => {}
            CONFIG_MAPS => keys.push(Key::cluster(meta.namespace())),
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Option<Config>, key: &Key) -> Option<Observation<'a>> {
        Some(Observation {
            namespace: cache.get(NAMESPACES, key)?,
            published: cache.get(CONFIG_MAPS, &Key::new(key.name.clone(), NAME)),
            certificates: &config.as_ref()?.0,
        })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        if !is_active(observed.namespace) {
            return Plan::default();
        }
        let data = value!({"ca.crt": (observed.certificates)});
        let resource = kinds::CONFIG_MAPS.clone();
        let Some(published) = observed.published else {
            let object = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": {"namespace": (Meta::of(observed.namespace).name()), "name": NAME,
                    "annotations": {"kubernetes.io/description": TEXT}}});
            return Plan::of(Action::Create { resource, object, result_event: None });
        };
        if published.get("data") == Some(&data) && Meta::of(published).annotation(DESCRIPTION).is_some() {
            return Plan::default();
        }
        let mut object = published.clone();
        if let Some(object) = object.as_object_mut() {
            object.insert("data", data);
        }
        if let Some(mut meta) = MetaMut::of(&mut object) {
            meta.set_annotation(DESCRIPTION, TEXT);
        }
        Plan::of(Action::Update { resource, object, result_event: None })
    }
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties_with, run_until_stable_with};

    use super::*;

    #[test]
    fn changed_config_map_is_restored() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let config = Some(Config("PEM".into()));
        cluster.add(&kinds::NAMESPACES, value!({"metadata": {"name": "a"}}));
        cluster.add(&kinds::NAMESPACES, value!({"metadata": {"name": "b"}}));
        cluster.add(&kinds::CONFIG_MAPS, value!({"metadata": {"namespace": "b", "name": NAME}, "data": {"x": "y"}}));
        check_properties_with::<RootCaPublisher>(&config, &cluster, |_| false);
        run_until_stable_with::<RootCaPublisher>(&config, &mut cluster, |_| false);
        assert_eq!(cluster.log, ["create configmaps a/kube-root-ca.crt", "update configmaps b/kube-root-ca.crt"]);
        for entry in cluster.of(CONFIG_MAPS).iter() {
            assert_eq!(entry.value["data"], value!({"ca.crt": "PEM"}));
        }
    }
}
