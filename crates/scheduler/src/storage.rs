//! Claims, volumes and classes of storage, condensed to what placing pods depends on.

mod read;

use std::collections::BTreeMap;

use machinery::labels::Selector;
use machinery::{Key, Str};

use crate::pod::{Labels, NodeAffinity};

/// All that is known of storage.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    claims: BTreeMap<Key, Claim>,
    volumes: BTreeMap<Str, Volume>,
    classes: BTreeMap<Str, Class>,
    drivers: BTreeMap<Str, Driver>,
    capacities: BTreeMap<Key, Capacity>,
    /// How many volumes of each driver a node takes, by node.
    limits: BTreeMap<Str, Vec<(Str, i64)>>,
    /// The volumes that are attached to nodes: by node, the attachment and the volume's name.
    attachments: BTreeMap<Str, BTreeMap<Str, Str>>,
    /// The node of each attachment.
    attached_to: BTreeMap<Str, Str>,
    /// Volumes that were chosen for claims, before the API server shows it.
    promised: BTreeMap<Str, Key>,
    /// Nodes that were chosen for claims, before the API server shows it.
    selected: BTreeMap<Key, Str>,
}

/// A `PersistentVolumeClaim`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Its unique identifier.
    pub uid: Str,
    /// The class, empty for none.
    pub class: Str,
    /// The class of attributes, empty for none.
    pub attributes: Str,
    /// The volume that it names; empty for none.
    pub volume: Str,
    /// Whether it is bound to that volume for good.
    pub bound: bool,
    /// Whether its volume is gone.
    pub lost: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Who controls it, by unique identifier.
    pub owner: Str,
    /// Bytes asked for.
    pub requested: i64,
    /// How it is to be used.
    pub access_modes: Vec<Str>,
    /// Whether it wants a block device.
    pub block: bool,
    /// Which volumes will do.
    pub selector: Option<Selector>,
    /// The node that was chosen for it, empty for none.
    pub selected_node: Str,
}

/// A `PersistentVolume`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// The class, empty for none.
    pub class: Str,
    /// The class of attributes, empty for none.
    pub attributes: Str,
    /// Bytes.
    pub capacity: i64,
    /// How it can be used.
    pub access_modes: Vec<Str>,
    /// Whether it is a block device.
    pub block: bool,
    /// The claim that it is for, with that claim's identifier if it is known.
    pub claim: Option<(Key, Str)>,
    /// Whether nobody has it.
    pub available: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its labels.
    pub labels: Labels,
    /// The nodes that reach it.
    pub affinity: NodeAffinity,
    /// The driver and its name for the volume, if it has one.
    pub csi: Option<(Str, Str)>,
}

/// A `StorageClass`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Who makes volumes.
    pub provisioner: Str,
    /// Whether a volume is chosen only once a pod needs it.
    pub waits_for_consumer: bool,
    /// Where volumes can be made: one of these, each a list of labels with their values. None for everywhere.
    pub topologies: Vec<Vec<(Str, Vec<Str>)>>,
}

/// A `CSIDriver`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Driver {
    /// Whether it tells how much room there is.
    tells_capacity: bool,
}

/// A `CSIStorageCapacity`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Capacity {
    class: Str,
    /// The largest volume, in bytes.
    most: i64,
    nodes: Selector,
}

/// What must be done for a pod's claims before it can be bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Volumes that are given to claims.
    pub bind: Vec<(Str, Key)>,
    /// Claims whose volume will be made for the node.
    pub provision: Vec<Key>,
}

/// The class of volumes that nobody makes.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

impl Storage {
    /// The claim of a key.
    pub fn claim(&self, key: &Key) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// The volume of a name.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(name)
    }

    /// All volumes.
    pub fn volumes(&self) -> impl Iterator<Item = (&Str, &Volume)> {
        self.volumes.iter()
    }

    /// The class of a name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// The node that was chosen for a claim; empty for none.
    pub fn selected_node(&self, key: &Key, claim: &Claim) -> Str {
        self.selected.get(key).cloned().unwrap_or_else(|| claim.selected_node.clone())
    }

    /// How many volumes of a driver a node takes, if it says.
    pub fn limit(&self, node: &str, driver: &str) -> Option<i64> {
        let limits = self.limits.get(node)?;
        limits.iter().find(|(have, _)| have == driver).map(|(_, limit)| *limit)
    }

    /// Whether any node says how many volumes it takes.
    pub fn has_limits(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Whether a volume will do for a claim, wherever it is.
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

    /// Whether a volume can be made for a claim on a node that has these labels; if not, whether for want of room.
    pub fn can_provision<'a>(&self, claim: &Claim, label: impl Fn(&str) -> Option<&'a str> + Copy) -> Provision {
        let Some(class) = self.classes.get(&claim.class) else { return Provision::No };
        if class.provisioner.is_empty() || class.provisioner == NO_PROVISIONER {
            return Provision::No;
        }
        let has = |(key, values): &(Str, Vec<Str>)| label(key).is_some_and(|have| values.iter().any(|it| it == have));
        if !class.topologies.is_empty() && !class.topologies.iter().any(|term| term.iter().all(has)) {
            return Provision::No;
        }
        let tells = self.drivers.get(&class.provisioner).is_some_and(|driver| driver.tells_capacity);
        let enough = |it: &&Capacity| it.class == claim.class && it.most >= claim.requested && it.nodes.matches(label);
        if tells && !self.capacities.values().any(|capacity| enough(&capacity)) {
            return Provision::NoRoom;
        }
        Provision::Yes
    }

    /// The driver of a claim's volume and a name for the volume, if it counts towards a limit.
    pub fn attachment(&self, key: &Key) -> Option<(Str, Str)> {
        let claim = self.claims.get(key)?;
        if let Some(volume) = self.volumes.get(&claim.volume) {
            return volume.csi.clone();
        }
        let class = self.classes.get(&claim.class)?;
        Some((class.provisioner.clone(), format!("{key}").into()))
    }

    /// The drivers and names of the volumes that are attached to a node, whether or not a pod there needs them.
    pub fn attached(&self, node: &str) -> impl Iterator<Item = (Str, Str)> {
        let names = self.attachments.get(node).into_iter().flat_map(BTreeMap::values);
        names.filter_map(|name| self.volumes.get(name)?.csi.clone())
    }

    /// Takes a plan for done before the API server shows it.
    pub fn assume(&mut self, plan: &Plan, node: &str) {
        for (volume, claim) in &plan.bind {
            self.promised.insert(volume.clone(), claim.clone());
        }
        for claim in &plan.provision {
            self.selected.insert(claim.clone(), node.into());
        }
    }

    /// Takes a plan back.
    pub fn forget(&mut self, plan: &Plan) {
        for (volume, _) in &plan.bind {
            self.promised.remove(volume);
        }
        for claim in &plan.provision {
            self.selected.remove(claim);
        }
    }
}

/// Whether a volume can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provision {
    /// It can.
    Yes,
    /// It cannot.
    No,
    /// It could if there were room.
    NoRoom,
}

#[cfg(test)]
mod tests {
    use machinery::{Value, value};

    use super::*;

    #[test]
    fn a_volume_will_do_if_it_is_large_enough_free_and_of_the_same_kind() {
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
        let check = |extra: Value, wanted: Value, expect: bool| {
            assert_eq!(fits(volume(extra.clone()), claim(wanted.clone())), expect, "{extra} for {wanted}");
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
