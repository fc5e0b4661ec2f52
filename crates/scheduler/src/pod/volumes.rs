//! Volumes of a pod that scheduling depends on.

use apimachinery::{Key, Str, Value};

/// A PersistentVolumeClaim used by a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    pub name: Str,
    /// Whether it is a generic ephemeral volume; the pod must own the claim.
    pub ephemeral: bool,
}

/// A volume whose use is limited per node or per cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumeUse {
    /// A PersistentVolumeClaim.
    Claim(Key),
    /// A disk that the pod spec names directly.
    Disk {
        /// Volume type and identifying fields.
        id: Str,
        /// Whether the disk can be shared with other read-only users.
        read_only: bool,
    },
}

impl VolumeUse {
    /// Whether both cannot be used on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Disk { id, read_only }, Self::Disk { id: other, read_only: reads }) => {
                id == other && !(*read_only && *reads)
            }
            _ => false,
        }
    }
}

/// Returns the claims of a pod, in the order of its volumes.
pub(super) fn claims(spec: &Value, pod: &str) -> Vec<PodClaim> {
    let claim = |volume: &Value| {
        if let Some(claim) = volume.get("persistentVolumeClaim").filter(|it| !it.is_null()) {
            return Some(PodClaim { name: claim.str_at(&["claimName"])?.into(), ephemeral: false });
        }
        let ephemeral = volume.get("ephemeral").filter(|it| !it.is_null());
        ephemeral
            .and_then(|_| volume.str_at(&["name"]))
            .map(|name| PodClaim { name: format!("{pod}-{name}").into(), ephemeral: true })
    };
    spec.list_at(&["volumes"]).iter().filter_map(claim).collect()
}

/// Returns the claims and disks that a pod uses.
pub(super) fn uses(spec: &Value, namespace: &str, claims: &[PodClaim]) -> Box<[VolumeUse]> {
    let claims = claims.iter().map(|claim| VolumeUse::Claim(Key::new(namespace, claim.name.clone())));
    claims.chain(spec.list_at(&["volumes"]).iter().filter_map(disk)).collect()
}

fn disk(volume: &Value) -> Option<VolumeUse> {
    let text = |disk: &Value, field: &str| disk.text_at(&[field]).to_owned();
    let read_only = |disk: &Value| disk.get("readOnly").and_then(Value::as_bool) == Some(true);
    let made = |id: String, read_only| Some(VolumeUse::Disk { id: id.into(), read_only });
    if let Some(disk) = volume.get("gcePersistentDisk").filter(|it| !it.is_null()) {
        return made(format!("gce {}", text(disk, "pdName")), read_only(disk));
    }
    if let Some(disk) = volume.get("awsElasticBlockStore").filter(|it| !it.is_null()) {
        return made(format!("aws {}", text(disk, "volumeID")), false);
    }
    if let Some(disk) = volume.get("iscsi").filter(|it| !it.is_null()) {
        return made(format!("iscsi {}", text(disk, "iqn")), read_only(disk));
    }
    let disk = volume.get("rbd").filter(|it| !it.is_null())?;
    let mut monitors: Vec<_> = disk.list_at(&["monitors"]).iter().filter_map(Value::as_str).collect();
    monitors.sort_unstable();
    // DEVIATION: two RBD volumes are the same only if all their monitors are equal; upstream requires one common
    // monitor.
    made(format!("rbd {} {} {}", monitors.join(","), text(disk, "pool"), text(disk, "image")), read_only(disk))
}
