//! ServiceCIDR controller: sets the Ready condition and keeps a deleted ServiceCIDR while its addresses are in use.

use std::convert::Infallible;

use api::resources::{IP_ADDRESSES, SERVICE_CIDRS};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Plan, Write, kinds};

use crate::condition;
use crate::node_ipam::Range;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

pub struct ServiceCidr;

/// A ServiceCIDR, and whether it contains allocated addresses that no other ServiceCIDR contains.
pub struct Observation<'a> {
    cidr: &'a Value,
    is_needed: bool,
}

impl Controller for ServiceCidr {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "service-cidr-controller";
    const READS: &'static [GroupResource] = &[SERVICE_CIDRS, IP_ADDRESSES];
    const WRITES: &'static [Write] = &[(SERVICE_CIDRS, ""), (SERVICE_CIDRS, "status")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        // Only a ServiceCIDR that is being deleted depends on addresses and other ServiceCIDRs.
        let waiting = cache.of(Self::READS[0]).iter().filter(|it| Meta::of(&it.value).is_deleting());
        keys.extend(waiting.map(|it| it.key.clone()));
        if kind == Self::READS[0] {
            keys.push(Key::of(object));
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let cidr = cache.get(Self::READS[0], key)?;
        let is_needed = Meta::of(cidr).is_deleting() && {
            let others: Vec<&Value> = cache
                .of(Self::READS[0])
                .iter()
                .map(|it| &it.value)
                .filter(|it| Meta::of(it).name() != key.name && !Meta::of(it).is_deleting())
                .collect();
            let addresses = cache.of(IP_ADDRESSES).iter();
            let needs = |name: &str| holds(cidr, name) && !others.iter().any(|other| holds(other, name));
            addresses.map(|it| it.key.name.as_str()).any(needs)
        };
        Some(Observation { cidr, is_needed })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let cidr = observed.cidr;
        let meta = Meta::of(cidr);
        let has_finalizer = meta.finalizers().any(|it| it == FINALIZER);
        if meta.is_deleting() && observed.is_needed {
            let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            let condition_update = update_ready_condition(cidr, "False", "Terminating", message, now);
            return Plan {
                actions: condition_update.into_iter().collect(),
                ..Plan::waiting("addresses of the ServiceCIDR are allocated")
            };
        }
        if meta.is_deleting() != has_finalizer {
            let message = "Kubernetes Service CIDR is ready";
            let ready = (!meta.is_deleting()).then(|| update_ready_condition(cidr, "True", "", message, now)).flatten();
            return Plan { actions: ready.into_iter().collect(), ..Plan::default() };
        }
        let mut object = cidr.clone();
        if let Some(mut meta) = MetaMut::of(&mut object) {
            if has_finalizer {
                meta.remove_finalizer(FINALIZER);
            } else {
                meta.add_finalizer(FINALIZER);
            }
        }
        Plan::of(Action::Update { resource: kinds::SERVICE_CIDRS.clone(), object, result_event: None })
    }
}

/// Whether an address is in one of the CIDRs.
fn holds(cidr: &Value, address: &str) -> bool {
    let bits = if address.contains(':') { 128 } else { 32 };
    let Some(address) = Range::parse(&format!("{address}/{bits}")) else { return false };
    let ranges = cidr.list_at(&["spec", "cidrs"]).iter().filter_map(|it| Range::parse(it.as_str()?));
    ranges.into_iter().any(|range| range.overlaps(address))
}

fn update_ready_condition(cidr: &Value, status: &str, reason: &str, message: &str, now: Time) -> Option<Action> {
    if condition::find(cidr, "Ready").is_some_and(|it| it.str_at(&["status"]) == Some(status)) {
        return None;
    }
    let mut conditions = cidr.list_at(&["status", "conditions"]).to_vec();
    condition::set(
        &mut conditions,
        value!({"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": (now.to_seconds().to_string())}),
    );
    let mut object = cidr.clone();
    object.as_object_mut()?.insert("status", value!({"conditions": conditions}));
    Some(Action::UpdateStatus { resource: kinds::SERVICE_CIDRS.clone(), object })
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn deleted_service_cidr_is_retained_while_its_addresses_are_allocated() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let key =
            cluster.add(&kinds::SERVICE_CIDRS, value!({"metadata": {"name": "x"}, "spec": {"cidrs": ["10.0.0.0/24"]}}));
        let address = cluster.add(&kinds::IP_ADDRESSES, value!({"metadata": {"name": "10.0.0.7"}}));
        cluster.add(&kinds::IP_ADDRESSES, value!({"metadata": {"name": "10.0.1.7"}}));
        check_properties::<ServiceCidr>(&cluster, |_| false);
        run_until_stable::<ServiceCidr>(&mut cluster, |_| false);
        let ready = |cluster: &FakeCluster| {
            condition::find(cluster.get(&kinds::SERVICE_CIDRS, &key).unwrap(), "Ready").unwrap()["status"].clone()
        };
        assert_eq!(ready(&cluster), "True".into());
        cluster.delete(&kinds::SERVICE_CIDRS, &key, None, None);
        run_until_stable::<ServiceCidr>(&mut cluster, |_| false);
        assert_eq!(ready(&cluster), "False".into());
        cluster.remove(&kinds::IP_ADDRESSES, &address);
        run_until_stable::<ServiceCidr>(&mut cluster, |_| false);
        assert!(cluster.get(&kinds::SERVICE_CIDRS, &key).is_none());
    }
}
