//! Container root filesystem: image layers below a writable directory (overlayfs).

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use container_shim::protocol::{IdMap, IdMaps};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, mknodat, openat2};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_bind_recursive,
    mount_change, move_mount, unmount,
};

/// Mounts an overlay of the layers `lower`, topmost first, with `own/upper` as its writable layer. If `maps` is given,
/// the layers are ID-mapped with the user namespace of the process `pause`. The mount has `nodev`: a container's
/// devices are in its `/dev`, a separate filesystem.
pub(crate) fn mount_writable(
    lower: &[PathBuf],
    own: &Path,
    target: &Path,
    maps: Option<&IdMaps>,
    pause: i32,
) -> io::Result<()> {
    let (upper, work) = (own.join("upper"), own.join("work"));
    for dir in [&upper, &work] {
        fs::create_dir_all(dir)?;
    }
    // The directory becomes the container's root directory.
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o755))?;
    fs::create_dir_all(target)?;
    let Some(maps) = maps else { return overlay(lower, Some((&upper, &work)), target) };
    let outside = |maps: &[IdMap]| maps.iter().find(|map| map.inside == 0).map(|map| map.outside);
    std::os::unix::fs::chown(&upper, outside(&maps.uids), outside(&maps.gids))?;
    let users = fs::File::open(format!("/proc/{pause}/ns/user"))?;
    let mapped: Vec<OwnedFd> = lower
        .iter()
        .map(|dir| {
            let tree = sys::clone_tree(dir)?;
            sys::map_ids(tree.as_fd(), &users)?;
            Ok(tree)
        })
        .collect::<io::Result<_>>()?;
    let paths: Vec<PathBuf> =
        mapped.iter().map(|tree| PathBuf::from(format!("/proc/self/fd/{}", tree.as_raw_fd()))).collect();
    overlay(&paths, Some((&upper, &work)), target)
}

/// Mounts a directory or file, ID-mapped with the user namespace of a process.
pub(crate) fn mount_mapped(source: &Path, target: &Path, pause: i32) -> io::Result<()> {
    create_mount_point(source, target)?;
    let tree = sys::clone_tree(source)?;
    sys::map_ids(tree.as_fd(), fs::File::open(format!("/proc/{pause}/ns/user"))?)?;
    Ok(move_mount(&tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Bind-mounts a directory or file recursively, and sets the propagation of the new mounts.
pub(crate) fn mount_apart(source: &Path, target: &Path, propagation: MountPropagationFlags) -> io::Result<()> {
    create_mount_point(source, target)?;
    mount_bind_recursive(source, target)?;
    // A mount below a shared mount is shared at first.
    Ok(mount_change(target, propagation | MountPropagationFlags::REC)?)
}

/// Creates a mount point: a directory for a directory, a file for anything else.
fn create_mount_point(source: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target.parent().unwrap_or(Path::new("/")))?;
    if source.is_dir() { fs::create_dir_all(target) } else { fs::write(target, "") }
}

/// Resolves a path inside a directory; symlinks do not lead out of it.
pub(crate) fn resolve_in_root(root: &Path, path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Ok(root.to_owned());
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let dir = rustix::fs::open(root, flags | OFlags::DIRECTORY, Mode::empty())?;
    let found = openat2(&dir, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
    fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Mounts the layers of an image volume read-only, with noexec, nosuid and nodev.
pub(crate) fn mount_read_only(lower: &[PathBuf], target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    match lower {
        [only] => {
            rustix::mount::mount_bind(only, target)?;
            let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
            Ok(rustix::mount::mount_remount(target, MountFlags::BIND | flags, "")?)
        }
        _ => overlay(lower, None, target),
    }
}

/// A device node to create outside of a container's `/dev`.
pub(crate) struct Node {
    /// Character or block device.
    pub kind: FileType,
    /// Device number.
    pub device: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Creates device nodes on a separate filesystem at `target`, because the container's root is mounted with `nodev`.
/// Returns their paths in the order of `nodes`.
pub(crate) fn mount_devices(nodes: &[Node], target: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(target)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devices", target, "tmpfs", flags, Some(c"mode=711,size=64k"))?;
    let create = |(n, node): (usize, &Node)| {
        let path = target.join(n.to_string());
        mknodat(CWD, &path, node.kind, Mode::from_raw_mode(node.mode), node.device)?;
        std::os::unix::fs::lchown(&path, Some(node.uid), Some(node.gid))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(node.mode))?;
        Ok(path)
    };
    nodes.iter().enumerate().map(create).collect()
}

/// Unmounts everything at a path; succeeds if nothing is mounted.
pub(crate) fn unmount_all(target: &Path) -> io::Result<()> {
    loop {
        match unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Mounts an overlay; without a writable layer it is an image volume, which is more restricted.
fn overlay(lower: &[PathBuf], writable: Option<(&Path, &Path)>, target: &Path) -> io::Result<()> {
    if adds_layers_one_by_one() {
        overlay_by_parts(lower, writable, target)
    } else {
        overlay_at_once(lower, writable, target)
    }
}

/// Whether overlayfs accepts any number of layers, added one at a time (since Linux 6.7). Older kernels take all layers
/// in one option of limited length.
///
/// Kernels before 6.5 accept every option at first, log an error and then reject the mount. An option that no kernel
/// knows distinguishes them from later kernels, which reject the option itself without logging.
fn adds_layers_one_by_one() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let Ok(context) = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC) else { return false };
        let checks_options = fsconfig_set_string(&context, "knarr-no-such-option", "1").is_err();
        checks_options && fsconfig_set_string(&context, "lowerdir+", "/").is_ok()
    })
}

fn overlay_by_parts(lower: &[PathBuf], writable: Option<(&Path, &Path)>, target: &Path) -> io::Result<()> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for dir in lower {
        fsconfig_set_string(&context, "lowerdir+", dir)?;
    }
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NODEV;
    match writable {
        Some((upper, work)) => {
            fsconfig_set_string(&context, "upperdir", upper)?;
            fsconfig_set_string(&context, "workdir", work)?;
        }
        None => {
            fsconfig_set_flag(&context, "ro")?;
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY
                | MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        }
    }
    fsconfig_create(&context)?;
    let made = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(move_mount(&made, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn overlay_at_once(lower: &[PathBuf], writable: Option<(&Path, &Path)>, target: &Path) -> io::Result<()> {
    let names: Vec<String> = lower.iter().map(|dir| dir.display().to_string()).collect();
    let mut options = format!("lowerdir={}", names.join(":"));
    let mut flags = MountFlags::NODEV;
    match writable {
        Some((upper, work)) => options += &format!(",upperdir={},workdir={}", upper.display(), work.display()),
        None => flags |= MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC,
    }
    let options = std::ffi::CString::new(options)?;
    Ok(mount("overlay", target, "overlay", flags, Some(options.as_c_str()))?)
}
