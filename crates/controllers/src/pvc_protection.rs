//! PersistentVolumeClaim protection: keeps a deleted claim while a pod uses it.

use std::convert::Infallible;

use api::resources::{PERSISTENT_VOLUME_CLAIMS, PODS};
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use controller::{Cache, Controller, Plan, Write, kinds};

use crate::finalizer;

const FINALIZER: &str = "kubernetes.io/pvc-protection";

pub struct ClaimProtection;

pub struct Observation<'a> {
    claim: &'a Value,
    in_use: bool,
}

impl Controller for ClaimProtection {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "persistentvolumeclaim-protection-controller";
    const READS: &'static [GroupResource] = &[PERSISTENT_VOLUME_CLAIMS, PODS];
    const WRITES: &'static [Write] = &[(PERSISTENT_VOLUME_CLAIMS, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            PODS => keys.extend(claims_of(object)),
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let claim = cache.get(PERSISTENT_VOLUME_CLAIMS, key)?;
        // Users of a claim are searched only after its deletion.
        let in_use =
            Meta::of(claim).is_deleting() && cache.in_namespace(PODS, &key.namespace).any(|pod| uses(pod, claim));
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
            return Some(format!("{}-{}", meta.name(), volume.text_at(&["name"])));
        }
        volume.str_at(&["persistentVolumeClaim", "claimName"]).map(str::to_owned)
    };
    let named = pod.list_at(&["spec", "volumes"]).iter().filter_map(name_of);
    named.map(move |name| Key::new(meta.namespace(), name))
}

/// Whether a bound pod uses the claim. An unbound pod does not count: the kubelet does not start it once the claim is
/// deleted.
fn uses(pod: &Value, claim: &Value) -> bool {
    let meta = Meta::of(claim);
    let uses_it = |volume: &Value| {
        if volume.get("ephemeral").is_some() {
            let name = format!("{}-{}", Meta::of(pod).name(), volume.text_at(&["name"]));
            return name == meta.name() && meta.controller().is_some_and(|owner| owner.uid() == Meta::of(pod).uid());
        }
        volume.str_at(&["persistentVolumeClaim", "claimName"]) == Some(meta.name())
    };
    !Pod(pod).node_name().is_empty() && pod.list_at(&["spec", "volumes"]).iter().any(uses_it)
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
