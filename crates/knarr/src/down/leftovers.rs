//! Removal of the mounts, cgroups, logs and data directory of a stopped cluster.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ::kubelet::logs::Logs;
use ::kubelet::resources;
use anyhow::{Context, Result};
use cgroups::Cgroup;
use cgroups::systemd;

use crate::output::outln;

/// Returns the UIDs of the pods of these nodes, from the kubelet's pod directories.
pub(super) fn pod_uids(data_dirs: &[PathBuf]) -> BTreeSet<String> {
    let pods = data_dirs.iter().flat_map(|dir| std::fs::read_dir(dir.join("kubelet/pods"))).flatten().flatten();
    pods.filter_map(|pod| pod.file_name().into_string().ok()).collect()
}

/// Removes the logs of pods, and the log directories if they are empty then.
pub(super) fn remove_logs(uids: &BTreeSet<String>) {
    let pods = ::kubelet::Config::new("").pod_logs_dir;
    let logs = Logs::new(&pods);
    logs.remove_strangers(uids);
    for dir in [logs.links_dir(), &pods] {
        // Fails if another node's logs are in the directory.
        let _ = std::fs::remove_dir(dir);
    }
}

/// Unmounts everything below a directory. The directory itself may be a mount of the operator and stays.
pub(super) fn unmount_below(dir: &Path) -> Result<()> {
    for mount_point in sys::mounts_below(dir)?.iter().rev().filter(|mount_point| *mount_point != dir) {
        rustix::mount::unmount(
            mount_point,
            rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW,
        )
        .with_context(|| format!("failed to unmount {}", mount_point.display()))?;
    }
    Ok(())
}

/// Deletes the data directory. Remaining mounts below it are not entered and make the removal fail.
pub(super) fn remove_data(data_dir: &Path) -> std::io::Result<()> {
    sys::remove_contents(data_dir)?;
    match std::fs::remove_dir(data_dir) {
        // A data directory that is a mount point stays, empty.
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => Ok(()),
        removed => removed,
    }
}

/// Removes the cgroups of a node whose kubelet has a separate cgroup root. A cgroup with a process in it stays.
pub(super) fn remove_cgroup_root(name: &str) {
    for hierarchy in hierarchies() {
        remove_cgroups(&hierarchy.join(name.trim_start_matches('/')));
    }
}

/// Removes the cgroups of pods below the default cgroup root, and those of all pods and of QoS classes if they are
/// empty then. Another kubelet may use them.
pub(super) fn remove_pod_cgroups(uids: &BTreeSet<String>) {
    let classes = ["", resources::BURSTABLE, resources::BEST_EFFORT];
    for hierarchy in hierarchies() {
        let groups = classes.map(|class| hierarchy.join(resources::class_group("", class).trim_start_matches('/')));
        for group in groups.iter().rev() {
            uids.iter().for_each(|uid| remove_cgroups(&group.join(format!("pod{uid}"))));
            let _ = std::fs::remove_dir(group);
        }
    }
}

/// Removes the pods' slices of the `systemd` cgroup driver, and those of all pods and of QoS classes if no other
/// kubelet has pods in them.
pub(super) fn remove_pod_slices(uids: &BTreeSet<String>) {
    let slice = |path: &str| systemd::path_of(&systemd::slice_of(path)).map(|path| Cgroup::at(&path));
    let pods = uids.iter().flat_map(|uid| resources::cgroups_of("/", uid)).filter_map(|path| slice(&path));
    let classes = [resources::BURSTABLE, resources::BEST_EFFORT, ""];
    let classes = classes.into_iter().filter_map(|class| slice(&resources::class_group("/", class)));
    for cgroup in pods.chain(classes.filter(|slice| !slice.has_children())).filter(Cgroup::exists) {
        if let Err(error) = cgroup.remove() {
            outln!("failed to remove the slice {}: {error}", cgroup.path().display());
        }
    }
}

/// Returns the roots of all cgroup hierarchies: one per controller in v1, a single one in v2.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let below = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    below.chain([root.to_owned()]).collect()
}

fn remove_cgroups(group: &Path) {
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroups(&entry.path());
        }
    }
    // The cgroup does not exist in most hierarchies.
    let _ = std::fs::remove_dir(group);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn purge_keeps_the_content_of_mounts() {
        test_requirements::root();
        let top = tempfile::tempdir().unwrap();
        let (data, precious) = (top.path().join("data"), top.path().join("precious"));
        let volume = data.join("kubelet/pods/uid/volumes/kubernetes.io~nfs/v");
        let disk = data.join("disk");
        for dir in [&volume, &disk, &precious] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(precious.join("data"), "x").unwrap();
        let purged = sys::apart(|| {
            for mount_point in [&volume, &disk] {
                rustix::mount::mount_bind_recursive(&precious, mount_point).unwrap();
            }
            unmount_below(&data.join("kubelet")).unwrap();
            let error = remove_data(&data).unwrap_err().to_string();
            assert!(error.contains("is a mount point"), "{error}");
            assert!(precious.join("data").exists());
            rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::DETACH).unwrap();
            remove_data(&data).unwrap();
        });
        purged.unwrap();
        assert!(precious.join("data").exists() && !data.exists());
    }

    #[test]
    fn data_directory_that_is_a_mount_point_is_emptied() {
        test_requirements::root();
        let top = tempfile::tempdir().unwrap();
        let purged = sys::apart(|| {
            rustix::mount::mount("tmpfs", top.path(), "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
            fs::create_dir(top.path().join("store")).unwrap();
            remove_data(top.path()).unwrap();
            assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
        });
        purged.unwrap();
    }
}
