//! PersistentVolume protection: keeps a deleted volume while it is bound.

use std::convert::Infallible;

use api::resources::PERSISTENT_VOLUMES;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use controller::{Cache, Controller, Plan, Write, kinds};

use crate::finalizer;

const FINALIZER: &str = "kubernetes.io/pv-protection";

pub struct VolumeProtection;

impl Controller for VolumeProtection {
    type Observed<'a> = &'a Value;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "persistentvolume-protection-controller";
    const READS: &'static [GroupResource] = &[PERSISTENT_VOLUMES];
    const WRITES: &'static [Write] = &[(PERSISTENT_VOLUMES, "")];

    fn affected_keys(_: &Cache, _: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        keys.push(Key::of(object));
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<&'a Value> {
        cache.get(PERSISTENT_VOLUMES, key)
    }

    fn plan(volume: &&Value, _: Time) -> Plan {
        let bound = volume.text_at(&["status", "phase"]) == "Bound";
        finalizer::guard(&kinds::PERSISTENT_VOLUMES, volume, FINALIZER, bound)
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn deleted_volume_is_retained_while_bound() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let bound = value!({"metadata": {"name": "v"}, "status": {"phase": "Bound"}});
        let key = cluster.add(&kinds::PERSISTENT_VOLUMES, bound);
        check_properties::<VolumeProtection>(&cluster, |_| false);
        run_until_stable::<VolumeProtection>(&mut cluster, |_| false);
        cluster.delete(&kinds::PERSISTENT_VOLUMES, &key, None, None);
        run_until_stable::<VolumeProtection>(&mut cluster, |_| false);
        cluster.change(&kinds::PERSISTENT_VOLUMES, &key, |volume| {
            volume.as_object_mut().unwrap().insert("status", value!({"phase": "Released"}));
        });
        run_until_stable::<VolumeProtection>(&mut cluster, |_| false);
        assert!(cluster.get(&kinds::PERSISTENT_VOLUMES, &key).is_none());
    }
}
