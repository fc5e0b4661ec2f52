//! Event handlers: apply watched objects to the snapshot and the scheduling queue.

use std::sync::Arc;

use api::resources::{
    CSI_DRIVERS, CSI_NODES, CSI_STORAGE_CAPACITIES, DEVICE_CLASSES, NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, RESOURCE_CLAIMS,
    RESOURCE_SLICES, SERVICES, STATEFUL_SETS, STORAGE_CLASSES, VOLUME_ATTACHMENTS,
};
use apimachinery::{GroupResource, Key, Str, Value};

use super::Engine;
use crate::devices::Change;
use crate::framework::Event;
use crate::node::Node;
use crate::plugins::default_preemption::Budget;
use crate::pod::{self, OwnerKind, Pod, PodId, labels};
use crate::queue::Millis;
use crate::resources;

/// Resource types that scheduling depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `pods`.
    Pods,
    /// `nodes`.
    Nodes,
    /// `namespaces`.
    Namespaces,
    /// `poddisruptionbudgets.policy`.
    Budgets,
    /// `services`.
    Services,
    /// `replicationcontrollers`.
    ReplicationControllers,
    /// `replicasets.apps`.
    ReplicaSets,
    /// `statefulsets.apps`.
    StatefulSets,
    /// `persistentvolumeclaims`.
    Claims,
    /// `persistentvolumes`.
    Volumes,
    /// `storageclasses.storage.k8s.io`.
    StorageClasses,
    /// `csinodes.storage.k8s.io`.
    CsiNodes,
    /// `csidrivers.storage.k8s.io`.
    CsiDrivers,
    /// `csistoragecapacities.storage.k8s.io`.
    CsiStorageCapacities,
    /// `volumeattachments.storage.k8s.io`.
    VolumeAttachments,
    /// `deviceclasses.resource.k8s.io`.
    DeviceClasses,
    /// `resourceslices.resource.k8s.io`.
    ResourceSlices,
    /// `resourceclaims.resource.k8s.io`.
    ResourceClaims,
}

/// An object cannot be parsed; its previous state stays in effect.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the object cannot be understood")]
pub enum ObserveError {
    Pod(#[from] pod::Error),
    Node(#[from] resources::Error),
}

impl Kind {
    /// All kinds, nodes before the pods on them.
    pub const ALL: &'static [Self] = &[
        Self::Namespaces,
        Self::Nodes,
        Self::Budgets,
        Self::Services,
        Self::ReplicationControllers,
        Self::ReplicaSets,
        Self::StatefulSets,
        Self::StorageClasses,
        Self::CsiNodes,
        Self::CsiDrivers,
        Self::CsiStorageCapacities,
        Self::Volumes,
        Self::VolumeAttachments,
        Self::Claims,
        Self::DeviceClasses,
        Self::ResourceSlices,
        Self::ResourceClaims,
        Self::Pods,
    ];

    pub const fn resource(self) -> GroupResource {
        match self {
            Self::Pods => PODS,
            Self::Nodes => NODES,
            Self::Namespaces => NAMESPACES,
            Self::Budgets => POD_DISRUPTION_BUDGETS,
            Self::Services => SERVICES,
            Self::ReplicationControllers => REPLICATION_CONTROLLERS,
            Self::ReplicaSets => REPLICA_SETS,
            Self::StatefulSets => STATEFUL_SETS,
            Self::Claims => PERSISTENT_VOLUME_CLAIMS,
            Self::Volumes => PERSISTENT_VOLUMES,
            Self::StorageClasses => STORAGE_CLASSES,
            Self::CsiNodes => CSI_NODES,
            Self::CsiDrivers => CSI_DRIVERS,
            Self::CsiStorageCapacities => CSI_STORAGE_CAPACITIES,
            Self::VolumeAttachments => VOLUME_ATTACHMENTS,
            Self::DeviceClasses => DEVICE_CLASSES,
            Self::ResourceSlices => RESOURCE_SLICES,
            Self::ResourceClaims => RESOURCE_CLAIMS,
        }
    }
}

impl Engine {
    /// Applies the current state of an object; `None` means that the object was deleted.
    pub fn observe(&mut self, kind: Kind, key: &Key, object: Option<&Value>, now: Millis) -> Result<(), ObserveError> {
        match kind {
            Kind::Pods => {
                let observed = self.observe_pod(key, object, now);
                self.queue.wake_excluded_pods(now);
                return observed;
            }
            Kind::Nodes => return self.observe_node(&key.name, object, now),
            Kind::Namespaces => self.observe_namespace(&key.name, object, now),
            Kind::Budgets => self.observe_budget(key, object),
            Kind::Services => self.selectors.set_service(key, object),
            Kind::ReplicationControllers => {
                self.selectors.set_owner(OwnerKind::ReplicationController, key, object);
            }
            Kind::ReplicaSets => self.selectors.set_owner(OwnerKind::ReplicaSet, key, object),
            Kind::StatefulSets => self.selectors.set_owner(OwnerKind::StatefulSet, key, object),
            Kind::Claims
            | Kind::Volumes
            | Kind::StorageClasses
            | Kind::CsiNodes
            | Kind::CsiDrivers
            | Kind::CsiStorageCapacities
            | Kind::VolumeAttachments => self.observe_storage(kind, key, object, now),
            Kind::DeviceClasses => {
                self.snapshot.devices.set_class(&key.name, object);
                self.queue.notice(&Event::DevicesChanged, now);
            }
            Kind::ResourceSlices => {
                self.snapshot.devices.set_slice(&key.name, object);
                self.queue.notice(&Event::DevicesChanged, now);
            }
            Kind::ResourceClaims => self.observe_device_claim(key, object, now),
        }
        Ok(())
    }

    /// Returns the keys of all cached objects of a kind.
    pub fn known(&self, kind: Kind) -> Vec<Key> {
        match kind {
            Kind::Pods => {
                let queued = self.queue.pods().map(|pod| Key::new(pod.class.namespace.clone(), pod.name.clone()));
                queued.chain(self.snapshot.keys()).collect()
            }
            Kind::Nodes => self.nodes.keys().cloned().map(Key::cluster).collect(),
            Kind::Namespaces => self.snapshot.namespaces().cloned().map(Key::cluster).collect(),
            Kind::Budgets => self.budgets.iter().map(|it| Key::new(it.namespace.clone(), it.name.clone())).collect(),
            Kind::Services => self.selectors.services().collect(),
            Kind::ReplicationControllers => self.selectors.owners(OwnerKind::ReplicationController).collect(),
            Kind::ReplicaSets => self.selectors.owners(OwnerKind::ReplicaSet).collect(),
            Kind::StatefulSets => self.selectors.owners(OwnerKind::StatefulSet).collect(),
            Kind::Claims => self.snapshot.storage.claim_keys().cloned().collect(),
            Kind::CsiStorageCapacities => self.snapshot.storage.capacity_keys().cloned().collect(),
            Kind::Volumes => self.snapshot.storage.volume_names().cloned().map(Key::cluster).collect(),
            Kind::StorageClasses => self.snapshot.storage.class_names().cloned().map(Key::cluster).collect(),
            Kind::CsiNodes => self.snapshot.storage.limited_nodes().cloned().map(Key::cluster).collect(),
            Kind::VolumeAttachments => self.snapshot.storage.attachment_names().cloned().map(Key::cluster).collect(),
            Kind::DeviceClasses => self.snapshot.devices.class_names().cloned().map(Key::cluster).collect(),
            Kind::ResourceSlices => self.snapshot.devices.slice_names().cloned().map(Key::cluster).collect(),
            Kind::ResourceClaims => self.snapshot.devices.claim_keys().cloned().collect(),
            Kind::CsiDrivers => self.snapshot.storage.driver_names().cloned().map(Key::cluster).collect(),
        }
    }

    fn observe_pod(&mut self, key: &Key, object: Option<&Value>, now: Millis) -> Result<(), ObserveError> {
        let id = PodId::new(&key.namespace, &key.name);
        let Some(object) = object else {
            self.pod_deleted(id, now);
            return Ok(());
        };
        let pod = Pod::new(object)?;
        if pod.finished {
            self.pod_deleted(id, now);
        } else if pod.node_name.is_empty() {
            self.pod_waits(pod, now);
        } else {
            self.pod_is_placed(pod, now);
        }
        Ok(())
    }

    fn observe_storage(&mut self, kind: Kind, key: &Key, object: Option<&Value>, now: Millis) {
        let storage = &mut self.snapshot.storage;
        let changed = match kind {
            Kind::Claims => storage.set_claim(key, object),
            Kind::Volumes => storage.set_volume(&key.name, object),
            Kind::StorageClasses => storage.set_class(&key.name, object),
            Kind::CsiNodes => storage.set_limits(&key.name, object),
            Kind::CsiDrivers => storage.set_driver(&key.name, object),
            Kind::CsiStorageCapacities => storage.set_capacity(key, object),
            Kind::VolumeAttachments => storage.set_attachment(&key.name, object),
            _ => false,
        };
        if changed {
            let event = if kind == Kind::Claims { Event::ClaimChanged(key.clone()) } else { Event::StorageChanged };
            self.queue.notice(&event, now);
        }
    }

    fn observe_device_claim(&mut self, key: &Key, object: Option<&Value>, now: Millis) {
        let change = self.snapshot.devices.set_claim(key, object);
        if change == Change::None {
            return;
        }
        self.queue.reconsider(key, &self.snapshot.devices, now);
        let freed = change == Change::Released;
        let event = if freed { Event::DevicesChanged } else { Event::DeviceClaimChanged(key.clone()) };
        self.queue.notice(&event, now);
    }

    /// Ends the assumption of a pod; returns whether the pod was assumed.
    pub(super) fn end_assumption(&mut self, id: PodId) -> bool {
        let assumed = self.assumed.remove(&id);
        if let Some(assumed) = &assumed {
            self.snapshot.storage.revert_assumed(&assumed.volumes);
        }
        assumed.is_some()
    }

    fn pod_deleted(&mut self, id: PodId, now: Millis) {
        self.end_assumption(id);
        self.queue.remove(id);
        self.leave_node(id, now);
    }

    fn pod_waits(&mut self, mut pod: Pod, now: Millis) {
        let id = pod.id();
        if self.assumed.get(&id).is_none_or(|assumed| assumed.uid != pod.uid) {
            // A pod of this name that has a node is a different pod with another UID.
            self.end_assumption(id);
            self.leave_node(id, now);
        } else if self.assumed[&id].bound {
            return;
        } else {
            // The pod already occupies its node: a nomination would reserve its resources twice.
            pod.nominated_node = Str::default();
        }
        let has_profile = self.profiles.iter().any(|profile| profile.scheduler_name == pod.scheduler_name);
        if !has_profile || pod.class.terminating && !self.queue.contains(id) {
            self.queue.remove(id);
        } else {
            if !pod.nominated_node.is_empty() {
                // An earlier scheduler may have nominated the pod; its affinity rules apply from now on.
                self.snapshot.prepare(&pod, std::iter::empty());
            }
            self.queue.set(&Arc::new(pod), &self.snapshot.devices, now);
        }
    }

    fn pod_is_placed(&mut self, pod: Pod, now: Millis) {
        let id = pod.id();
        let was_assumed = self.end_assumption(id);
        self.queue.remove(id);
        let before = self.snapshot.pod(id).filter(|_| !was_assumed);
        self.snapshot.set_pod(&pod);
        let same = |old: &Pod| old.class == pod.class && old.shape == pod.shape && old.node_name == pod.node_name;
        match before {
            Some(old) if same(&old) => {}
            Some(old) if old.node_name == pod.node_name => {
                self.queue.notice(&Event::PodUpdated(Arc::new(old), Arc::new(pod)), now);
            }
            Some(old) => {
                self.queue.notice(&Event::PodRemoved(Arc::new(old)), now);
                self.queue.notice(&Event::PodAdded(Arc::new(pod)), now);
            }
            None => self.queue.notice(&Event::PodAdded(Arc::new(pod)), now),
        }
    }

    fn leave_node(&mut self, id: PodId, now: Millis) {
        if let Some(old) = self.snapshot.pod(id) {
            self.snapshot.remove_pod(id);
            self.queue.notice(&Event::PodRemoved(Arc::new(old)), now);
        }
    }

    fn observe_node(&mut self, name: &Str, object: Option<&Value>, now: Millis) -> Result<(), ObserveError> {
        let Some(object) = object else {
            self.snapshot.remove_node(name);
            if let Some(old) = self.nodes.remove(name) {
                self.queue.notice(&Event::NodeRemoved(old), now);
            }
            return Ok(());
        };
        let node = Arc::new(Node::new(object)?);
        let event = match self.nodes.get(name) {
            Some(old) if *old == node => return Ok(()),
            Some(old) => Event::NodeUpdated(Arc::clone(old), Arc::clone(&node)),
            None => Event::NodeAdded(Arc::clone(&node)),
        };
        self.snapshot.set_node(&node);
        self.nodes.insert(name.clone(), node);
        self.queue.notice(&event, now);
        Ok(())
    }

    fn observe_namespace(&mut self, name: &str, object: Option<&Value>, now: Millis) {
        let Some(object) = object else {
            self.snapshot.remove_namespace(name);
            return;
        };
        let labels = labels(apimachinery::meta::Meta::of(object).labels());
        if *self.snapshot.namespace_labels(name) != *labels {
            self.snapshot.set_namespace(name, labels);
            self.queue.notice(&Event::NamespaceChanged, now);
        }
    }

    fn observe_budget(&mut self, key: &Key, object: Option<&Value>) {
        let order = |have: &Budget| (&have.namespace, &have.name).cmp(&(&key.namespace, &key.name));
        match (self.budgets.binary_search_by(order), object.map(Budget::new)) {
            (Ok(at), Some(budget)) => self.budgets[at] = budget,
            (Ok(at), None) => drop(self.budgets.remove(at)),
            (Err(at), Some(budget)) => self.budgets.insert(at, budget),
            (Err(_), None) => {}
        }
    }
}
