//! A volume given to the group of its pod.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FileType;

/// When files that are there already change hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each time.
    Always,
    /// If the directory itself is not the group's yet.
    OnRootMismatch,
}

/// Bits of a directory that a group shares: all for the group, and new files belong to it.
const DIRECTORY: u32 = 0o2770;
/// Bits of a file that a group shares.
const FILE: u32 = 0o660;
/// Deeper trees are not a volume but an attack.
const DEPTH_MAX: usize = 256;

/// Gives everything below a path to a group.
pub fn give(path: &Path, group: i64, policy: Policy) -> io::Result<()> {
    let group = u32::try_from(group).map_err(|_| io::Error::other("fsGroup is out of range"))?;
    let root = fs::symlink_metadata(path)?;
    if policy == Policy::OnRootMismatch && root.gid() == group && root.mode() & DIRECTORY == DIRECTORY {
        return Ok(());
    }
    // Whoever has the volume too may move things while this goes on: each file is changed by its descriptor.
    sys::walk_container_tree(path, |found| {
        if found.depth > DEPTH_MAX {
            return Err(io::Error::other("the volume nests too deeply"));
        }
        found.set_group(group)?;
        let bits = match found.kind() {
            FileType::Symlink => return Ok(()),
            FileType::Directory => DIRECTORY,
            _ => FILE,
        };
        found.set_mode((found.stat.st_mode & 0o7777) | bits)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_volume_is_given_to_its_group_and_links_lead_nowhere() {
        let top = tempfile::tempdir().unwrap();
        let (volume, outside) = (top.path().join("volume"), top.path().join("outside"));
        fs::create_dir_all(volume.join("d")).unwrap();
        for file in [&outside, &volume.join("d/f")] {
            fs::write(file, "x").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        symlink(&outside, volume.join("link")).unwrap();
        let own = fs::metadata(&volume).unwrap().gid();
        give(&volume, i64::from(own), Policy::Always).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&volume) & DIRECTORY, mode(&volume.join("d")) & DIRECTORY), (DIRECTORY, DIRECTORY));
        assert_eq!((mode(&volume.join("d/f")), mode(&outside)), (0o660, 0o600));
    }
}
