//! NodeRestriction for pods: a kubelet can create mirror pods, and update, delete and evict the pods of its node.

use api::resources::{NODES, PODS};
use api::view::Pod;
use apimachinery::Value;
use apimachinery::go;
use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};

use super::super::Operation;
use super::super::pods::{references_config_maps, references_secrets, spec};
use super::{AdmissionResult, KubeletRequest};

/// Volume types that need nothing from the API server.
const LOCAL_VOLUMES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// Volume types that refer to API objects, with their description in messages.
const API_VOLUMES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
/// Sources of projected volumes that refer to API objects, with their description in messages.
const API_SOURCES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

impl KubeletRequest<'_> {
    pub(super) fn pod(&self) -> AdmissionResult {
        let node = self.quoted();
        match self.attributes.operation {
            Operation::Create => self.new_pod(),
            Operation::Delete => {
                let own = self.attributes.old.is_some_and(|pod| spec(pod).text_at(&["nodeName"]) == self.node);
                self.require(own, &format!("node {node} can only delete pods with spec.nodeName set to itself"))
            }
            other => self.forbid(format!(
                "unexpected operation {}, node {node} can only create and delete mirror pods",
                go::quote(other.word())
            )),
        }
    }

    fn new_pod(&self) -> AdmissionResult {
        let (pod, node) = (self.object, self.quoted());
        if !Pod(pod).is_mirror() {
            return self.forbid(format!(
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node} can only create mirror pods"
            ));
        }
        if spec(pod).text_at(&["nodeName"]) != self.node {
            return self.forbid(format!("node {node} can only create pods with spec.nodeName set to itself"));
        }
        self.owner()?;
        match api_reference(spec(pod)) {
            None => Ok(()),
            Some(what) => self.forbid(format!("node {node} can not create pods that reference {what}")),
        }
    }

    /// Requires that the node owns the mirror pod, so that the garbage collector deletes it with the node.
    fn owner(&self) -> AdmissionResult {
        let node = self.quoted();
        let owners: Vec<_> = Meta::of(self.object).owner_references().collect();
        let owner = match owners.as_slice() {
            [owner] => owner,
            [] => {
                return self.forbid(format!("node {node} can only create pods with an owner reference set to itself"));
            }
            _ => {
                return self
                    .forbid(format!("node {node} can only create pods with a single owner reference set to itself"));
            }
        };
        if owner.api_version() != "v1" || owner.kind() != "Node" || owner.name() != self.node {
            return self.forbid(format!("node {node} can only create pods with an owner reference set to itself"));
        }
        if !owner.is_controller() {
            return self
                .forbid(format!("node {node} can only create pods with a controller owner reference set to itself"));
        }
        if owner.blocks_owner_deletion() {
            return self.forbid(format!("node {node} must not set blockOwnerDeletion on an owner reference"));
        }
        let Some(found) = self.view.object(NODES, "", self.node) else {
            return Err(Status::not_found(GroupName::new("", "nodes"), self.node));
        };
        let (have, given) = (Meta::of(&found).uid(), owner.uid());
        self.require(have == given, &format!("node {} UID mismatch: expected {given} got {have}", self.node))
    }

    pub(super) fn pod_status(&self) -> AdmissionResult {
        let node = self.quoted();
        let (Operation::Update, Some(old)) = (self.attributes.operation, self.attributes.old) else {
            return self.forbid(format!("unexpected operation {}", go::quote(self.attributes.operation.word())));
        };
        if spec(old).text_at(&["nodeName"]) != self.node {
            return self
                .forbid(format!("node {node} can only update pod status for pods with spec.nodeName set to itself"));
        }
        let labels = |pod: &Value| Meta::of(pod).labels().cloned().unwrap_or_default();
        if labels(old) != labels(self.object) {
            return self.forbid(format!("node {node} cannot update labels through pod status"));
        }
        for (field, what) in [
            ("resourceClaimStatuses", "resource claim statues"),
            ("extendedResourceClaimStatus", "extended resource claim status"),
            ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
        ] {
            if comparable(old, field) != comparable(self.object, field) {
                return self.forbid(format!("node {node} cannot update {what}"));
            }
        }
        Ok(())
    }

    pub(super) fn eviction(&self) -> AdmissionResult {
        if self.attributes.operation != Operation::Create {
            return self.forbid(format!("unexpected operation {}", self.attributes.operation.word()));
        }
        let name = if self.attributes.name.is_empty() { Meta::of(self.object).name() } else { self.attributes.name };
        if name.is_empty() {
            return self.forbid("could not determine pod from request data");
        }
        let Some(pod) = self.view.object(PODS, self.attributes.namespace, name) else {
            return Err(Status::not_found(GroupName::new("", "pods"), name));
        };
        let message = format!("node {} can only evict pods with spec.nodeName set to itself", self.node);
        self.require(spec(&pod).text_at(&["nodeName"]) == self.node, &message)
    }
}

/// Returns the first reference of a pod to another API object. A volume of unknown type counts as one.
fn api_reference(spec: &Value) -> Option<&'static str> {
    if !spec.text_at(&["serviceAccountName"]).is_empty() {
        return Some("serviceaccounts");
    }
    if references_secrets(spec) {
        return Some("secrets");
    }
    if references_config_maps(spec) {
        return Some("configmaps");
    }
    if !spec.list_at(&["resourceClaims"]).is_empty() {
        return Some("resourceclaims");
    }
    spec.list_at(&["volumes"]).iter().find_map(reference_of_volume)
}

fn reference_of_volume(volume: &Value) -> Option<&'static str> {
    let has = |of: &Value, field: &str| of.get(field).is_some_and(|value| !value.is_null());
    if let Some((_, what)) = API_VOLUMES.iter().find(|(kind, _)| has(volume, kind)) {
        return Some(what);
    }
    if !has(volume, "projected") {
        let is_local = LOCAL_VOLUMES.iter().any(|kind| has(volume, kind));
        return if is_local { None } else { Some("an unknown volume type") };
    }
    volume["projected"].list_at(&["sources"]).iter().find_map(|source| {
        let known = API_SOURCES.iter().find(|(kind, _)| has(source, kind)).map(|(_, what)| *what);
        known.or_else(|| if has(source, "downwardAPI") { None } else { Some("an unknown projected source") })
    })
}

/// Returns a status field for comparison: an empty list equals an absent one.
fn comparable<'a>(pod: &'a Value, field: &str) -> Option<&'a Value> {
    let value = pod.at(&["status", field]);
    value.filter(|value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()))
}
