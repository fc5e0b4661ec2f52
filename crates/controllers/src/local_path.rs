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

use std::fmt;

use api::resources::{EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, EventOnResult, EventType, Plan, Regarding, Write, kinds};

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

/// A change of a directory of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryChange {
    /// Creates a directory, if it does not exist.
    Create(String),
    /// Removes a directory with its contents, if it exists.
    Remove(String),
}

impl fmt::Display for DirectoryChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(path) => write!(out, "create directory {path}"),
            Self::Remove(path) => write!(out, "remove directory {path}"),
        }
    }
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
    type Config = Config;
    type Effect = DirectoryChange;
    const NAME: &'static str = "local-path-provisioner";
    const READS: &'static [GroupResource] = &[PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES];
    const WRITES: &'static [Write] = &[(PERSISTENT_VOLUMES, ""), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            PERSISTENT_VOLUME_CLAIMS => {
                keys.push(Key::of(object));
                let volume = object.text_at(&["spec", "volumeName"]);
                keys.extend((!volume.is_empty()).then(|| Key::cluster(volume)));
            }
            PERSISTENT_VOLUMES => keys.push(Key::of(object)),
            _ => {
                let claims = cache.of(PERSISTENT_VOLUME_CLAIMS).iter();
                keys.extend(claims.filter(|it| awaits_volume(&it.value)).map(|it| it.key.clone()));
            }
        }
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Config, key: &Key) -> Option<Observation<'a>> {
        if key.namespace.is_empty() {
            let volume = cache.get(PERSISTENT_VOLUMES, key)?;
            let is_own = Meta::of(volume).annotation(PROVISIONED_BY) == Some(PROVISIONER);
            let here = nodes_of(volume) == [config.node.as_str()];
            return (is_own && here).then(|| Observation::Volume { volume, claimed: is_claimed(cache, volume) });
        }
        let claim = cache.get(PERSISTENT_VOLUME_CLAIMS, key).filter(|claim| awaits_volume(claim))?;
        let class = Key::cluster(claim.text_at(&["spec", "storageClassName"]));
        let class = cache.get(STORAGE_CLASSES, &class)?;
        let is_own = class.text_at(&["provisioner"]) == PROVISIONER;
        let here = Meta::of(claim).annotation(SELECTED_NODE) == Some(config.node.as_str());
        let made = cache.get(PERSISTENT_VOLUMES, &Key::cluster(volume_name(claim))).is_some();
        (is_own && here && !made).then_some(Observation::Claim { claim, class, config })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan<DirectoryChange> {
        match observed {
            Observation::Claim { claim, class, config } => match objection(claim) {
                None => provision(claim, class, config),
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
        && claim.text_at(&["spec", "volumeName"]).is_empty()
        && !meta.is_deleting()
}

/// Whether the claim that the volume is bound to exists with the same UID.
fn is_claimed(cache: &Cache, volume: &Value) -> bool {
    let reference = |field| volume.text_at(&["spec", "claimRef", field]);
    let claim = cache.get(PERSISTENT_VOLUME_CLAIMS, &Key::new(reference("namespace"), reference("name")));
    claim.is_some_and(|claim| Meta::of(claim).uid() == reference("uid"))
}

/// Returns the reason why the claim cannot be provisioned.
fn objection(claim: &Value) -> Option<&'static str> {
    let one_node = ["ReadWriteOnce", "ReadWriteOncePod"];
    let modes = claim.list_at(&["spec", "accessModes"]);
    if !modes.iter().all(|mode| mode.as_str().is_some_and(|mode| one_node.contains(&mode))) {
        Some("a folder of one node can only be ReadWriteOnce or ReadWriteOncePod")
    } else if claim.text_at(&["spec", "volumeMode"]) == "Block" {
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

fn provision(claim: &Value, class: &Value, config: &Config) -> Plan<DirectoryChange> {
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
            "accessModes": (claim.list_at(&["spec", "accessModes"]).to_vec()),
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
    Plan::after(DirectoryChange::Create(path), &[], create)
}

/// Returns the next step for a released or deleted volume.
fn reclaim(volume: &Value, claimed: bool) -> Plan<DirectoryChange> {
    let meta = Meta::of(volume);
    let goes = volume.text_at(&["spec", "persistentVolumeReclaimPolicy"]) == "Delete";
    let phase = volume.text_at(&["status", "phase"]);
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
    Plan::after(DirectoryChange::Remove(volume.text_at(&["spec", "local", "path"]).to_owned()), &[], update)
}

/// Returns the nodes in the volume's node affinity.
fn nodes_of(volume: &Value) -> Vec<&str> {
    let terms = volume.list_at(&["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
    let expressions = terms.iter().flat_map(|term| term.list_at(&["matchExpressions"]));
    let by_name = expressions.filter(|expression| expression.text_at(&["key"]) == HOST_NAME);
    by_name.flat_map(|expression| expression.list_at(&["values"])).filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests;
