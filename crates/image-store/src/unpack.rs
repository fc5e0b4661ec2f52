//! Unpacks a layer archive into a directory in overlayfs form, without touching anything outside of it.
//!
//! The kernel resolves every path with the directory as its root, so that `..`, absolute symlinks and symlinks out of
//! the tree stay inside. Whiteouts become character devices 0/0, opaque directories get overlayfs's extended attribute.

mod limits;
mod pax;
mod tree;

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::Timespec;
use tar::{Archive, Entry, EntryType};

pub(crate) use limits::ArchiveLimits;
use limits::{Allowance, MeteredReader};
pub(crate) use tree::open_real;
use tree::{Attributes, Tree};

/// Name prefix of a whiteout: an entry that hides the file with the rest of its name in lower layers.
pub(crate) const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Prefix of extended attributes in PAX keys.
const XATTR: &str = "SCHILY.xattr.";

/// An archive was rejected.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("the archive is damaged")]
    Archive(#[source] io::Error),
    #[error("entry {0:?} leaves the layer")]
    Escape(PathBuf),
    /// The target of a hard link is not in the layer.
    #[error("entry {path:?} links to {target:?}, which the layer does not have")]
    Link { path: PathBuf, target: PathBuf },
    /// The layer exceeds its size limit.
    #[error("the layer is larger than {0}")]
    TooLarge(String),
    #[error("cannot unpack {path:?}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The result of unpacking.
#[derive(Debug, Default)]
pub(crate) struct UnpackResult {
    pub bytes: u64,
    pub inodes: u64,
    /// Directories that the archive uses without an entry for them.
    pub assumed: Vec<PathBuf>,
}

/// Unpacks a tar archive into an empty directory.
pub(crate) fn unpack(archive: impl Read, into: &Path, limits: &ArchiveLimits) -> Result<UnpackResult, UnpackError> {
    let at = |source: io::Error| UnpackError::Io { path: PathBuf::from("/"), source };
    let mut tree = Tree::open(into).map_err(at)?;
    let mut unpacked = UnpackResult::default();
    let allowance = Allowance::default();
    let mut archive = Archive::new(MeteredReader::new(archive, &allowance));
    let mut entries = archive.entries().map_err(UnpackError::Archive)?;
    loop {
        allowance.start();
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(UnpackError::Archive)?;
        allowance.end();
        unpacked.inodes += 1;
        if unpacked.inodes > limits.entries {
            return Err(UnpackError::TooLarge(format!("{} entries", limits.entries)));
        }
        unpacked.bytes = unpacked.bytes.saturating_add(entry.size());
        if unpacked.bytes > limits.bytes {
            return Err(UnpackError::TooLarge(limits.bound.clone()));
        }
        let (read, offset) = allowance.header();
        let records = pax::records(&read, offset).map_err(UnpackError::Archive)?;
        one(&mut tree, &mut entry, &records)?;
        // Entries other than files may also claim to have content, which is skipped.
        io::copy(&mut entry, &mut io::sink()).map_err(UnpackError::Archive)?;
    }
    allowance.end();
    unpacked.assumed = tree.finish().map_err(at)?;
    Ok(unpacked)
}

fn one<R: Read>(tree: &mut Tree, entry: &mut Entry<'_, R>, records: &[(&str, &[u8])]) -> Result<(), UnpackError> {
    let kind = entry.header().entry_type();
    if matches!(kind, EntryType::XGlobalHeader | EntryType::XHeader) {
        return Ok(());
    }
    let path = relative_path(&entry.path_bytes())?;
    let io = |source: io::Error| UnpackError::Io { path: path.clone(), source };
    let attributes = attributes(entry.header(), records).map_err(io)?;
    let Some(name) = path.file_name() else {
        return tree.root_attributes(&attributes).map_err(io);
    };
    if name.as_bytes() == OPAQUE {
        return tree.opaque(path.parent().expect("a path with a name has a parent")).map_err(io);
    }
    if let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) {
        if hidden.is_empty() || hidden == b"." || hidden == b".." {
            return Err(UnpackError::Escape(path));
        }
        return tree.whiteout(&path.with_file_name(OsStr::from_bytes(hidden))).map_err(io);
    }
    match kind {
        EntryType::Directory => tree.directory(&path, &attributes).map_err(io),
        EntryType::Symlink => {
            let target = link_target(entry, &path)?;
            tree.symlink(&path, &target, &attributes).map_err(io)
        }
        EntryType::Link => {
            let target = relative_path(link_target(entry, &path)?.as_os_str().as_bytes())?;
            match tree.hard_link(&path, &target) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Err(UnpackError::Link { path, target }),
                done => done.map_err(io),
            }
        }
        // A container gets its devices from its specification, never from an image.
        EntryType::Char | EntryType::Block => {
            tracing::debug!(?path, "ignoring a device node of a layer");
            Ok(())
        }
        EntryType::Fifo => tree.fifo(&path, &attributes).map_err(io),
        // All other types contain data: regular, contiguous and sparse files, and vendor-specific types.
        _ => tree.file(&path, entry, &attributes).map_err(io),
    }
}

/// Returns a path relative to the root; rejects a path that leaves it.
fn relative_path(raw: &[u8]) -> Result<PathBuf, UnpackError> {
    let given = Path::new(OsStr::from_bytes(raw));
    let mut path = PathBuf::new();
    for component in given.components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(UnpackError::Escape(given.to_owned())),
        }
    }
    Ok(path)
}

fn link_target<R: Read>(entry: &Entry<'_, R>, path: &Path) -> Result<PathBuf, UnpackError> {
    let target = entry.link_name_bytes().map(|target| PathBuf::from(OsStr::from_bytes(&target)));
    target.ok_or_else(|| UnpackError::Link { path: path.to_owned(), target: PathBuf::new() })
}

/// Whether an extended attribute means the same on every host: file capabilities and user attributes. Others belong to
/// the host (labels, ACLs) or to its overlayfs, whose attributes would allow a layer to redirect directories of other
/// layers.
pub(crate) fn is_portable(name: &str) -> bool {
    name == "security.capability" || (name.starts_with("user.") && !name.starts_with("user.overlay."))
}

/// Returns the PAX key of an extended attribute.
pub(crate) fn xattr_record(name: &str) -> String {
    format!("{XATTR}{name}")
}

fn attributes(header: &tar::Header, records: &[(&str, &[u8])]) -> io::Result<Attributes> {
    let raw = header.as_old();
    let id = |raw: &[u8], value: io::Result<u64>| match value {
        Ok(id) => u32::try_from(id).map_err(|_| io::Error::other("a user or group id is out of range")),
        Err(_) if is_blank(raw) => Ok(0),
        Err(error) => Err(error),
    };
    let mut attributes = Attributes {
        mode: header.mode()? & 0o7777,
        uid: id(&raw.uid, header.uid())?,
        gid: id(&raw.gid, header.gid())?,
        modified: Timespec { tv_sec: header.mtime().unwrap_or(0).cast_signed(), tv_nsec: 0 },
        extended: Vec::new(),
    };
    for (key, value) in records {
        if let Some(name) = key.strip_prefix(XATTR)
            && is_portable(name)
        {
            attributes.extended.push((name.to_owned(), value.to_vec()));
        } else if *key == "mtime"
            && let Some(time) = std::str::from_utf8(value).ok().and_then(precise_time)
        {
            attributes.modified = time;
        }
    }
    Ok(attributes)
}

/// Whether a numeric field is empty, which some writers use for zero.
fn is_blank(field: &[u8]) -> bool {
    field.iter().all(|byte| matches!(byte, 0 | b' '))
}

/// Parses `seconds.fraction` of PAX headers.
fn precise_time(text: &str) -> Option<Timespec> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    Some(Timespec { tv_sec: seconds.parse().ok()?, tv_nsec: digits.parse().ok()? })
}

#[cfg(test)]
mod tests;
