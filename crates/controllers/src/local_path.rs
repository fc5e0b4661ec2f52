//! Local path provisioner: volumes as directories of one node, the default StorageClass of small clusters.
//!
//! The controller runs on every node and manages only that node's volumes. A key with a namespace is a claim, one
//! without is a volume.
//!
//! ```text
//!   claim, its node selected ──> directory and volume created ──> bound … released
//!     ──> volume deleted ──> directory removed ──> finalizer removed
//! ```
//!
//! The volume's finalizer is removed only after the directory, so that no directory outlives its volume, however the
//! volume is deleted.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::Time;
use apimachinery::{Key, Value, value};
use controller::{Action, Cache, Controller, EventOnResult, EventType, Plan, Regarding, SideEffect, kinds};

use crate::read::{list, text};

/// The provisioner's name in StorageClasses.
pub const PROVISIONER: &str = "knarr.dev/local-path";
/// The finalizer that keeps a volume until its directory is removed.
const FINALIZER: &str = PROVISIONER;

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const HOST_NAME: &str = "kubernetes.io/hostname";

/// The node and its volume directory.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name, equal to its label `kubernetes.io/hostname`.
    pub node: String,
    /// The parent directory of all volumes.
    pub root: String,
}

pub struct LocalPath;

pub enum Observation<'a> {
    /// An unbound claim whose selected node is this one.
    Claim {
        claim: &'a Value,
        /// The claim's StorageClass.
        class: &'a Value,
        config: &'a Config,
    },
    /// A volume of this node.
    Volume {
        volume: &'a Value,
        /// Whether the claim that the volume is bound to still exists.
        claimed: bool,
    },
}

impl Controller for LocalPath {
    type Observed<'a> = Observation<'a>;
    const NAME: &'static str = "local-path-provisioner";
    const READS: &'static [&'static str] =
        &["persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"];
    const WRITES: &'static [&'static str] = &["persistentvolumes", "events"];

    fn affected_keys(cache: &Cache, kind: &str, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            "persistentvolumeclaims" => {
                keys.push(Key::of(object));
                let volume = text(object, &["spec", "volumeName"]);
                keys.extend((!volume.is_empty()).then(|| Key::cluster(volume)));
            }
            "persistentvolumes" => keys.push(Key::of(object)),
            _ => {
                let claims = cache.of("persistentvolumeclaims").iter();
                keys.extend(claims.filter(|it| awaits_volume(&it.value)).map(|it| it.key.clone()));
            }
        }
    }

    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<Observation<'a>> {
        let config = cache.config::<Config>()?;
        if key.namespace.is_empty() {
            let volume = cache.get("persistentvolumes", key)?;
            let is_own = Meta::of(volume).annotation(PROVISIONED_BY) == Some(PROVISIONER);
            let here = nodes_of(volume) == [config.node.as_str()];
            return (is_own && here).then(|| Observation::Volume { volume, claimed: is_claimed(cache, volume) });
        }
        let claim = cache.get("persistentvolumeclaims", key).filter(|claim| awaits_volume(claim))?;
        let class = Key::cluster(text(claim, &["spec", "storageClassName"]));
        let class = cache.get("storageclasses.storage.k8s.io", &class)?;
        let is_own = text(class, &["provisioner"]) == PROVISIONER;
        let here = Meta::of(claim).annotation(SELECTED_NODE) == Some(config.node.as_str());
        let made = cache.get("persistentvolumes", &Key::cluster(volume_name(claim))).is_some();
        (is_own && here && !made).then_some(Observation::Claim { claim, class, config })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        match observed {
            Observation::Claim { claim, class, config } => match objection(claim) {
                None => Plan::of(provision(claim, class, config)),
                Some(cause) => Plan {
                    actions: vec![Action::Event {
                        regarding: Regarding::object(claim),
                        kind: EventType::Warning,
                        reason: "ProvisioningFailed",
                        message: format!(
                            "failed to provision volume with StorageClass {:?}: {cause}",
                            Meta::of(class).name()
                        ),
                    }],
                    ..Plan::waiting(cause)
                },
            },
            Observation::Volume { volume, claimed } => reclaim(volume, *claimed),
        }
    }
}

/// Whether the claim waits for a volume of this provisioner.
fn awaits_volume(claim: &Value) -> bool {
    let meta = Meta::of(claim);
    meta.annotation(STORAGE_PROVISIONER) == Some(PROVISIONER)
        && text(claim, &["spec", "volumeName"]).is_empty()
        && !meta.is_deleting()
}

/// Whether the claim that the volume is bound to exists with the same UID.
fn is_claimed(cache: &Cache, volume: &Value) -> bool {
    let reference = |field| text(volume, &["spec", "claimRef", field]);
    let claim = cache.get("persistentvolumeclaims", &Key::new(reference("namespace"), reference("name")));
    claim.is_some_and(|claim| Meta::of(claim).uid() == reference("uid"))
}

/// Returns the reason why the claim cannot be provisioned.
fn objection(claim: &Value) -> Option<&'static str> {
    let one_node = ["ReadWriteOnce", "ReadWriteOncePod"];
    let modes = list(claim, &["spec", "accessModes"]);
    if !modes.iter().all(|mode| mode.as_str().is_some_and(|mode| one_node.contains(&mode))) {
        Some("a folder of one node can only be ReadWriteOnce or ReadWriteOncePod")
    } else if text(claim, &["spec", "volumeMode"]) == "Block" {
        Some("a folder is no block device")
    } else if claim.at(&["spec", "selector"]).is_some_and(|selector| !selector.is_null()) {
        Some("claim.Spec.Selector is not supported")
    } else if ["dataSource", "dataSourceRef"].iter().any(|field| claim.at(&["spec", field]).is_some()) {
        Some("volumes are made empty, not from a data source")
    } else {
        None
    }
}

/// Returns a name derived from the claim's UID, so that no volume is provisioned twice.
fn volume_name(claim: &Value) -> String {
    format!("pvc-{}", Meta::of(claim).uid())
}

fn provision(claim: &Value, class: &Value, config: &Config) -> Action {
    let meta = Meta::of(claim);
    let name = volume_name(claim);
    let path = format!("{}/{name}_{}_{}", config.root, meta.namespace(), meta.name());
    let reference = value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": (meta.namespace()),
        "name": (meta.name()), "uid": (meta.uid())});
    let here = value!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": HOST_NAME, "operator": "In", "values": [(config.node.as_str())]}]}]}});
    let object = value!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": (name.as_str()),
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "accessModes": (list(claim, &["spec", "accessModes"]).to_vec()),
            "capacity": (claim.at(&["spec", "resources", "requests"]).cloned().unwrap_or_else(Value::object)),
            "claimRef": reference,
            "local": {"path": (path.as_str())},
            "nodeAffinity": here,
            "persistentVolumeReclaimPolicy": (class.str_at(&["reclaimPolicy"]).unwrap_or("Delete")),
            "storageClassName": (Meta::of(class).name()),
            "volumeMode": "Filesystem",
        },
    });
    let result_event = EventOnResult {
        regarding: Regarding::object(claim),
        done_reason: "ProvisioningSucceeded",
        done_message: format!("Successfully provisioned volume {name}"),
        failed: Some(("ProvisioningFailed", "failed to create the volume".into())),
    };
    let create = Action::Create {
        resource: kinds::PERSISTENT_VOLUMES.clone(),
        object,
        result_event: Some(Box::new(result_event)),
    };
    Action::WithSideEffect { side_effect: SideEffect::CreateDirectory(path), into: &[], then: Box::new(create) }
}

/// Returns the next step for a released or deleted volume.
fn reclaim(volume: &Value, claimed: bool) -> Plan {
    let meta = Meta::of(volume);
    let goes = text(volume, &["spec", "persistentVolumeReclaimPolicy"]) == "Delete";
    let phase = text(volume, &["status", "phase"]);
    if !meta.is_deleting() {
        let is_over = phase == "Released" && goes && !claimed;
        return if is_over { Plan::of(Action::delete(&kinds::PERSISTENT_VOLUMES, volume)) } else { Plan::default() };
    }
    if !meta.finalizers().any(|finalizer| finalizer == FINALIZER) {
        return Plan::default();
    }
    if claimed || phase == "Bound" {
        return Plan::waiting("the claim still exists");
    }
    let mut object = volume.clone();
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.remove_finalizer(FINALIZER);
    }
    let update = Action::Update { resource: kinds::PERSISTENT_VOLUMES.clone(), object, result_event: None };
    if !goes {
        return Plan::of(update);
    }
    let side_effect = SideEffect::RemoveDirectory(text(volume, &["spec", "local", "path"]).to_owned());
    Plan::of(Action::WithSideEffect { side_effect, into: &[], then: Box::new(update) })
}

/// Returns the nodes in the volume's node affinity.
fn nodes_of(volume: &Value) -> Vec<&str> {
    let terms = list(volume, &["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
    let expressions = terms.iter().flat_map(|term| list(term, &["matchExpressions"]));
    let by_name = expressions.filter(|expression| text(expression, &["key"]) == HOST_NAME);
    by_name.flat_map(|expression| list(expression, &["values"])).filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests;
