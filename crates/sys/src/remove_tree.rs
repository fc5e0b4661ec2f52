//! Removal of directory trees that containers may have written to.
//!
//! The walk opens each directory relative to its parent with `openat2`, so it neither follows a symbolic link nor
//! enters a mount, including bind mounts of the same filesystem. A remaining mount is an error: its content belongs to
//! another owner.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// Directories nested deeper than this are moved up before they are emptied, so that neither the stack nor the number
/// of open descriptors depends on the nesting that a container created.
const DEPTH_MAX: usize = 64;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const WITHIN_MOUNT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Removes a file, a symbolic link, or a directory with everything in it. A path that does not exist is not an error.
///
/// Symbolic links are removed, never followed. Fails with [`io::ErrorKind::CrossesDevices`] at the first mount point,
/// which may be `path` itself; the content of the mount is not modified.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} has no file name", path.display())));
    };
    let parent_path = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match rustix::fs::openat(CWD, parent_path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let name = CString::new(name.as_bytes())?;
    Removal { top: None, moved: 0 }.entry(parent.as_fd(), &name, path, 0)
}

/// Removes everything in a directory and keeps the directory, which may be a mount point. Otherwise like
/// [`remove_tree`].
pub fn remove_contents(dir: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, dir, flags, Mode::empty())?;
    let mut removal = Removal { top: Some(rustix::io::fcntl_dupfd_cloexec(&opened, 0)?), moved: 0 };
    while removal.children(&opened, dir, 0)? > 0 {}
    Ok(())
}

struct Removal {
    /// The directory to which directories that are nested too deeply are moved.
    top: Option<OwnedFd>,
    moved: u64,
}

impl Removal {
    fn entry(&mut self, dir: BorrowedFd<'_>, name: &CStr, display_path: &Path, depth: usize) -> io::Result<()> {
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR) => {}
            Err(error) => return Err(failed("remove", display_path, error)),
        }
        if depth > DEPTH_MAX && self.move_up(dir, name)? {
            return Ok(());
        }
        let opened = match rustix::fs::openat2(dir, name, DIRECTORY, Mode::empty(), WITHIN_MOUNT) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::XDEV) => return Err(mounted(display_path)),
            Err(error) => return Err(failed("open", display_path, error)),
        };
        if self.top.is_none() {
            self.top = Some(rustix::io::fcntl_dupfd_cloexec(&opened, 0)?);
        }
        loop {
            let removed = self.children(&opened, display_path, depth)?;
            match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // Some filesystems omit entries from the listing of a changing directory, and deeply nested directories
                // are moved here.
                Err(Errno::NOTEMPTY | Errno::EXIST) if removed > 0 => {}
                Err(Errno::BUSY) => return Err(mounted(display_path)),
                Err(error) => return Err(failed("remove", display_path, error)),
            }
        }
    }

    /// Removes the listed entries of a directory and returns their number.
    fn children(&mut self, dir: &OwnedFd, display_path: &Path, depth: usize) -> io::Result<u64> {
        let mut count = 0;
        for entry in Dir::read_from(dir).map_err(|error| failed("list", display_path, error))? {
            let entry = entry.map_err(|error| failed("list", display_path, error))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entry(dir.as_fd(), name, &below(display_path, name), depth + 1)?;
            count += 1;
        }
        Ok(count)
    }

    /// Moves a directory to the top of the tree, whose removal lists it again. Returns whether it was moved.
    fn move_up(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
        let Some(top) = &self.top else { return Ok(false) };
        loop {
            let fresh = format!(".removed-{}", self.moved);
            self.moved += 1;
            match rustix::fs::renameat_with(dir, name, top, fresh.as_str(), RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(true),
                Err(Errno::EXIST) => {}
                // The walk that follows reports the error.
                Err(_) => return Ok(false),
            }
        }
    }
}

fn below(dir: &Path, name: &CStr) -> PathBuf {
    dir.join(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

fn failed(what: &str, path: &Path, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("failed to {what} {}: {error}", path.display()))
}

fn mounted(path: &Path) -> io::Error {
    let message = format!("{} is a mount point and is not removed; unmount it first", path.display());
    io::Error::new(io::ErrorKind::CrossesDevices, message)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn tree_is_removed_without_following_links() {
        let top = tempfile::tempdir().unwrap();
        let (outside, tree) = (top.path().join("outside"), top.path().join("tree"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
        remove_tree(&tree).unwrap();
        remove_tree(&tree.join("below/nothing")).unwrap();
        symlink(&outside, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(fs::symlink_metadata(&tree).is_err() && outside.join("kept").exists());
    }

    #[test]
    fn remove_contents_keeps_the_directory() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        fs::write(top.path().join("file"), "x").unwrap();
        remove_contents(top.path()).unwrap();
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    }

    /// A bind mount of the same filesystem has the same device number and can only be recognized as a mount.
    #[test]
    fn mounted_content_is_not_removed() {
        test_requirements::root();
        let top = tempfile::tempdir().unwrap();
        let (outside, tree) = (top.path().join("outside"), top.path().join("tree"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        fs::create_dir_all(tree.join("a/mount")).unwrap();
        fs::write(tree.join("a/file"), "x").unwrap();
        let done = crate::apart(|| {
            rustix::mount::mount_bind(&outside, tree.join("a/mount")).unwrap();
            rustix::mount::mount_bind(outside.join("kept"), tree.join("a/file")).unwrap();
            for path in [&tree, &tree.join("a/mount"), &tree.join("a/file")] {
                assert!(remove_tree(path).is_err(), "{}", path.display());
            }
            assert_eq!(remove_tree(&tree.join("a/mount")).unwrap_err().kind(), io::ErrorKind::CrossesDevices);
            assert!(outside.join("kept").exists());
            crate::unmount_below(&tree).unwrap();
            remove_tree(&tree).unwrap();
        });
        done.unwrap();
        assert!(outside.join("kept").exists() && !tree.exists());
    }

    /// Tests a tree deeper than the maximum path length and the maximum number of descriptors.
    #[test]
    fn tree_of_any_depth_is_removed() {
        let top = tempfile::tempdir().unwrap();
        let mut at = rustix::fs::openat(CWD, top.path(), DIRECTORY, Mode::empty()).unwrap();
        rustix::fs::mkdirat(&at, "tree", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "tree", DIRECTORY, Mode::empty()).unwrap();
        // A name that the removal would choose itself.
        rustix::fs::mkdirat(&at, ".removed-0", Mode::RWXU).unwrap();
        for _ in 0..5_000 {
            rustix::fs::mkdirat(&at, "nested", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&at, "beside", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "nested", DIRECTORY, Mode::empty()).unwrap();
        }
        drop(at);
        remove_tree(&top.path().join("tree")).unwrap();
        assert!(!top.path().join("tree").exists());
    }
}
