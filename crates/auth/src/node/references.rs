//! Objects that a pod or a volume refers to.

use std::collections::BTreeSet;

use apimachinery::meta::Meta;
use apimachinery::{Str, Value};

use super::graph::{Key, Kind};

/// The annotation of mirror pods, which a kubelet creates for its static pods.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Volume types of a pod with a Secret in `secretRef`.
const WITH_SECRET_REF: [&str; 7] = ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];

/// Returns all objects that a pod needs, without duplicates.
///
/// A mirror pod relates to no objects. Otherwise a kubelet could grant itself access to any object.
pub(super) fn of_pod(pod: &Value) -> Vec<Key> {
    let meta = Meta::of(pod);
    if meta.annotation(MIRROR).is_some() {
        return Vec::new();
    }
    let mut found = ReferenceSet { namespace: meta.namespace(), keys: BTreeSet::new() };
    let spec = &pod["spec"];
    found.add(Kind::ServiceAccount, spec.str_at(&["serviceAccountName"]));
    for secret in spec.list_at(&["imagePullSecrets"]) {
        found.add(Kind::Secret, secret.str_at(&["name"]));
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        spec.list_at(&[list]).iter().for_each(|container| found.add_container(container));
    }
    for volume in spec.list_at(&["volumes"]) {
        found.add_volume(volume, meta.name());
    }
    for claim in spec.list_at(&["resourceClaims"]) {
        found.add(Kind::ResourceClaim, resource_claim(pod, claim));
    }
    found.add(Kind::ResourceClaim, pod.str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"]));
    found.keys.into_iter().collect()
}

/// Returns the names of the Secrets that a pod needs, all in its namespace.
pub fn secrets_of_pod(pod: &Value) -> impl Iterator<Item = Str> {
    let names = of_pod(pod).into_iter();
    names.filter(|(kind, _, _)| *kind == Kind::Secret).map(|(_, _, name)| name)
}

/// Returns namespace and name of the Secrets that a kubelet needs to mount a volume. `namespace` is that of the claim.
pub(super) fn secrets_of_volume(volume: &Value, namespace: &str) -> Vec<(Str, Str)> {
    let spec = &volume["spec"];
    let mut secrets = BTreeSet::new();
    let mut add = |secret_namespace: Option<&str>, name: Option<&str>| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let secret_namespace =
                secret_namespace.filter(|secret_namespace| !secret_namespace.is_empty()).unwrap_or(namespace);
            secrets.insert((Str::from(secret_namespace), Str::from(name)));
        }
    };
    add(spec.str_at(&["azureFile", "secretNamespace"]), spec.str_at(&["azureFile", "secretName"]));
    let references = WITH_SECRET_REF.iter().map(|kind| [*kind, "secretRef"]);
    // The Secrets for attach and for controller expansion are used by controllers only.
    let csi = ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"].iter().map(|key| ["csi", *key]);
    for [source, key] in references.chain(csi) {
        let reference = &spec[source][key];
        add(reference.str_at(&["namespace"]), reference.str_at(&["name"]));
    }
    secrets.into_iter().collect()
}

struct ReferenceSet<'a> {
    namespace: &'a str,
    keys: BTreeSet<Key>,
}

impl ReferenceSet<'_> {
    fn add(&mut self, kind: Kind, name: Option<&str>) {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            self.keys.insert((kind, self.namespace.into(), name.into()));
        }
    }

    fn add_container(&mut self, container: &Value) {
        for variable in container.list_at(&["env"]) {
            self.add(Kind::Secret, variable.str_at(&["valueFrom", "secretKeyRef", "name"]));
            self.add(Kind::ConfigMap, variable.str_at(&["valueFrom", "configMapKeyRef", "name"]));
        }
        for source in container.list_at(&["envFrom"]) {
            self.add(Kind::Secret, source.str_at(&["secretRef", "name"]));
            self.add(Kind::ConfigMap, source.str_at(&["configMapRef", "name"]));
        }
    }

    fn add_volume(&mut self, volume: &Value, pod: &str) {
        self.add(Kind::Secret, volume.str_at(&["secret", "secretName"]));
        self.add(Kind::ConfigMap, volume.str_at(&["configMap", "name"]));
        self.add(Kind::Secret, volume.str_at(&["azureFile", "secretName"]));
        self.add(Kind::Secret, volume.str_at(&["csi", "nodePublishSecretRef", "name"]));
        for kind in WITH_SECRET_REF {
            self.add(Kind::Secret, volume.str_at(&[kind, "secretRef", "name"]));
        }
        for source in volume["projected"].list_at(&["sources"]) {
            self.add(Kind::Secret, source.str_at(&["secret", "name"]));
            self.add(Kind::ConfigMap, source.str_at(&["configMap", "name"]));
        }
        let claim = volume.str_at(&["persistentVolumeClaim", "claimName"]);
        self.add(Kind::Claim, claim);
        if claim.is_none() && volume.get("ephemeral").is_some_and(|ephemeral| !ephemeral.is_null()) {
            let name = volume.text_at(&["name"]);
            self.add(Kind::Claim, Some(&format!("{pod}-{name}")));
        }
    }
}

/// Returns the name of a pod's ResourceClaim: given in the spec, or created from a template and recorded in the status.
fn resource_claim<'a>(pod: &'a Value, claim: &'a Value) -> Option<&'a str> {
    let given = claim.str_at(&["resourceClaimName"]);
    given.or_else(|| {
        claim.str_at(&["resourceClaimTemplateName"])?;
        let mut made = pod["status"].list_at(&["resourceClaimStatuses"]).iter();
        made.find(|made| made.str_at(&["name"]) == claim.str_at(&["name"]))?.str_at(&["resourceClaimName"])
    })
}
