//! A volume given to the group of its pod.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

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
    walk(path, group, 0)
}

fn walk(path: &Path, group: u32, depth: usize) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    lchown(path, None, Some(group))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let bits = if metadata.is_dir() { DIRECTORY } else { FILE };
    fs::set_permissions(path, fs::Permissions::from_mode((metadata.mode() & 0o7777) | bits))?;
    if metadata.is_dir() {
        if depth > DEPTH_MAX {
            return Err(io::Error::other("the volume nests too deeply"));
        }
        for entry in fs::read_dir(path)? {
            walk(&entry?.path(), group, depth + 1)?;
        }
    }
    Ok(())
}
