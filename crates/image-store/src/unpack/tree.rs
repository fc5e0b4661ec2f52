//! The directory of an unpacked layer, written through file descriptors that cannot leave it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags, fchown, futimens,
    linkat, mkdirat, mknodat, openat, openat2, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

/// Metadata of an entry.
#[derive(Clone)]
pub(super) struct Attributes {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: Timespec,
    pub extended: Vec<(String, Vec<u8>)>,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub(super) struct Tree {
    root: OwnedFd,
    /// Path of the root, to compute paths relative to it.
    root_path: PathBuf,
    /// The directory that was written to last, as a cache: archives are mostly sorted.
    recent: Option<(PathBuf, Directory)>,
    /// Directories that the archive uses without an entry. The paths here and in `times` contain no symlinks. A
    /// replaced directory is removed from both.
    assumed: BTreeSet<PathBuf>,
    /// Times of directories, which are set last, since writing into a directory changes them.
    times: BTreeMap<PathBuf, Timespec>,
}

/// An open directory of the tree and its real path.
struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    fn try_clone(&self) -> io::Result<Directory> {
        Ok(Directory { fd: self.fd.try_clone()?, path: self.path.clone() })
    }
}

impl Tree {
    pub(super) fn open(root: &Path) -> io::Result<Tree> {
        let root = rustix::fs::open(root, DIRECTORY, Mode::empty())?;
        let root_path = std::fs::read_link(proc_path(&root))?;
        Ok(Tree { root, root_path, recent: None, assumed: BTreeSet::new(), times: BTreeMap::new() })
    }

    /// Sets the times of directories and returns the assumed directories.
    pub(super) fn finish(self) -> io::Result<Vec<PathBuf>> {
        for (path, time) in &self.times {
            futimens(open_real(&self.root, path)?, &stamps(*time))?;
        }
        Ok(self.assumed.into_iter().collect())
    }

    pub(super) fn root_attributes(&mut self, attributes: &Attributes) -> io::Result<()> {
        dress(&self.root, attributes)?;
        self.times.insert(PathBuf::new(), attributes.modified);
        Ok(())
    }

    pub(super) fn directory(&mut self, path: &Path, attributes: &Attributes) -> io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        let replaced = match statat(&parent.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => None,
            Ok(stat) => Some(is_whiteout(&stat)),
            Err(Errno::NOENT) => Some(false),
            Err(error) => return Err(error.into()),
        };
        if replaced.is_some() {
            self.clear(&parent, name)?;
            mkdirat(&parent.fd, name, Mode::from_raw_mode(0o755))?;
        }
        let dir = openat(&parent.fd, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        if replaced == Some(true) {
            mark_opaque(&dir)?;
        }
        dress(&dir, attributes)?;
        let path = parent.path.join(name);
        self.assumed.remove(&path);
        self.times.insert(path, attributes.modified);
        Ok(())
    }

    pub(super) fn file(&mut self, path: &Path, content: &mut impl Read, attributes: &Attributes) -> io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        self.clear(&parent, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&parent.fd, name, flags, Mode::from_raw_mode(0o600))?);
        io::copy(content, &mut file)?;
        dress(file.as_fd(), attributes)?;
        Ok(futimens(&file, &stamps(attributes.modified))?)
    }

    pub(super) fn symlink(&mut self, path: &Path, target: &Path, attributes: &Attributes) -> io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        self.clear(&parent, name)?;
        symlinkat(target, &parent.fd, name)?;
        dress_name(&parent.fd, name, attributes)
    }

    pub(super) fn hard_link(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let existing = openat2(&self.root, target, flags, Mode::empty(), within())?;
        self.clear(&parent, name)?;
        Ok(linkat(&existing, "", &parent.fd, name, AtFlags::EMPTY_PATH)?)
    }

    pub(super) fn fifo(&mut self, path: &Path, attributes: &Attributes) -> io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        self.clear(&parent, name)?;
        mknodat(&parent.fd, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&parent.fd, name, flags, Mode::empty())?;
        dress_name(&parent.fd, name, attributes)?;
        // The mode is set after the owner, whose change clears set-user-ID. An O_PATH descriptor does not support
        // fchmod, but its path in /proc does.
        Ok(rustix::fs::chmod(proc_path(&made), Mode::from_raw_mode(attributes.mode))?)
    }

    /// Hides a name of the layers below; an entry of this layer with that name stays.
    pub(super) fn whiteout(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        match mknodat(&parent.fd, name, FileType::CharacterDevice, Mode::empty(), 0) {
            Err(Errno::EXIST) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Hides the content of a directory in the layers below.
    pub(super) fn opaque(&mut self, dir: &Path) -> io::Result<()> {
        if dir.as_os_str().is_empty() {
            return mark_opaque(&self.root);
        }
        let child = dir.join("any name");
        let (parent, _) = self.open_parent(&child)?;
        mark_opaque(&parent.fd)
    }

    /// Returns the directory of an entry and the entry's name in it.
    fn open_parent<'p>(&mut self, path: &'p Path) -> io::Result<(Directory, &'p OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        if let Some((recent, dir)) = &self.recent
            && recent == parent
        {
            return Ok((dir.try_clone()?, name));
        }
        let fd = match resolve(self.root.as_fd(), parent) {
            Err(Errno::NOENT) => self.assume(parent)?,
            found => found?,
        };
        let dir = Directory { path: self.real_path(&fd)?, fd };
        self.recent = Some((parent.to_owned(), dir.try_clone()?));
        Ok((dir, name))
    }

    /// Creates directories that the archive uses without an entry.
    fn assume(&mut self, path: &Path) -> io::Result<OwnedFd> {
        let mut done = PathBuf::new();
        let mut dir = self.root.try_clone()?;
        for component in path.components() {
            done.push(component);
            dir = match resolve(self.root.as_fd(), &done) {
                Err(Errno::NOENT) => {
                    mkdirat(&dir, component.as_os_str(), Mode::from_raw_mode(0o755))?;
                    let made = openat(&dir, component.as_os_str(), DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
                    let path = self.real_path(&made)?;
                    self.assumed.insert(path);
                    made
                }
                found => found?,
            };
        }
        Ok(dir)
    }

    /// Returns the path of an open directory in the tree, without symlinks.
    fn real_path(&self, dir: &OwnedFd) -> io::Result<PathBuf> {
        let path = std::fs::read_link(proc_path(dir))?;
        match path.strip_prefix(&self.root_path) {
            Ok(path) => Ok(path.to_owned()),
            Err(_) => Err(io::Error::other(format!("{} is not in the layer", path.display()))),
        }
    }

    /// Removes the previous entry of the same name and its pending changes.
    fn clear(&mut self, parent: &Directory, name: &OsStr) -> io::Result<()> {
        match unlinkat(&parent.fd, name, AtFlags::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            // The removed entry may have been a symlink on the path of the cached directory.
            Ok(()) => {
                self.recent = None;
                return Ok(());
            }
            Err(Errno::ISDIR | Errno::PERM) => self.recent = None,
            Err(error) => return Err(error.into()),
        }
        let removed = parent.path.join(name);
        self.assumed.retain(|path| !path.starts_with(&removed));
        self.times.retain(|path, _| !path.starts_with(&removed));
        // The descriptor refers to the directory that was resolved inside the root, and `remove_dir_all` follows no
        // symlinks below it.
        std::fs::remove_dir_all(proc_path(&parent.fd).join(name))
    }
}

/// Opens a directory below `root` by a path that must not contain symlinks or cross into another filesystem.
pub(crate) fn open_real(root: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    openat2(root, path, DIRECTORY, Mode::empty(), resolve)
}

/// Returns the path of an open file of this process in /proc.
fn proc_path(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Returns flags that resolve paths with the tree as root.
fn within() -> ResolveFlags {
    ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS
}

fn resolve(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    openat2(root, path, DIRECTORY, Mode::empty(), within())
}

fn stamps(time: Timespec) -> Timestamps {
    Timestamps { last_access: time, last_modification: time }
}

fn is_whiteout(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

fn mark_opaque(dir: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(dir, "trusted.overlay.opaque", b"y", XattrFlags::empty())?)
}

/// Applies the metadata of an entry. The owner is set first, because its change clears set-user-ID and file
/// capabilities.
fn dress(fd: impl AsFd, attributes: &Attributes) -> io::Result<()> {
    fchown(&fd, Some(Uid::from_raw(attributes.uid)), Some(Gid::from_raw(attributes.gid)))?;
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(attributes.mode))?;
    for (name, value) in &attributes.extended {
        match rustix::fs::fsetxattr(&fd, name.as_str(), value, XattrFlags::empty()) {
            // The filesystem does not support extended attributes, or the label belongs to a security module that this
            // kernel lacks.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn dress_name(parent: &OwnedFd, name: &OsStr, attributes: &Attributes) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
    rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(utimensat(parent, name, &stamps(attributes.modified), AtFlags::SYMLINK_NOFOLLOW)?)
}
