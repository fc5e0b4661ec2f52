//! Device taint eviction: deletes pods that do not, or no longer, tolerate a NoExecute taint of their DRA devices.

use std::convert::Infallible;

use api::resources::{EVENTS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES};
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value};
use controller::{Cache, Controller, Plan, Write};

use crate::resource_claim::names_of;
use crate::taint_eviction::{EvictionMessages, TolerationPeriod, evict, tolerated};

const MESSAGES: EvictionMessages = EvictionMessages {
    reason: "DeletionByDeviceTaintManager",
    message: "Device Taint manager: deleting due to NoExecute taint",
    event: "DeviceTaintManagerEviction",
};

/// Device taint eviction controller. Its keys are pods.
// DEVIATION: only taints in ResourceSlices are considered; upstream also has DeviceTaintRules, behind a feature gate
// that is off by default.
pub struct DeviceTaintEviction;

/// A bound pod, and for each taint of its devices the claim's tolerations and the taint.
pub struct Observation<'a> {
    pod: &'a Value,
    taints: Vec<(&'a [Value], &'a Value)>,
}

impl Controller for DeviceTaintEviction {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "device-taint-eviction";
    const READS: &'static [GroupResource] = &[PODS, RESOURCE_CLAIMS, RESOURCE_SLICES];
    const WRITES: &'static [Write] = &[(PODS, ""), (PODS, "status"), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            PODS => keys.extend((!names_of(object).is_empty()).then(|| Key::of(object))),
            RESOURCE_CLAIMS => keys.extend(users(object)),
            // The taints of a slice affect the pods that use devices of its pool.
            _ if taints(object).next().is_none() => {}
            _ => {
                let of_slice = |claim: &Value| devices(claim).any(|device| is_in(object, device));
                let claims = cache.of(RESOURCE_CLAIMS).iter().filter(|it| of_slice(&it.value));
                keys.extend(claims.flat_map(|it| users(&it.value)));
            }
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let pod = cache.get(PODS, key).filter(|found| !Pod(found).node_name().is_empty() && Pod(found).is_active())?;
        let mut found = Vec::new();
        for name in names_of(pod) {
            let Some(claim) = cache.get(RESOURCE_CLAIMS, &Key::new(key.namespace.clone(), name)) else { continue };
            // The claim may be reserved for other pods.
            if !claim
                .list_at(&["status", "reservedFor"])
                .iter()
                .any(|user| user.text_at(&["uid"]) == Meta::of(pod).uid())
            {
                continue;
            }
            for device in devices(claim) {
                let slices = cache.of(RESOURCE_SLICES).iter().map(|it| &it.value).filter(|slice| is_in(slice, device));
                let all = slices.flat_map(taints).filter(|(name, _)| *name == device.text_at(&["device"]));
                found.extend(all.map(|(_, taint)| (device.list_at(&["tolerations"]), taint)));
            }
        }
        Some(Observation { pod, taints: found })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let ends = observed.taints.iter().filter_map(|(tolerations, taint)| match tolerated(tolerations, taint) {
            TolerationPeriod::Forever => None,
            TolerationPeriod::NotTolerated => Some(now),
            // The API server sets timeAdded. A taint without it counts as infinitely old.
            TolerationPeriod::Seconds(seconds) => {
                let added = taint.str_at(&["timeAdded"]).and_then(|time| Time::parse(time).ok());
                Some(added.map_or(now, |added| added.plus(Duration::from_seconds(seconds))))
            }
        });
        match ends.min() {
            None => Plan::default(),
            Some(time) if time <= now => evict(observed.pod, &MESSAGES, now),
            Some(time) => Plan { wake_at: Some(time), ..Plan::default() },
        }
    }
}

/// Returns the pods that the claim is reserved for.
fn users(claim: &Value) -> impl Iterator<Item = Key> {
    let namespace = Meta::of(claim).namespace();
    let users = claim.list_at(&["status", "reservedFor"]).iter().filter(|user| user.text_at(&["resource"]) == "pods");
    users.map(move |user| Key::new(namespace, user.text_at(&["name"])))
}

/// Returns the devices allocated for the claim.
fn devices(claim: &Value) -> std::slice::Iter<'_, Value> {
    claim.list_at(&["status", "allocation", "devices", "results"]).iter()
}

/// Whether the slice belongs to the device's pool.
fn is_in(slice: &Value, device: &Value) -> bool {
    slice.text_at(&["spec", "driver"]) == device.text_at(&["driver"])
        && slice.text_at(&["spec", "pool", "name"]) == device.text_at(&["pool"])
}

/// Returns the NoExecute taints of a slice, with the device's name.
fn taints(slice: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let devices = slice.list_at(&["spec", "devices"]).iter();
    let all =
        devices.flat_map(|device| device.list_at(&["taints"]).iter().map(|taint| (device.text_at(&["name"]), taint)));
    all.filter(|(_, taint)| taint.text_at(&["effect"]) == "NoExecute")
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::kinds;
    use controller::testing::{FakeCluster, check_properties, kubelet, run_until_stable};
    use proptest::prelude::*;

    use super::*;

    fn new_cluster(taints: &Value, tolerations: &Value) -> FakeCluster {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        for name in ["p", "other"] {
            let spec = value!({"nodeName": "n", "resourceClaims": [{"name": "x", "resourceClaimName": name}]});
            let running = value!({"phase": "Running"});
            cluster.add(
                &kinds::PODS,
                value!({"metadata": {"namespace": "a", "name": name}, "spec": spec, "status": running}),
            );
        }
        for (claim, device, uid) in [("p", "d0", "uid-1"), ("other", "d1", "uid-2")] {
            let results = value!([{"driver": "gpu.example", "pool": "n", "device": device, "tolerations": (tolerations.clone())}]);
            cluster.add(
                &kinds::RESOURCE_CLAIMS,
                value!({"metadata": {"namespace": "a", "name": claim}, "status": {"allocation": {"devices": {"results": results}},
                    "reservedFor": [{"resource": "pods", "name": claim, "uid": uid}]}}),
            );
        }
        let devices = value!([{"name": "d0", "taints": (taints.clone())}, {"name": "d1"}]);
        let spec = value!({"driver": "gpu.example", "pool": {"name": "n"}, "devices": devices});
        cluster.add(&kinds::RESOURCE_SLICES, value!({"metadata": {"name": "s"}, "spec": spec}));
        cluster
    }

    fn check(taints: &Value, tolerations: &Value, seconds: Option<i64>) {
        let mut cluster = new_cluster(taints, tolerations);
        check_properties::<DeviceTaintEviction>(&cluster, kubelet);
        let start = cluster.now;
        run_until_stable::<DeviceTaintEviction>(&mut cluster, kubelet);
        let deleted = cluster.get(&kinds::PODS, &Key::new("a", "p")).is_none();
        assert_eq!(deleted.then(|| cluster.now.since(start).whole_seconds()), seconds, "{taints} {tolerations}");
        assert!(cluster.get(&kinds::PODS, &Key::new("a", "other")).is_some());
    }

    #[test]
    fn pod_is_deleted_when_its_claim_does_not_tolerate_a_device_taint() {
        let taint = |effect: &str| value!([{"key": "broken", "effect": effect, "timeAdded": "2023-11-14T22:13:20Z"}]);
        check(&taint("NoExecute"), &value!([]), Some(0));
        check(&taint("NoSchedule"), &value!([]), None);
        check(&taint("NoExecute"), &value!([{"key": "broken", "operator": "Exists"}]), None);
        check(
            &taint("NoExecute"),
            &value!([{"key": "broken", "operator": "Exists", "tolerationSeconds": 90}]),
            Some(90),
        );
        check(&taint("NoExecute"), &value!([{"key": "other", "operator": "Exists"}]), Some(0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn properties_hold_in_generated_clusters(effect in 0..2usize, key in 0..2usize, seconds in prop::option::of(0..100i64), tolerates: bool) {
            let taints = value!([{"key": "broken", "effect": (["NoExecute", "NoSchedule"][effect]), "timeAdded": "2023-11-14T22:13:20Z"}]);
            let mut toleration = value!({"key": (["broken", "other"][key]), "operator": "Exists"});
            if let (Some(seconds), Some(toleration)) = (seconds, toleration.as_object_mut()) {
                toleration.insert("tolerationSeconds", seconds);
            }
            let fits = tolerates && key == 0;
            let tolerations = if tolerates { value!([toleration]) } else { value!([]) };
            let expect = match (effect, fits, seconds) {
                (1, _, _) | (_, true, None) => None,
                (_, true, Some(seconds)) => Some(seconds),
                (_, false, _) => Some(0),
            };
            check(&taints, &tolerations, expect);
        }
    }
}
