//! VolumeAttributesClass protection: keeps a deleted class while a volume or claim uses it.

use std::convert::Infallible;

use api::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, VOLUME_ATTRIBUTES_CLASSES};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use controller::{Cache, Controller, Plan, Write, kinds};

use crate::finalizer;

const FINALIZER: &str = "kubernetes.io/vac-protection";

pub struct AttributesClassProtection;

pub struct Observation<'a> {
    class: &'a Value,
    in_use: bool,
}

impl Controller for AttributesClassProtection {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "volumeattributesclass-protection-controller";
    const READS: &'static [GroupResource] = &[VOLUME_ATTRIBUTES_CLASSES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS];
    const WRITES: &'static [Write] = &[(VOLUME_ATTRIBUTES_CLASSES, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            PERSISTENT_VOLUMES | PERSISTENT_VOLUME_CLAIMS => keys.extend(classes(object).map(Key::cluster)),
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let class = cache.get(Self::READS[0], key)?;
        // Users of a class are searched only after its deletion.
        let in_use = Meta::of(class).is_deleting()
            && Self::READS[1..]
                .iter()
                .any(|kind| cache.of(*kind).iter().any(|it| classes(&it.value).any(|name| name == key.name)));
        Some(Observation { class, in_use })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        finalizer::guard(&kinds::VOLUME_ATTRIBUTES_CLASSES, observed.class, FINALIZER, observed.in_use)
    }
}

/// Returns the current, desired and target classes of a volume or claim.
fn classes(object: &Value) -> impl Iterator<Item = &str> {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    paths.into_iter().filter_map(|path| object.str_at(path)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn deleted_class_is_retained_while_a_claim_uses_it() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let key = cluster.add(&kinds::VOLUME_ATTRIBUTES_CLASSES, value!({"metadata": {"name": "fast"}}));
        let claim = cluster.add(
            &kinds::PERSISTENT_VOLUME_CLAIMS,
            value!({"metadata": {"namespace": "a", "name": "c"}, "spec": {"volumeAttributesClassName": "fast"}}),
        );
        check_properties::<AttributesClassProtection>(&cluster, |_| false);
        run_until_stable::<AttributesClassProtection>(&mut cluster, |_| false);
        cluster.delete(&kinds::VOLUME_ATTRIBUTES_CLASSES, &key, None, None);
        run_until_stable::<AttributesClassProtection>(&mut cluster, |_| false);
        assert!(cluster.get(&kinds::VOLUME_ATTRIBUTES_CLASSES, &key).is_some());
        cluster.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &claim);
        run_until_stable::<AttributesClassProtection>(&mut cluster, |_| false);
        assert!(cluster.get(&kinds::VOLUME_ATTRIBUTES_CLASSES, &key).is_none());
    }
}
