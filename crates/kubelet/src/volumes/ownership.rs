//! fsGroup: changes the group and modes of a volume.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FileType;

/// `fsGroupChangePolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Always,
    /// Only if the root directory does not have the group yet.
    OnRootMismatch,
}

/// Mode bits added to directories: full access for the group, and setgid.
const DIRECTORY: u32 = 0o2770;
/// Mode bits added to files.
const FILE: u32 = 0o660;
/// Maximum depth of a tree; deeper ones are considered an attack.
const DEPTH_MAX: usize = 256;

/// Applies a group to everything below a path.
pub(super) fn apply_group(path: &Path, group: i64, policy: Policy) -> io::Result<()> {
    let group = u32::try_from(group).map_err(|_| io::Error::other("fsGroup is out of range"))?;
    let root = fs::symlink_metadata(path)?;
    if policy == Policy::OnRootMismatch && root.gid() == group && root.mode() & DIRECTORY == DIRECTORY {
        return Ok(());
    }
    // Other pods with the volume may move files concurrently, so each file is changed through its descriptor.
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
    fn fs_group_is_applied_and_symlinks_are_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let (volume, outside) = (top.path().join("volume"), top.path().join("outside"));
        fs::create_dir_all(volume.join("d")).unwrap();
        for file in [&outside, &volume.join("d/f")] {
            fs::write(file, "x").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        symlink(&outside, volume.join("link")).unwrap();
        let own = fs::metadata(&volume).unwrap().gid();
        apply_group(&volume, i64::from(own), Policy::Always).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&volume) & DIRECTORY, mode(&volume.join("d")) & DIRECTORY), (DIRECTORY, DIRECTORY));
        assert_eq!((mode(&volume.join("d/f")), mode(&outside)), (0o660, 0o600));
    }
}
