//! Removal of the cgroups and directories of containers and sandboxes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cgroups::Cgroup;
use container_shim::protocol::NETNS;

use crate::error::Error;
use crate::rootfs;

/// Removes a cgroup; retries, since the kernel frees a cgroup a moment after its last process exits.
pub(crate) fn remove_cgroup(cgroup: &Cgroup) -> Result<(), Error> {
    let mut attempts = 0;
    loop {
        match cgroup.remove() {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy && attempts < 200 => {
                attempts += 1;
                cgroup.kill();
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done.map_err(Error::io("remove a cgroup")),
        }
    }
}

/// Unmounts and removes a container's directory.
pub(crate) fn remove_container_dir(dir: &Path) -> Result<(), Error> {
    let unmount = |path: &Path| rootfs::unmount_all(path).map_err(Error::io(format!("unmount {}", path.display())));
    unmount(&dir.join("bundle/rootfs"))?;
    if let Ok(entries) = fs::read_dir(dir.join("mounts")) {
        for entry in entries.flatten() {
            unmount(&entry.path())?;
        }
    }
    // Volumes that are still mounted are not entered: their content must not be deleted.
    sys::remove_tree(dir).map_err(Error::io(format!("remove {}", dir.display())))
}

/// Unmounts and removes a sandbox's directory.
pub(crate) fn remove_sandbox_dir(dir: &Path) -> Result<(), Error> {
    for name in [NETNS, "shm"] {
        rootfs::unmount_all(&dir.join(name)).map_err(Error::io("unmount a sandbox's file"))?;
    }
    sys::remove_tree(dir).map_err(Error::io(format!("remove {}", dir.display())))
}
