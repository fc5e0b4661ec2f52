//! Binds PersistentVolumeClaims before a pod is bound: writes the plan and waits for its completion.

use std::sync::Arc;
use std::time::Duration;

use api::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use apimachinery::meta::Meta;
use apimachinery::{Key, Str, value};
use client::{Client, Error, Patch, Target, WriteOptions};
use controller::kinds;
use controller_runtime::Caches;
use scheduler::storage::Plan;

const BOUND: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Executes a plan for a node and waits up to `timeout` until the claims are bound. The error is the message for the
/// pod.
pub(crate) async fn bind(
    client: &Client,
    caches: &Arc<Caches>,
    plan: &Plan,
    node: &Str,
    timeout: Duration,
) -> Result<(), String> {
    let failed = |error: Error| format!("running PreBind plugin \"VolumeBinding\": binding volumes: {error}");
    for (volume, claim) in &plan.bind {
        set_claim_ref(client, caches, volume, claim).await.map_err(failed)?;
    }
    for claim in &plan.provision {
        select(client, caches, claim, node).await.map_err(failed)?;
    }
    let claims: Vec<&Key> = plan.bind.iter().map(|(_, claim)| claim).chain(&plan.provision).collect();
    match tokio::time::timeout(timeout, wait(caches, &claims, node)).await {
        Ok(outcome) => {
            outcome.map_err(|cause| format!("running PreBind plugin \"VolumeBinding\": binding volumes: {cause}"))
        }
        Err(_) => {
            Err("running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded".to_owned())
        }
    }
}

/// Sets `claimRef` of a volume, unless it is set already.
async fn set_claim_ref(client: &Client, caches: &Arc<Caches>, volume: &Str, claim: &Key) -> Result<(), Error> {
    let (Some(object), Some(claim)) =
        (caches.get(PERSISTENT_VOLUMES, &Key::cluster(volume.clone())), caches.get(PERSISTENT_VOLUME_CLAIMS, claim))
    else {
        return Ok(());
    };
    let meta = Meta::of(&claim);
    if object.str_at(&["spec", "claimRef", "uid"]) == Some(meta.uid()) {
        return Ok(());
    }
    let patch = value!({
        // Fails with a conflict if another writer was faster.
        "metadata": {"resourceVersion": (Meta::of(&object).resource_version()), "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {"claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": (meta.namespace()), "name": (meta.name()),
            "uid": (meta.uid()), "resourceVersion": (meta.resource_version()),
        }},
    });
    let target = Target::object(&kinds::PERSISTENT_VOLUMES, &Key::of(&object));
    client.patch(&target, &Patch::Merge(patch), &WriteOptions::default()).await.map(drop)
}

/// Sets the selected-node annotation of a claim.
async fn select(client: &Client, caches: &Arc<Caches>, claim: &Key, node: &Str) -> Result<(), Error> {
    let Some(object) = caches.get(PERSISTENT_VOLUME_CLAIMS, claim) else { return Ok(()) };
    let meta = Meta::of(&object);
    if meta.annotation(SELECTED_NODE) == Some(node) {
        return Ok(());
    }
    let version = meta.resource_version();
    let patch = value!({
        "metadata": {"resourceVersion": version, "annotations": {"volume.kubernetes.io/selected-node": (node.as_str())}}
    });
    let target = Target::object(&kinds::PERSISTENT_VOLUME_CLAIMS, claim);
    client.patch(&target, &Patch::Merge(patch), &WriteOptions::default()).await.map(drop)
}

/// Waits for claims to be bound; fails early if one can no longer be bound.
async fn wait(caches: &Arc<Caches>, claims: &[&Key], node: &Str) -> Result<(), String> {
    let Some(mut reader) = caches.reader(PERSISTENT_VOLUME_CLAIMS).cloned() else {
        return Err("claims are not watched".to_owned());
    };
    // Until the watch reports the annotation, a claim without it does not mean that the provisioner reset it.
    let mut seen = vec![false; claims.len()];
    loop {
        let objects = reader.snapshot().objects;
        let mut all = true;
        for (claim, seen) in claims.iter().zip(&mut seen) {
            let Some(object) = objects.get(claim) else {
                return Err(format!("persistentvolumeclaim {:?} not found", claim.name));
            };
            let meta = Meta::of(object);
            let bound = object.str_at(&["spec", "volumeName"]).is_some_and(|name| !name.is_empty())
                && meta.annotation(BOUND).is_some();
            all &= bound;
            let selected = meta.annotation(SELECTED_NODE).unwrap_or_default();
            if selected == node.as_str() {
                *seen = true;
            } else if *seen && !bound {
                return Err(format!("provisioning failed for PVC {:?}", claim.name));
            }
        }
        if all {
            return Ok(());
        }
        if reader.advanced().await.is_err() {
            return Err("claims are no longer watched".to_owned());
        }
    }
}
