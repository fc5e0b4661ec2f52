//! Files and directories under the control of a container: access without following links, blocking, or unbounded
//! reads.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};

/// A longer relative path is opened as a separate base directory: the kernel resolves no path of more than 4096 bytes.
const RELATIVE_MAX: usize = 2048;

/// The access mode of [`open_container_file`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// For overwriting an existing file; the file is not created.
    Overwrite,
}

/// Opens a regular file that a container can write or replace.
///
/// Fails if the last component of the path is a symbolic link or anything except a regular file. No other file type is
/// ever opened, so a FIFO does not block and a device sees no access. The file may still be on an unresponsive
/// filesystem: call this where a thread may block.
pub fn open_container_file(path: &Path, access: Access) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_regular(&rustix::fs::openat(CWD, path, flags, Mode::empty())?, access)
}

/// Opens a regular file below `root` for reading. Symbolic links are followed within `root`, but never out of it.
pub fn open_container_file_in(root: &Path, path: &Path) -> io::Result<File> {
    let root = rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = rustix::fs::openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), within)?;
    open_regular(&found, Access::Read)
}

/// Reads a complete file that a container controls. Fails if it is longer than `bytes_max`.
pub fn read_container_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_bounded(open_container_file(path, Access::Read)?, bytes_max)
}

/// Reads an open file. Fails if it is longer than `bytes_max`.
pub fn read_bounded(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("the file is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Returns the last bytes of a file that a container controls, at most `bytes_max`.
pub fn tail_container_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut file = open_container_file(path, Access::Read)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Overwrites a file that containers have mounted, in place: they keep seeing the same file.
pub fn write_container_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = match open_container_file(path, Access::Overwrite) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            File::from(rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(0o600))?)
        }
        opened => opened?,
    };
    file.set_len(0)?;
    file.write_all(content)?;
    Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
}

/// A file found by [`walk_container_tree`].
#[derive(Debug)]
pub struct WalkEntry<'a> {
    /// The file itself, opened with `O_PATH`.
    pub file: BorrowedFd<'a>,
    pub stat: Stat,
    /// The number of directories between the root and the file.
    pub depth: usize,
}

impl WalkEntry<'_> {
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Changes the mode of exactly this file. Not for symbolic links, which have no mode.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // The mode cannot be changed through an `O_PATH` descriptor, but this path leads to its file even if the file
        // was renamed.
        let through = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(rustix::fs::chmod(through, Mode::from_raw_mode(mode))?)
    }

    /// Changes the group of exactly this file, also of a symbolic link.
    pub fn set_group(&self, group: u32) -> io::Result<()> {
        let group = rustix::fs::Gid::from_raw(group);
        Ok(rustix::fs::chownat(self.file, "", None, Some(group), rustix::fs::AtFlags::EMPTY_PATH)?)
    }
}

/// Visits a path and everything below it on the same mount, parents first. Symbolic links are visited, not followed.
/// Files that disappear during the walk are skipped.
pub fn walk_container_tree(path: &Path, mut visit: impl FnMut(&WalkEntry<'_>) -> io::Result<()>) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    let root = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let found = WalkEntry { file: rustix::fd::AsFd::as_fd(&root), stat: rustix::fs::fstat(&root)?, depth: 0 };
    visit(&found)?;
    if found.kind() != FileType::Directory {
        return Ok(());
    }
    // A directory is identified by an open directory and a relative path: neither descriptors nor names grow with the
    // tree.
    let mut waiting = vec![(Rc::new(root), PathBuf::from("."), 0)];
    while let Some((base, relative, depth)) = waiting.pop() {
        let listed = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(dir) = rustix::fs::openat2(&*base, &relative, listed, Mode::empty(), within) else { continue };
        let (base, relative) = match relative.as_os_str().len() > RELATIVE_MAX {
            true => (Rc::new(rustix::io::fcntl_dupfd_cloexec(&dir, 0)?), PathBuf::from(".")),
            false => (base, relative),
        };
        for entry in Dir::read_from(&dir)?.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(file) = rustix::fs::openat2(&dir, name, flags, Mode::empty(), within | ResolveFlags::NO_XDEV) else {
                continue;
            };
            let Ok(stat) = rustix::fs::fstat(&file) else { continue };
            let found = WalkEntry { file: rustix::fd::AsFd::as_fd(&file), stat, depth: depth + 1 };
            visit(&found)?;
            if found.kind() == FileType::Directory {
                let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes());
                waiting.push((Rc::clone(&base), relative.join(name), depth + 1));
            }
        }
    }
    Ok(())
}

fn open_regular(found: &OwnedFd, access: Access) -> io::Result<File> {
    if FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let flags = match access {
        Access::Read => OFlags::RDONLY,
        Access::Overwrite => OFlags::WRONLY,
    };
    // Leads to the checked file, even if its path names another one by now.
    let through = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(CWD, through, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn fifo(path: &Path) {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    }

    #[test]
    fn only_regular_files_are_opened_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "text").unwrap();
        fifo(&path("fifo"));
        symlink(path("file"), path("link")).unwrap();
        assert_eq!(read_container_file(&path("file"), 4).unwrap(), b"text");
        for name in ["fifo", "link", "."] {
            assert!(read_container_file(&path(name), 10).is_err(), "{name}");
            assert!(tail_container_file(&path(name), 10).is_err(), "{name}");
            assert!(write_container_file(&path(name), b"x", 0o644).is_err(), "{name}");
        }
        assert!(read_container_file(Path::new("/dev/zero"), 10).is_err());
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "text");
    }

    #[test]
    fn reads_are_bounded_regardless_of_the_reported_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        File::create(&path).unwrap().set_len(3 << 30).unwrap();
        assert_eq!(read_container_file(&path, 100).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(tail_container_file(&path, 100).unwrap(), [0; 100]);
        write_container_file(&path, b"short", 0o644).unwrap();
        assert_eq!(read_container_file(&path, 100).unwrap(), b"short");
        write_container_file(&dir.path().join("new"), b"n", 0o644).unwrap();
        assert_eq!(fs::metadata(dir.path().join("new")).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn links_do_not_lead_out_of_a_volume() {
        let top = tempfile::tempdir().unwrap();
        let volume = top.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::write(top.path().join("secret"), "s").unwrap();
        fs::write(volume.join("file"), "f").unwrap();
        symlink("file", volume.join("within")).unwrap();
        symlink("../secret", volume.join("out")).unwrap();
        fifo(&volume.join("fifo"));
        let read = |name: &str| open_container_file_in(&volume, Path::new(name)).and_then(|file| read_bounded(file, 9));
        assert_eq!(read("within").unwrap(), b"f");
        assert!(read("out").is_err() && read("fifo").is_err());
    }

    #[test]
    fn walk_visits_everything_below_and_follows_no_links() {
        let top = tempfile::tempdir().unwrap();
        let tree = top.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        symlink("/", tree.join("a/root")).unwrap();
        symlink(&tree, top.path().join("link")).unwrap();
        let count = |path: &Path| {
            let mut seen = Vec::new();
            walk_container_tree(path, |found| {
                seen.push((found.depth, found.kind()));
                Ok(())
            })
            .unwrap();
            seen.len()
        };
        assert_eq!(count(&tree), 5);
        assert_eq!(count(&top.path().join("link")), 1);
        assert!(walk_container_tree(&tree.join("none"), |_| Ok(())).is_err());
    }

    /// Tests a depth beyond the maximum path length, where a container could otherwise hide its files.
    #[test]
    fn walk_reaches_any_depth() {
        let top = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(CWD, top.path(), flags, Mode::empty()).unwrap();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&at, "nested", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "nested", flags, Mode::empty()).unwrap();
        }
        drop(at);
        let mut deepest = 0;
        walk_container_tree(top.path(), |found| {
            deepest = deepest.max(found.depth);
            Ok(())
        })
        .unwrap();
        assert_eq!(deepest, 3_000);
        crate::remove_tree(&top.path().join("nested")).unwrap();
    }
}
