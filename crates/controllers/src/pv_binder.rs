//! PersistentVolume binder: binds PersistentVolumeClaims to PersistentVolumes and maintains the phases of both.
//!
//! A key with a namespace is a claim, one without is a volume. Binding takes four writes. Each is safe even if the next
//! never happens:
//!
//! ```text
//!   volume refers to claim ──> claim refers to volume ──> volume is Bound, claim is Bound
//! ```

mod claim;
mod matching;
mod volume;

use std::convert::Infallible;

use api::resources::{EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use controller::{Action, Cache, Controller, EventType, Plan, Regarding, Write};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
const CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub struct PersistentVolumeBinder;

pub enum Observation<'a> {
    /// A claim with the volumes and classes that its plan depends on.
    Claim {
        claim: &'a Value,
        /// The volume in `spec.volumeName`.
        named: Option<&'a Value>,
        /// The candidate volumes, if the claim is unbound.
        volumes: Vec<&'a Value>,
        /// The class that the claim names.
        class: Option<&'a Value>,
        /// The default StorageClass.
        default_class: Option<&'a Value>,
    },
    /// A volume, and the claim in its claimRef.
    Volume {
        volume: &'a Value,
        /// The claim in `spec.claimRef`, if the UID matches.
        claim: Option<&'a Value>,
    },
}

impl Controller for PersistentVolumeBinder {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "persistentvolume-controller";
    const READS: &'static [GroupResource] = &[PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES];
    const WRITES: &'static [Write] = &[
        (PERSISTENT_VOLUME_CLAIMS, ""),
        (PERSISTENT_VOLUME_CLAIMS, "status"),
        (PERSISTENT_VOLUMES, ""),
        (PERSISTENT_VOLUMES, "status"),
        (EVENTS, ""),
    ];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let unbound = |claim: &Value| Meta::of(claim).annotation(BIND_COMPLETED).is_none();
        let mut waiting = |predicate: &dyn Fn(&Value) -> bool| {
            let claims = cache.of(PERSISTENT_VOLUME_CLAIMS).iter();
            keys.extend(claims.filter(|it| unbound(&it.value) && predicate(&it.value)).map(|it| it.key.clone()));
        };
        match kind {
            PERSISTENT_VOLUME_CLAIMS => {
                keys.push(Key::of(object));
                let name = object.text_at(&["spec", "volumeName"]);
                keys.extend((!name.is_empty()).then(|| Key::cluster(name)));
                let uid = Meta::of(object).uid();
                let naming = cache.of(PERSISTENT_VOLUMES).iter();
                keys.extend(
                    naming.filter(|it| it.value.text_at(&["spec", "claimRef", "uid"]) == uid).map(|it| it.key.clone()),
                );
            }
            PERSISTENT_VOLUMES => {
                match volume::claim_key(object) {
                    Some(claim) => keys.push(claim),
                    None => waiting(&|claim| matching::class_of(claim) == matching::class_of(object)),
                }
                let name = Meta::of(object).name().to_owned();
                let naming = cache.of(PERSISTENT_VOLUME_CLAIMS).iter();
                keys.extend(
                    naming.filter(|it| it.value.text_at(&["spec", "volumeName"]) == name).map(|it| it.key.clone()),
                );
                keys.push(Key::of(object));
            }
            _ => waiting(&|_| true),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        if key.namespace.is_empty() {
            let volume = cache.get(PERSISTENT_VOLUMES, key)?;
            let claim = volume::claim_key(volume).and_then(|key| cache.get(PERSISTENT_VOLUME_CLAIMS, &key));
            let uid = volume.text_at(&["spec", "claimRef", "uid"]);
            return Some(Observation::Volume { volume, claim: claim.filter(|claim| Meta::of(claim).uid() == uid) });
        }
        let claim = cache.get(PERSISTENT_VOLUME_CLAIMS, key)?;
        let named = claim.text_at(&["spec", "volumeName"]);
        let classes = cache.of(STORAGE_CLASSES);
        let is_default = |class: &Value| Meta::of(class).annotation(DEFAULT_CLASS) == Some("true");
        let newest = |class: &&Value| {
            (Meta::of(class).creation_timestamp(), std::cmp::Reverse(Meta::of(class).name().to_owned()))
        };
        Some(Observation::Claim {
            claim,
            named: cache.get(PERSISTENT_VOLUMES, &Key::cluster(named)),
            volumes: if named.is_empty() {
                cache.of(PERSISTENT_VOLUMES).iter().map(|it| &it.value).collect()
            } else {
                vec![]
            },
            class: classes.get(&Key::cluster(matching::class_of(claim))),
            default_class: classes.iter().map(|it| &it.value).filter(|it| is_default(it)).max_by_key(newest),
        })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        match observed {
            Observation::Volume { volume, claim } => volume::plan(volume, *claim),
            Observation::Claim { claim, named, volumes, class, default_class } => {
                if Meta::of(claim).annotation(BIND_COMPLETED).is_some() {
                    claim::plan_bound(claim, *named)
                } else {
                    claim::plan_unbound(claim, *named, volumes, *class, *default_class)
                }
            }
        }
    }
}

fn event(object: &Value, kind: EventType, reason: &'static str, message: impl Into<String>) -> Action {
    Action::Event { regarding: Regarding::object(object), kind, reason, message: message.into() }
}

#[cfg(test)]
mod tests;
