//! User namespaces of pods with `hostUsers: false`: each pod has an exclusive range of user IDs.
//!
//! A file in the pod's directory stores its range, so that the pod keeps it. The nodes of one host share its IDs, so
//! each range is also claimed in a directory of the host.

mod claims;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use apimachinery::{Value, json, value};
use node_api::cri::v1;

use crate::checkpoint;
use crate::pod::Pod;
use claims::Claims;

/// Number of IDs per pod: 16 bits, which most programs expect.
const LENGTH: u32 = 65_536;
/// Directory in which the nodes of a host claim ranges. Its content does not survive a reboot, and neither do processes
/// with these IDs.
const CLAIMS: &str = "/run/knarr/userns";
/// File in the pod's directory that stores its range.
const FILE: &str = "userns";

/// Allocates ID ranges to pods.
pub struct Users {
    pods: PathBuf,
    /// Ranges of all nodes of this host.
    claims: Claims,
    /// Serializes allocations.
    choosing: Mutex<()>,
}

impl Users {
    /// Creates an allocator for pods whose directories are below `root`.
    pub fn new(root: &Path) -> Self {
        Self::with_claims(root, Path::new(CLAIMS))
    }

    fn with_claims(root: &Path, claims: &Path) -> Self {
        Self { pods: root.join("pods"), claims: Claims::new(claims), choosing: Mutex::default() }
    }

    /// Returns the user namespace of a pod; `None` if it uses the host's.
    pub fn of(&self, pod: Pod<'_>) -> io::Result<Option<v1::UserNamespace>> {
        if pod.spec()["hostUsers"].as_bool() != Some(false) {
            return Ok(None);
        }
        let _alone = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = self.pods.join(pod.uid());
        let machine = self.claims.lock()?;
        let first = match read(&dir) {
            Some(first) if machine.claim(first, &dir)? => first,
            // The pod has no range, or another node took its range while this one was down.
            _ => {
                let others = fs::read_dir(&self.pods)?.flatten().filter_map(|entry| read(&entry.path()));
                let used: BTreeSet<u32> = others.chain(machine.taken(&dir)?).collect();
                let first = free(&used).ok_or_else(|| io::Error::other("all user ID ranges are in use"))?;
                write(&dir, first)?;
                machine.claim(first, &dir)?;
                first
            }
        };
        let map = v1::IdMapping { host_id: first, container_id: 0, length: LENGTH };
        Ok(Some(v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![map], gids: vec![map] }))
    }
}

/// Adds the pod's ID mappings to mounts, so that the owner of a file has the same ID in the pod as on the host.
pub(crate) fn map_mounts(mounts: &mut [v1::Mount], users: &v1::UserNamespace) {
    for mount in mounts.iter_mut().filter(|mount| !mount.host_path.is_empty()) {
        mount.uid_mappings.clone_from(&users.uids);
        mount.gid_mappings.clone_from(&users.gids);
    }
}

/// Returns the first ID of the lowest free range. The first range belongs to the host.
fn free(used: &BTreeSet<u32>) -> Option<u32> {
    (1..u32::MAX / LENGTH).map(|n| n * LENGTH).find(|first| !used.contains(first))
}

fn read(dir: &Path) -> Option<u32> {
    let value = json::parse(&fs::read(dir.join(FILE)).ok()?).ok()?;
    let first = value["uidMappings"].as_array()?.first()?["hostId"].as_int()?;
    u32::try_from(first).ok()
}

fn write(dir: &Path, first: u32) -> io::Result<()> {
    let map = value!([{"hostId": (i64::from(first)), "containerId": 0, "length": (i64::from(LENGTH))}]);
    let value: Value = value!({"uidMappings": (map.clone()), "gidMappings": map});
    checkpoint::write(dir, FILE, &value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_ranges_of_pods_are_exclusive_and_stable() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("pods")).unwrap();
        let users = Users::with_claims(root.path(), &root.path().join("claims"));
        let first = |uid: &str, host: bool| {
            let pod = value!({"metadata": {"uid": uid}, "spec": {"hostUsers": host}});
            users.of(Pod(&pod)).unwrap().map(|users| users.uids[0].host_id)
        };
        assert_eq!(first("a", false), Some(65_536));
        assert_eq!(first("b", false), Some(131_072));
        assert_eq!(first("a", false), Some(65_536));
        assert_eq!(first("c", true), None);
        fs::remove_dir_all(root.path().join("pods/a")).unwrap();
        assert_eq!(first("d", false), Some(65_536));
    }

    #[test]
    fn nodes_of_one_host_never_share_a_range() {
        let machine = tempfile::tempdir().unwrap();
        let node = |name: &str| {
            let root = machine.path().join(name);
            fs::create_dir_all(root.join("pods")).unwrap();
            Users::with_claims(&root, &machine.path().join("claims"))
        };
        let (one, two) = (node("one"), node("two"));
        let first = |users: &Users, uid: &str| {
            let pod = value!({"metadata": {"uid": uid}, "spec": {"hostUsers": false}});
            users.of(Pod(&pod)).unwrap().unwrap().uids[0].host_id
        };
        assert_eq!((first(&one, "a"), first(&two, "b"), first(&one, "c")), (65_536, 131_072, 196_608));
        assert_eq!(first(&node("two"), "b"), 131_072, "a node that starts again keeps its pods' ranges");
        fs::remove_dir_all(machine.path().join("one/pods/a")).unwrap();
        assert_eq!(first(&two, "d"), 65_536, "the range of a deleted pod is free");
        // A reboot removes the claims, and the first node to start claims its previous ranges.
        fs::remove_dir_all(machine.path().join("claims")).unwrap();
        fs::remove_dir_all(machine.path().join("two/pods")).unwrap();
        let two = node("two");
        assert_eq!(first(&two, "e"), 65_536);
        assert_eq!(first(&one, "c"), 196_608);
        assert_eq!(first(&two, "f"), 131_072);
    }
}
