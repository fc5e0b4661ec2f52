//! Host files as entries of a layer: all metadata except times.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::{BuildError, header, relative};
use crate::unpack::{WHITEOUT, is_portable, xattr_record};

/// The kernel's limit for lists of extended attributes and for their values.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Adds files to an archive.
pub(super) struct Copier<'a, W: Write> {
    tar: &'a mut Builder<W>,
    /// Archive path of the first name of each file with several hard links, by device and inode.
    linked: BTreeMap<(u64, u64), PathBuf>,
}

impl<'a, W: Write> Copier<'a, W> {
    pub(super) fn new(tar: &'a mut Builder<W>) -> Self {
        Self { tar, linked: BTreeMap::new() }
    }

    /// Adds a file, or everything in a directory, sorted by name. Symlinks below `from` are not followed. Devices and
    /// sockets are omitted: a container gets its devices from its specification, and a socket of an image has no
    /// listener.
    pub(super) fn copy(&mut self, from: &Path, to: &Path) -> Result<(), BuildError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| BuildError::Add { path, source }
        };
        let metadata = fs::metadata(from).map_err(at(from))?;
        if !metadata.is_dir() {
            return self.add(from, relative(to), &metadata).map_err(at(from));
        }
        let to = relative(to);
        if !to.as_os_str().is_empty() {
            self.add(from, to, &metadata).map_err(at(from))?;
        }
        let mut waiting = children(from, to).map_err(at(from))?;
        while let Some((from, to)) = waiting.pop() {
            let metadata = fs::symlink_metadata(&from).map_err(at(&from))?;
            self.add(&from, &to, &metadata).map_err(at(&from))?;
            if metadata.is_dir() {
                waiting.extend(children(&from, &to).map_err(at(&from))?);
            }
        }
        Ok(())
    }

    fn add(&mut self, from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
        let kind = metadata.file_type();
        if to.file_name().is_some_and(|name| name.as_bytes().starts_with(WHITEOUT)) {
            return Err(io::Error::other("names that begin with .wh. delete files of lower layers; rename it"));
        }
        if kind.is_dir() {
            self.extended(from)?;
            return self.tar.append_data(&mut entry(EntryType::Directory, metadata), to, io::empty());
        }
        if kind.is_symlink() {
            let target = fs::read_link(from)?;
            return self.tar.append_link(&mut entry(EntryType::Symlink, metadata), to, target);
        }
        if !kind.is_file() && !kind.is_fifo() {
            return Ok(());
        }
        if metadata.nlink() > 1 {
            let file = (metadata.dev(), metadata.ino());
            if let Some(first) = self.linked.get(&file) {
                return self.tar.append_link(&mut entry(EntryType::Link, metadata), to, first);
            }
            self.linked.insert(file, to.to_owned());
        }
        if kind.is_fifo() {
            return self.tar.append_data(&mut entry(EntryType::Fifo, metadata), to, io::empty());
        }
        self.file(from, to)
    }

    fn file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        // Opening must not block if the file was replaced by a FIFO meanwhile.
        let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(from)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it was replaced while the image was built"));
        }
        self.extended(from)?;
        let mut header = entry(EntryType::Regular, &metadata);
        header.set_size(metadata.len());
        self.tar.append_data(&mut header, to, Exactly { file, left: metadata.len() })
    }

    /// Writes the extended attributes of the entry that follows.
    fn extended(&mut self, path: &Path) -> io::Result<()> {
        let attributes = extended_attributes(path)?;
        let records = attributes.iter().map(|(name, value)| (xattr_record(name), value.as_slice()));
        let records: Vec<(String, &[u8])> = records.collect();
        self.tar.append_pax_extensions(records.iter().map(|(key, value)| (key.as_str(), *value)))
    }
}

/// Reads exactly the announced bytes of a file or fails: a file that shrinks would corrupt the archive.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read(&mut buffer[..want])?;
        if count == 0 && want > 0 {
            return Err(io::Error::other("it became shorter while the image was built"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Returns the entries of a directory in descending order, since they are taken from the end.
fn children(from: &Path, to: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let mut names = fs::read_dir(from)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable_by(|one, other| other.cmp(one));
    Ok(names.into_iter().map(|name| (from.join(&name), to.join(&name))).collect())
}

fn entry(kind: EntryType, metadata: &Metadata) -> Header {
    let mut header = header(kind, metadata.mode() & 0o7777, 0);
    header.set_uid(metadata.uid().into());
    header.set_gid(metadata.gid().into());
    header
}

/// Returns the portable extended attributes, sorted by name.
fn extended_attributes(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut buffer = vec![0; XATTR_BYTES_MAX];
    let length = match rustix::fs::llistxattr(path, &mut buffer[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    let names = buffer[..length].split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let names: Vec<String> = names.filter(|name| is_portable(name)).map(str::to_owned).collect();
    let mut found = BTreeMap::new();
    for name in names {
        let length = rustix::fs::lgetxattr(path, name.as_str(), &mut buffer[..])?;
        found.insert(name, buffer[..length].to_vec());
    }
    Ok(found)
}
