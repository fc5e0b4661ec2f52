//! Relations between nodes and objects, updated incrementally with every change.
//!
//! ```text
//! node <── pod <── secret, config map, service account, resource claim
//!           └───── volume claim <── volume <── secret
//! node <── volume attachment, resource slice, pod certificate request
//! ```
//!
//! The path from an object over pods to nodes is not walked. Each object has, per node, the number of pods that refer
//! to it, so a query is a lookup.

use std::collections::BTreeMap;

use apimachinery::meta::Meta;
use apimachinery::{Str, Value};

use super::references;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Pod, related to the node it is bound to.
    Pod,
    /// A Secret, related through pods or through volumes that pods claim.
    Secret,
    ConfigMap,
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume, related through its claim.
    Volume,
    ServiceAccount,
    ResourceClaim,
    /// A VolumeAttachment, which names its node.
    VolumeAttachment,
    /// A ResourceSlice, which names its node.
    ResourceSlice,
    /// A PodCertificateRequest, which names its node.
    PodCertificateRequest,
}

/// An object by kind, namespace and name.
pub type Key = (Kind, Str, Str);

#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The contribution of each pod, attachment, slice and request, to be reverted when it changes.
    added: BTreeMap<Key, Contribution>,
    /// By object: the number of contributions that refer to it, by node.
    needed: BTreeMap<Key, BTreeMap<Str, u32>>,
    /// By volume: the claim it is bound to and the Secrets it needs.
    volumes: BTreeMap<Str, VolumeReferences>,
    /// By Secret: the volumes that need it.
    volumes_of_secret: BTreeMap<(Str, Str), Vec<Str>>,
}

#[derive(Clone, Debug)]
struct Contribution {
    node: Str,
    objects: Vec<Key>,
}

#[derive(Clone, Debug)]
struct VolumeReferences {
    claim: Key,
    secrets: Vec<(Str, Str)>,
}

impl Graph {
    /// Adds or updates an object. Only pods, volumes, attachments, slices and requests affect the graph.
    pub fn set(&mut self, kind: Kind, object: &Value) {
        let meta = Meta::of(object);
        let (namespace, name) = (meta.namespace(), meta.name());
        let text = |path: &[&str]| object.text_at(path);
        match kind {
            Kind::Volume => self.set_volume(name, object),
            Kind::Pod => {
                let objects = references::of_pod(object);
                self.set_added((kind, namespace.into(), name.into()), text(&["spec", "nodeName"]), objects);
            }
            Kind::VolumeAttachment | Kind::ResourceSlice | Kind::PodCertificateRequest => {
                let key = (kind, namespace.into(), name.into());
                self.set_added(key, text(&["spec", "nodeName"]), Vec::new());
            }
            Kind::Secret | Kind::ConfigMap | Kind::Claim | Kind::ServiceAccount | Kind::ResourceClaim => {}
        }
    }

    /// Removes a deleted object.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        if kind == Kind::Volume {
            self.remove_volume(name);
        } else {
            self.remove_added(&(kind, namespace.into(), name.into()));
        }
    }

    /// Whether the node is related to the object.
    pub fn relates(&self, kind: Kind, namespace: &str, name: &str, node: &str) -> bool {
        let key = (kind, Str::from(namespace), Str::from(name));
        match kind {
            Kind::Volume => self.volume_relates(name, node),
            Kind::Secret => {
                let volumes = self.volumes_of_secret.get(&(key.1.clone(), key.2.clone()));
                self.needs(&key, node)
                    || volumes.is_some_and(|volumes| volumes.iter().any(|name| self.volume_relates(name, node)))
            }
            Kind::Pod | Kind::VolumeAttachment | Kind::ResourceSlice | Kind::PodCertificateRequest => {
                self.added.get(&key).is_some_and(|added| added.node == node)
            }
            Kind::ConfigMap | Kind::Claim | Kind::ServiceAccount | Kind::ResourceClaim => self.needs(&key, node),
        }
    }

    /// Whether nothing is recorded, as after all contributions were reverted.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.needed.is_empty() && self.volumes.is_empty() && self.volumes_of_secret.is_empty()
    }

    fn needs(&self, key: &Key, node: &str) -> bool {
        self.needed.get(key).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn volume_relates(&self, name: &str, node: &str) -> bool {
        self.volumes.get(name).is_some_and(|bound| self.needs(&bound.claim, node))
    }

    fn set_added(&mut self, key: Key, node: &str, objects: Vec<Key>) {
        self.remove_added(&key);
        if node.is_empty() {
            return;
        }
        for object in &objects {
            *self.needed.entry(object.clone()).or_default().entry(node.into()).or_default() += 1;
        }
        self.added.insert(key, Contribution { node: node.into(), objects });
    }

    fn remove_added(&mut self, key: &Key) {
        let Some(Contribution { node, objects }) = self.added.remove(key) else { return };
        for object in objects {
            let nodes = self.needed.get_mut(&object).expect("an added object is counted");
            let count = nodes.get_mut(&node).expect("an added object is counted for its node");
            *count -= 1;
            if *count == 0 {
                nodes.remove(&node);
                if nodes.is_empty() {
                    self.needed.remove(&object);
                }
            }
        }
    }

    fn set_volume(&mut self, name: &str, volume: &Value) {
        self.remove_volume(name);
        let Some(claim) = volume.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null()) else { return };
        let text = |key| Str::from(claim.text_at(&[key]));
        let secrets = references::secrets_of_volume(volume, &text("namespace"));
        for secret in &secrets {
            self.volumes_of_secret.entry(secret.clone()).or_default().push(name.into());
        }
        let claim = (Kind::Claim, text("namespace"), text("name"));
        self.volumes.insert(name.into(), VolumeReferences { claim, secrets });
    }

    fn remove_volume(&mut self, name: &str) {
        let Some(bound) = self.volumes.remove(name) else { return };
        for secret in bound.secrets {
            if let Some(volumes) = self.volumes_of_secret.get_mut(&secret) {
                volumes.retain(|have| have != name);
                if volumes.is_empty() {
                    self.volumes_of_secret.remove(&secret);
                }
            }
        }
    }
}
