//! PersistentVolumeClaims, PersistentVolumes and StorageClasses, condensed to the fields that scheduling depends on.

mod read;

use std::collections::BTreeMap;

use apimachinery::labels::Selector;
use apimachinery::{Key, Str};

use crate::pod::{Labels, NodeAffinity};

/// Cache of all storage objects that scheduling depends on.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    claims: BTreeMap<Key, Claim>,
    volumes: BTreeMap<Str, Volume>,
    classes: BTreeMap<Str, Class>,
    drivers: BTreeMap<Str, Driver>,
    capacities: BTreeMap<Key, Capacity>,
    /// Attach limits by node: driver and number of volumes.
    limits: BTreeMap<Str, Vec<(Str, i64)>>,
    /// Attached volumes by node: VolumeAttachment name to PersistentVolume name.
    attachments: BTreeMap<Str, BTreeMap<Str, Str>>,
    /// Node of each VolumeAttachment.
    attached_to: BTreeMap<Str, Str>,
    /// Assumed bindings of volumes to claims, before the watch reports them.
    promised: BTreeMap<Str, Key>,
    /// Assumed `selected-node` of claims, before the watch reports it.
    selected: BTreeMap<Key, Str>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub uid: Str,
    /// `storageClassName`; empty if not set.
    pub class: Str,
    /// `volumeAttributesClassName`; empty if not set.
    pub attributes: Str,
    /// `volumeName`; empty if not set.
    pub volume: Str,
    /// Whether the binding to the volume is complete.
    pub bound: bool,
    /// Whether the phase is `Lost`.
    pub lost: bool,
    /// Whether `deletionTimestamp` is set.
    pub deleting: bool,
    /// UID of the controller.
    pub owner: Str,
    /// Requested storage in bytes.
    pub requested: i64,
    pub access_modes: Vec<Str>,
    /// Whether `volumeMode` is `Block`.
    pub block: bool,
    /// Selects volumes.
    pub selector: Option<Selector>,
    /// Node selected for provisioning; empty if none.
    pub selected_node: Str,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// `storageClassName`; empty if not set.
    pub class: Str,
    /// `volumeAttributesClassName`; empty if not set.
    pub attributes: Str,
    /// In bytes.
    pub capacity: i64,
    pub access_modes: Vec<Str>,
    /// Whether `volumeMode` is `Block`.
    pub block: bool,
    /// `claimRef`, with the claim's UID if set.
    pub claim: Option<(Key, Str)>,
    /// Whether the phase is `Available`.
    pub available: bool,
    /// Whether `deletionTimestamp` is set.
    pub deleting: bool,
    pub labels: Labels,
    /// Nodes that can access the volume.
    pub affinity: NodeAffinity,
    /// CSI driver and volume handle.
    pub csi: Option<(Str, Str)>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub provisioner: Str,
    /// Whether `volumeBindingMode` is `WaitForFirstConsumer`.
    pub waits_for_consumer: bool,
    /// `allowedTopologies`: alternatives of labels with their values. Empty for every node.
    pub topologies: Vec<Vec<(Str, Vec<Str>)>>,
}

/// A CSIDriver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Driver {
    /// Whether the driver publishes CSIStorageCapacity objects.
    reports_capacity: bool,
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Capacity {
    class: Str,
    /// Maximum size of a volume in bytes.
    most: i64,
    nodes: Selector,
}

/// Writes needed for a pod's claims before the pod can be bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Volumes to bind, with their claims.
    pub bind: Vec<(Str, Key)>,
    /// Claims whose volume must be provisioned for the node.
    pub provision: Vec<Key>,
}

/// Provisioner name of classes without dynamic provisioning.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

impl Storage {
    pub fn claim(&self, key: &Key) -> Option<&Claim> {
        self.claims.get(key)
    }

    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(name)
    }

    pub fn volumes(&self) -> impl Iterator<Item = (&Str, &Volume)> {
        self.volumes.iter()
    }

    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// Returns the node selected for a claim, assumed or observed; empty if none.
    pub fn selected_node(&self, key: &Key, claim: &Claim) -> Str {
        self.selected.get(key).cloned().unwrap_or_else(|| claim.selected_node.clone())
    }

    /// Returns the attach limit of a driver on a node, if any.
    pub fn limit(&self, node: &str, driver: &str) -> Option<i64> {
        let limits = self.limits.get(node)?;
        limits.iter().find(|(have, _)| have == driver).map(|(_, limit)| *limit)
    }

    /// Whether any node has attach limits.
    pub fn has_limits(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Whether a volume satisfies a claim, regardless of the node.
    pub fn fits(&self, name: &Str, volume: &Volume, key: &Key, claim: &Claim) -> bool {
        if volume.capacity < claim.requested || volume.block != claim.block || volume.deleting {
            return false;
        }
        if volume.attributes != claim.attributes {
            return false;
        }
        if self.promised.get(name).is_some_and(|promised| promised != key) {
            return false;
        }
        if let Some((for_claim, uid)) = &volume.claim {
            return for_claim == key && (uid.is_empty() || *uid == claim.uid);
        }
        volume.available
            && volume.class == claim.class
            && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
            && claim.selector.as_ref().is_none_or(|it| it.matches(|label| crate::pod::label(&volume.labels, label)))
    }

    /// Whether a volume can be provisioned for a claim on a node with these labels.
    pub fn can_provision<'a>(&self, claim: &Claim, label: impl Fn(&str) -> Option<&'a str> + Copy) -> Provision {
        let Some(class) = self.classes.get(&claim.class) else { return Provision::No };
        if class.provisioner.is_empty() || class.provisioner == NO_PROVISIONER {
            return Provision::No;
        }
        let has = |(key, values): &(Str, Vec<Str>)| label(key).is_some_and(|have| values.iter().any(|it| it == have));
        if !class.topologies.is_empty() && !class.topologies.iter().any(|term| term.iter().all(has)) {
            return Provision::No;
        }
        let reports_capacity = self.drivers.get(&class.provisioner).is_some_and(|driver| driver.reports_capacity);
        let enough = |it: &&Capacity| it.class == claim.class && it.most >= claim.requested && it.nodes.matches(label);
        if reports_capacity && !self.capacities.values().any(|capacity| enough(&capacity)) {
            return Provision::InsufficientCapacity;
        }
        Provision::Yes
    }

    /// Returns the driver and a unique name of a claim's volume, if it counts towards an attach limit.
    pub fn attachment(&self, key: &Key) -> Option<(Str, Str)> {
        let claim = self.claims.get(key)?;
        if let Some(volume) = self.volumes.get(&claim.volume) {
            return volume.csi.clone();
        }
        let class = self.classes.get(&claim.class)?;
        Some((class.provisioner.clone(), format!("{key}").into()))
    }

    /// Returns drivers and names of the volumes attached to a node, whether or not a pod there uses them.
    pub fn attached(&self, node: &str) -> impl Iterator<Item = (Str, Str)> {
        let names = self.attachments.get(node).into_iter().flat_map(BTreeMap::values);
        names.filter_map(|name| self.volumes.get(name)?.csi.clone())
    }

    /// Counts a plan as done before the watch reports it.
    pub fn assume(&mut self, plan: &Plan, node: &str) {
        for (volume, claim) in &plan.bind {
            self.promised.insert(volume.clone(), claim.clone());
        }
        for claim in &plan.provision {
            self.selected.insert(claim.clone(), node.into());
        }
    }

    /// Reverts an assumed plan.
    pub fn revert_assumed(&mut self, plan: &Plan) {
        for (volume, _) in &plan.bind {
            self.promised.remove(volume);
        }
        for claim in &plan.provision {
            self.selected.remove(claim);
        }
    }
}

/// Result of [`Storage::can_provision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provision {
    Yes,
    No,
    /// The storage capacity does not suffice.
    InsufficientCapacity,
}

#[cfg(test)]
mod tests {
    use apimachinery::{Value, value};

    use super::*;

    #[test]
    fn volume_matches_claim_by_size_availability_and_mode() {
        let fits = |volume: Value, claim: Value| {
            let mut storage = Storage::default();
            let key = Key::new("ns", "c");
            storage.set_claim(&key, Some(&value!({"metadata": {"uid": "u"}, "spec": claim})));
            let volume = value!({"spec": volume, "status": {"phase": "Available"}});
            storage.set_volume(&"pv".into(), Some(&volume));
            let (name, volume) = storage.volumes().next().unwrap();
            storage.fits(name, volume, &key, storage.claim(&key).unwrap())
        };
        let volume = |extra: Value| {
            let mut spec = value!({"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]});
            extra.as_object().unwrap().iter().for_each(|(key, value)| {
                spec.as_object_mut().unwrap().insert(key, value.clone());
            });
            spec
        };
        let claim = |extra: Value| {
            let mut spec = volume(extra);
            spec.as_object_mut().unwrap().insert("resources", value!({"requests": {"storage": "1Gi"}}));
            spec
        };
        let check = |extra: Value, claim_spec: Value, expect: bool| {
            assert_eq!(fits(volume(extra.clone()), claim(claim_spec.clone())), expect, "{extra} for {claim_spec}");
        };
        let none = || value!({});
        check(none(), none(), true);
        check(value!({"capacity": {"storage": "1Mi"}}), none(), false);
        check(value!({"volumeMode": "Block"}), none(), false);
        check(value!({"storageClassName": "a"}), value!({"storageClassName": "b"}), false);
        check(none(), value!({"accessModes": ["ReadWriteMany"]}), false);
        let attributes = |name: &str| value!({"volumeAttributesClassName": name});
        check(attributes("gold"), attributes("gold"), true);
        check(attributes("gold"), attributes("silver"), false);
        check(none(), attributes("gold"), false);
        check(attributes("gold"), none(), false);
        let meant = |class: &str| value!({"volumeAttributesClassName": class, "claimRef": {"namespace": "ns", "name": "c", "uid": "u"}});
        check(meant("gold"), attributes("gold"), true);
        check(meant("gold"), none(), false);
    }
}
