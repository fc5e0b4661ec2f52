//! The mount table of this process (`mountinfo`).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::UnmountFlags;

const TABLE: &str = "/proc/thread-self/mountinfo";

/// Returns the mount points at and below a path, in mount order.
///
/// Symbolic links in the path before its last component are resolved first, because the kernel lists resolved paths.
/// The last component itself is not accessed: it may be a mount whose server does not respond.
pub fn mounts_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let path = match resolved(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        resolved => resolved?,
    };
    Ok(points(&fs::read(TABLE)?).filter(|point| point.starts_with(&path)).collect())
}

/// Whether there is a mount at exactly this path.
pub fn is_mount_point(path: &Path) -> io::Result<bool> {
    let Ok(path) = resolved(path) else { return Ok(false) };
    Ok(points(&fs::read(TABLE)?).any(|point| point == path))
}

/// A mount and its propagation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    pub point: PathBuf,
    /// Mounts below it propagate to its peers and vice versa.
    pub is_shared: bool,
    /// Mounts below its master propagate to it.
    pub is_slave: bool,
}

/// Returns the mount that contains a path.
pub fn mount_of(path: &Path) -> io::Result<MountEntry> {
    let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?;
    let found = entry(&fs::read(TABLE)?, stat.stx_mnt_id);
    found.ok_or_else(|| io::Error::other(format!("the mount of {} is not in {TABLE}", path.display())))
}

/// Returns the mount with this ID: its mount point, and the tags between its options and the separator.
fn entry(table: &[u8], id: u64) -> Option<MountEntry> {
    table.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let number: u64 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let point = unescaped(fields.nth(3)?);
        let tags: Vec<&[u8]> = fields.skip(1).take_while(|field| *field != b"-").collect();
        let has = |tag: &[u8]| tags.iter().any(|field| field.starts_with(tag));
        (number == id).then(|| MountEntry { point, is_shared: has(b"shared:"), is_slave: has(b"master:") })
    })
}

/// Unmounts everything at and below a path, the latest mount first. A mount in use is detached, and unmounted after its
/// last use.
pub fn unmount_below(path: &Path) -> io::Result<()> {
    for point in mounts_below(path)?.iter().rev() {
        rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("failed to unmount {}: {error}", point.display()))
        })?;
    }
    Ok(())
}

fn resolved(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => Ok(fs::canonicalize(parent)?.join(name)),
        _ => fs::canonicalize(path),
    }
}

fn points(table: &[u8]) -> impl Iterator<Item = PathBuf> {
    let field = |line: &[u8]| Some(unescaped(line.split(|byte| *byte == b' ').nth(4)?));
    table.split(|byte| *byte == b'\n').filter_map(field)
}

/// Decodes the kernel's octal escapes of space, tab, newline and backslash.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        let value = octal.map(|digits| digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0')));
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_mount_points_are_decoded() {
        let table = b"29 1 0:26 / / rw - overlay o rw\n30 29 0:27 / /a\\040b\\134c rw,x shared:1 - tmpfs tmpfs rw\n";
        let found: Vec<PathBuf> = points(table).collect();
        assert_eq!(found, [PathBuf::from("/"), PathBuf::from("/a b\\c")]);
        assert_eq!(unescaped(b"\\9\\04"), PathBuf::from("\\9\\04"));
    }

    #[test]
    fn mount_of_a_path_has_its_propagation() {
        let table = b"29 1 0:26 / / rw - overlay o rw\n30 29 0:27 / /a\\040b rw,x shared:1 master:2 - tmpfs tmpfs rw\n\
            31 29 0:28 / /c rw master:1 - tmpfs tmpfs rw\n";
        let check = |id: u64, expect: Option<(&str, bool, bool)>| {
            let expect =
                expect.map(|(point, is_shared, is_slave)| MountEntry { point: point.into(), is_shared, is_slave });
            assert_eq!(entry(table, id), expect, "{id}");
        };
        check(29, Some(("/", false, false)));
        check(30, Some(("/a b", true, true)));
        check(31, Some(("/c", false, true)));
        check(1, None);
        assert_eq!(mount_of(Path::new("/proc/self/status")).unwrap().point, PathBuf::from("/proc"));
    }

    #[test]
    fn mount_is_found_through_a_link_to_its_parent() {
        let top = tempfile::tempdir().unwrap();
        let link = top.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert!(is_mount_point(&link.join("proc")).unwrap());
        assert!(mounts_below(&link.join("proc")).unwrap().contains(&PathBuf::from("/proc")));
        assert!(!is_mount_point(&link).unwrap());
        assert_eq!(mounts_below(&top.path().join("none/none")).unwrap(), Vec::<PathBuf>::new());
    }
}
