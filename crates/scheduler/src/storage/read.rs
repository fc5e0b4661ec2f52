//! Conversion of storage objects into the scheduler's cache.

use apimachinery::labels::{self, Selector};
use apimachinery::meta::Meta;
use apimachinery::quantity::Quantity;
use apimachinery::{Key, Str, Value};

use super::{Capacity, Claim, Class, Driver, Storage, Volume};
use crate::pod::NodeAffinity;

/// Deprecated annotation for the storage class, used before `storageClassName` existed.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const BOUND_ANNOTATION: &str = "pv.kubernetes.io/bind-completed";
const NODE_ANNOTATION: &str = "volume.kubernetes.io/selected-node";

/// The `set_*` functions take the current object, `None` if it was deleted. They return whether anything relevant
/// changed.
impl Storage {
    /// Updates a PersistentVolumeClaim.
    pub fn set_claim(&mut self, key: &Key, object: Option<&Value>) -> bool {
        let claim = object.map(Claim::new);
        if claim.as_ref().is_none_or(|claim| !claim.selected_node.is_empty() || claim.bound) {
            self.selected.remove(key);
        }
        put(&mut self.claims, key, claim)
    }

    /// Updates a PersistentVolume.
    pub fn set_volume(&mut self, name: &Str, object: Option<&Value>) -> bool {
        let volume = object.map(Volume::new);
        if volume.as_ref().is_none_or(|volume| volume.claim.is_some()) {
            self.promised.remove(name);
        }
        put(&mut self.volumes, name, volume)
    }

    /// Updates a StorageClass.
    pub fn set_class(&mut self, name: &Str, object: Option<&Value>) -> bool {
        put(&mut self.classes, name, object.map(Class::new))
    }

    /// Updates a CSIDriver.
    pub fn set_driver(&mut self, name: &Str, object: Option<&Value>) -> bool {
        let reports_capacity = |object: &Value| object.is_true_at(&["spec", "storageCapacity"]);
        put(&mut self.drivers, name, object.map(|object| Driver { reports_capacity: reports_capacity(object) }))
    }

    /// Updates a CSIStorageCapacity.
    pub fn set_capacity(&mut self, key: &Key, object: Option<&Value>) -> bool {
        put(&mut self.capacities, key, object.map(Capacity::new))
    }

    /// Updates the attach limits from a CSINode.
    pub fn set_limits(&mut self, node: &Str, object: Option<&Value>) -> bool {
        let limits = object.map(|object| {
            let drivers = object.list_at(&["spec", "drivers"]);
            let limit = |driver: &Value| {
                let count = driver.at(&["allocatable", "count"])?.as_int()?;
                Some((text(driver, &["name"]), count))
            };
            drivers.iter().filter_map(limit).collect::<Vec<_>>()
        });
        put(&mut self.limits, node, limits.filter(|limits| !limits.is_empty()))
    }

    /// Updates a VolumeAttachment. Only a deletion is relevant, because it can make pods schedulable.
    pub fn set_attachment(&mut self, name: &Str, object: Option<&Value>) -> bool {
        let before = self.attached_to.remove(name);
        if let Some(node) = &before
            && let Some(attachments) = self.attachments.get_mut(node)
        {
            attachments.remove(name);
            if attachments.is_empty() {
                self.attachments.remove(node);
            }
        }
        let Some(spec) = object.and_then(|object| object.get("spec")) else { return before.is_some() };
        let (node, volume) = (text(spec, &["nodeName"]), text(spec, &["source", "persistentVolumeName"]));
        self.attached_to.insert(name.clone(), node.clone());
        self.attachments.entry(node).or_default().insert(name.clone(), volume);
        false
    }

    pub fn attachment_names(&self) -> impl Iterator<Item = &Str> {
        self.attached_to.keys()
    }

    pub fn claim_keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.keys()
    }

    pub fn volume_names(&self) -> impl Iterator<Item = &Str> {
        self.volumes.keys()
    }

    pub fn class_names(&self) -> impl Iterator<Item = &Str> {
        self.classes.keys()
    }

    pub fn driver_names(&self) -> impl Iterator<Item = &Str> {
        self.drivers.keys()
    }

    pub fn capacity_keys(&self) -> impl Iterator<Item = &Key> {
        self.capacities.keys()
    }

    /// Returns the nodes that have attach limits.
    pub fn limited_nodes(&self) -> impl Iterator<Item = &Str> {
        self.limits.keys()
    }
}

impl Claim {
    fn new(object: &Value) -> Self {
        let meta = Meta::of(object);
        let spec = &object["spec"];
        let volume = text(spec, &["volumeName"]);
        Self {
            uid: meta.uid().into(),
            class: meta.annotation(CLASS_ANNOTATION).map_or_else(|| text(spec, &["storageClassName"]), Str::from),
            attributes: text(spec, &["volumeAttributesClassName"]),
            bound: !volume.is_empty() && meta.annotation(BOUND_ANNOTATION).is_some(),
            volume,
            lost: object.str_at(&["status", "phase"]) == Some("Lost"),
            deleting: meta.is_deleting(),
            owner: meta.controller().map(|owner| owner.uid().into()).unwrap_or_default(),
            requested: bytes(spec.at(&["resources", "requests", "storage"])),
            access_modes: texts(spec, "accessModes"),
            block: spec.str_at(&["volumeMode"]) == Some("Block"),
            selector: spec.get("selector").map(|it| labels::from_object(Some(it)).unwrap_or(Selector::Nothing)),
            selected_node: meta.annotation(NODE_ANNOTATION).unwrap_or_default().into(),
        }
    }
}

impl Volume {
    fn new(object: &Value) -> Self {
        let meta = Meta::of(object);
        let spec = &object["spec"];
        let claim = spec
            .get("claimRef")
            .filter(|it| !it.is_null())
            .map(|it| (Key::new(text(it, &["namespace"]), text(it, &["name"])), text(it, &["uid"])));
        let required = spec.at(&["nodeAffinity", "required"]).filter(|it| !it.is_null());
        Self {
            class: meta.annotation(CLASS_ANNOTATION).map_or_else(|| text(spec, &["storageClassName"]), Str::from),
            attributes: text(spec, &["volumeAttributesClassName"]),
            capacity: bytes(spec.at(&["capacity", "storage"])),
            access_modes: texts(spec, "accessModes"),
            block: spec.str_at(&["volumeMode"]) == Some("Block"),
            claim,
            available: object.str_at(&["status", "phase"]) == Some("Available"),
            deleting: meta.is_deleting(),
            labels: crate::pod::labels(meta.labels()),
            affinity: required.map(NodeAffinity::requiring).unwrap_or_default(),
            csi: spec.get("csi").map(|csi| (text(csi, &["driver"]), text(csi, &["volumeHandle"]))),
        }
    }
}

impl Class {
    fn new(object: &Value) -> Self {
        let terms = object.list_at(&["allowedTopologies"]);
        let requirement = |it: &Value| (text(it, &["key"]), texts(it, "values"));
        let term = |term: &Value| {
            let list = term.list_at(&["matchLabelExpressions"]);
            list.iter().map(requirement).collect()
        };
        Self {
            provisioner: text(object, &["provisioner"]),
            waits_for_consumer: object.str_at(&["volumeBindingMode"]) == Some("WaitForFirstConsumer"),
            topologies: terms.iter().map(term).collect(),
        }
    }
}

impl Capacity {
    fn new(object: &Value) -> Self {
        let most = object.get("maximumVolumeSize").or_else(|| object.get("capacity"));
        Self {
            class: text(object, &["storageClassName"]),
            most: most.map_or(-1, |most| bytes(Some(most))),
            nodes: labels::from_object(object.get("nodeTopology")).unwrap_or(Selector::Nothing),
        }
    }
}

fn put<K: Ord + Clone, V: PartialEq>(map: &mut std::collections::BTreeMap<K, V>, key: &K, value: Option<V>) -> bool {
    match value {
        Some(value) if map.get(key) == Some(&value) => false,
        Some(value) => {
            map.insert(key.clone(), value);
            true
        }
        None => map.remove(key).is_some(),
    }
}

fn text(object: &Value, path: &[&str]) -> Str {
    object.text_at(path).into()
}

fn texts(object: &Value, field: &str) -> Vec<Str> {
    let list = object.get(field).and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(Str::from).collect()
}

/// Parses an amount of bytes; 0 if it is invalid.
fn bytes(value: Option<&Value>) -> i64 {
    match value {
        Some(Value::Int(int)) => *int,
        Some(other) => other.as_str().and_then(|text| text.parse::<Quantity>().ok()).map_or(0, Quantity::value),
        None => 0,
    }
}
