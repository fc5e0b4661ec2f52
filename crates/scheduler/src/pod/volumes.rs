//! The volumes of a pod that placing it depends on.

use machinery::{Key, Str, Value};

use super::items;

/// A claim that a pod needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    /// Its name.
    pub name: Str,
    /// Whether it is made for the pod, and must be the pod's.
    pub ephemeral: bool,
}

/// Something of which a node or the cluster has only so much.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumeUse {
    /// A claim.
    Claim(Key),
    /// A disk that the pod names itself.
    Disk {
        /// Which one: its kind and what tells it from others.
        id: Str,
        /// Whether it may be shared with others that only read.
        read_only: bool,
    },
}

impl VolumeUse {
    /// Whether both cannot be had on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Disk { id, read_only }, Self::Disk { id: other, read_only: reads }) => {
                id == other && !(*read_only && *reads)
            }
            _ => false,
        }
    }
}

/// The claims of a pod, in the order of its volumes.
pub fn claims(spec: &Value, pod: &str) -> Vec<PodClaim> {
    let claim = |volume: &Value| {
        if let Some(claim) = volume.get("persistentVolumeClaim").filter(|it| !it.is_null()) {
            return Some(PodClaim { name: claim.str_at(&["claimName"])?.into(), ephemeral: false });
        }
        let ephemeral = volume.get("ephemeral").filter(|it| !it.is_null());
        ephemeral
            .and_then(|_| volume.str_at(&["name"]))
            .map(|name| PodClaim { name: format!("{pod}-{name}").into(), ephemeral: true })
    };
    items(spec, "volumes").iter().filter_map(claim).collect()
}

/// What the volumes of a pod take.
pub fn uses(spec: &Value, namespace: &str, claims: &[PodClaim]) -> Box<[VolumeUse]> {
    let claims = claims.iter().map(|claim| VolumeUse::Claim(Key::new(namespace, claim.name.clone())));
    claims.chain(items(spec, "volumes").iter().filter_map(disk)).collect()
}

fn disk(volume: &Value) -> Option<VolumeUse> {
    let text = |disk: &Value, field: &str| disk.str_at(&[field]).unwrap_or_default().to_owned();
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
    let mut monitors: Vec<_> = items(disk, "monitors").iter().filter_map(Value::as_str).collect();
    monitors.sort_unstable();
    // DEVIATION: two disks of Ceph are the same only if all their monitors are, not if one is.
    made(format!("rbd {} {} {}", monitors.join(","), text(disk, "pool"), text(disk, "image")), read_only(disk))
}
