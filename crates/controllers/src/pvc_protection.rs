//! PersistentVolumeClaim protection: keeps a deleted claim while a pod uses it.

use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Key, Value};
use controller::{Cache, Controller, Plan, kinds};

use crate::finalizer;
use crate::read::{list, text};

const FINALIZER: &str = "kubernetes.io/pvc-protection";

pub struct ClaimProtection;

pub struct Observation<'a> {
    claim: &'a Value,
    in_use: bool,
}

impl Controller for ClaimProtection {
    type Observed<'a> = Observation<'a>;
    const NAME: &'static str = "persistentvolumeclaim-protection-controller";
    const READS: &'static [&'static str] = &["persistentvolumeclaims", "pods"];
    const WRITES: &'static [&'static str] = &["persistentvolumeclaims"];

    fn affected_keys(_: &Cache, kind: &str, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            "pods" => keys.extend(claims_of(object)),
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<Observation<'a>> {
        let claim = cache.get("persistentvolumeclaims", key)?;
        // Users of a claim are searched only after its deletion.
        let in_use =
            Meta::of(claim).is_deleting() && cache.in_namespace("pods", &key.namespace).any(|pod| uses(pod, claim));
        Some(Observation { claim, in_use })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        finalizer::guard(&kinds::PERSISTENT_VOLUME_CLAIMS, observed.claim, FINALIZER, observed.in_use)
    }
}

/// Returns the keys of the claims that a pod refers to.
pub fn claims_of(pod: &Value) -> impl Iterator<Item = Key> {
    let meta = Meta::of(pod);
    let name_of = move |volume: &Value| {
        if volume.get("ephemeral").is_some() {
            return Some(format!("{}-{}", meta.name(), text(volume, &["name"])));
        }
        volume.str_at(&["persistentVolumeClaim", "claimName"]).map(str::to_owned)
    };
    let named = list(pod, &["spec", "volumes"]).iter().filter_map(name_of);
    named.map(move |name| Key::new(meta.namespace(), name))
}

/// Whether a bound pod uses the claim. An unbound pod does not count: the kubelet does not start it once the claim is
/// deleted.
fn uses(pod: &Value, claim: &Value) -> bool {
    let meta = Meta::of(claim);
    let uses_it = |volume: &Value| {
        if volume.get("ephemeral").is_some() {
            let name = format!("{}-{}", Meta::of(pod).name(), text(volume, &["name"]));
            return name == meta.name() && meta.controller().is_some_and(|owner| owner.uid() == Meta::of(pod).uid());
        }
        volume.str_at(&["persistentVolumeClaim", "claimName"]) == Some(meta.name())
    };
    !Pod(pod).node_name().is_empty() && list(pod, &["spec", "volumes"]).iter().any(uses_it)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn deleted_claim_is_retained_while_a_pod_uses_it() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let key = cluster.add(&kinds::PERSISTENT_VOLUME_CLAIMS, value!({"metadata": {"namespace": "a", "name": "c"}}));
        let volumes = value!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        let pod = cluster.add(
            &kinds::PODS,
            value!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"nodeName": "n", "volumes": volumes}}),
        );
        check_properties::<ClaimProtection>(&cluster, |_| false);
        run_until_stable::<ClaimProtection>(&mut cluster, |_| false);
        cluster.delete(&kinds::PERSISTENT_VOLUME_CLAIMS, &key, None, None);
        run_until_stable::<ClaimProtection>(&mut cluster, |_| false);
        assert!(cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key).is_some());
        cluster.remove(&kinds::PODS, &pod);
        run_until_stable::<ClaimProtection>(&mut cluster, |_| false);
        assert!(cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key).is_none());
    }
}
