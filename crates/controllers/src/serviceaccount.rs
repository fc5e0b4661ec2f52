//! ServiceAccount controller: creates the ServiceAccount `default` in every namespace.

use std::convert::Infallible;

use api::resources::{NAMESPACES, SERVICE_ACCOUNTS};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Plan, Write, kinds};

const NAME: &str = "default";

/// ServiceAccount controller. Its keys are namespaces.
pub struct ServiceAccount;

/// A namespace, and whether its default ServiceAccount exists.
pub struct Observation<'a> {
    namespace: &'a Value,
    has_account: bool,
}

impl Controller for ServiceAccount {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "serviceaccount-controller";
    const READS: &'static [GroupResource] = &[NAMESPACES, SERVICE_ACCOUNTS];
    const WRITES: &'static [Write] = &[(SERVICE_ACCOUNTS, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            SERVICE_ACCOUNTS if meta.name() != NAME => {}
            SERVICE_ACCOUNTS => keys.push(Key::cluster(meta.namespace())),
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let namespace = cache.get(NAMESPACES, key)?;
        let has_account = cache.get(SERVICE_ACCOUNTS, &Key::new(key.name.clone(), NAME)).is_some();
        Some(Observation { namespace, has_account })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        if observed.has_account || !is_active(observed.namespace) {
            return Plan::default();
        }
        let namespace = Meta::of(observed.namespace).name();
        let object = value!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"namespace": namespace, "name": NAME}});
        Plan::of(Action::Create { resource: kinds::SERVICE_ACCOUNTS.clone(), object, result_event: None })
    }
}

/// Whether a namespace accepts new objects.
pub fn is_active(namespace: &Value) -> bool {
    !Meta::of(namespace).is_deleting() && namespace.str_at(&["status", "phase"]) != Some("Terminating")
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn every_active_namespace_has_a_default_service_account() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        cluster.add(&kinds::NAMESPACES, value!({"metadata": {"name": "a"}}));
        let going = value!({"metadata": {"name": "b"}, "status": {"phase": "Terminating"}});
        cluster.add(&kinds::NAMESPACES, going);
        check_properties::<ServiceAccount>(&cluster, |_| false);
        run_until_stable::<ServiceAccount>(&mut cluster, |_| false);
        assert_eq!(cluster.log, ["create serviceaccounts a/default"]);
        cluster.remove(&kinds::SERVICE_ACCOUNTS, &Key::new("a", NAME));
        run_until_stable::<ServiceAccount>(&mut cluster, |_| false);
        assert_eq!(cluster.of(SERVICE_ACCOUNTS).len(), 1);
    }
}
