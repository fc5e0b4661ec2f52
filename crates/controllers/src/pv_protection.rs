//! PersistentVolume protection: keeps a deleted volume while it is bound.

use apimachinery::time::Time;
use apimachinery::{Key, Value};
use controller::{Cache, Controller, Plan, kinds};

use crate::finalizer;
use crate::read::text;

const FINALIZER: &str = "kubernetes.io/pv-protection";

pub struct VolumeProtection;

impl Controller for VolumeProtection {
    type Observed<'a> = &'a Value;
    const NAME: &'static str = "persistentvolume-protection-controller";
    const READS: &'static [&'static str] = &["persistentvolumes"];
    const WRITES: &'static [&'static str] = &["persistentvolumes"];

    fn affected_keys(_: &Cache, _: &str, object: &Value, keys: &mut Vec<Key>) {
        keys.push(Key::of(object));
    }

    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<&'a Value> {
        cache.get("persistentvolumes", key)
    }

    fn plan(volume: &&Value, _: Time) -> Plan {
        let bound = text(volume, &["status", "phase"]) == "Bound";
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
