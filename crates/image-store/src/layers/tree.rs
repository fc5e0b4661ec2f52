//! Layers that are assembled from host files instead of unpacked, and their archives.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, linkat};
use tar::{Builder, EntryType};

use super::LayerError;
use crate::digest::{Digest, Hasher, Hashing};
use crate::tar_header::header;

/// Mode of directories and copied files in such a layer, and of all entries of its archive.
const MODE: u32 = 0o755;

/// Disk usage of the added files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    /// Hard links add none.
    pub bytes: u64,
    pub inodes: u64,
}

/// Places host files under `root`: by hard link if all users may read the file, otherwise as a copy with mode 0755.
pub(crate) fn install_files(files: &[(PathBuf, PathBuf)], root: &Path) -> Result<DiskUsage, LayerError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| LayerError::Io { path, source }
    };
    let mut added = DiskUsage { bytes: 0, inodes: 1 };
    let mut dirs = BTreeSet::new();
    for (from, to) in files {
        let to = to.strip_prefix("/").unwrap_or(to);
        for dir in to.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()) {
            dirs.insert(dir.to_owned());
        }
        let target = root.join(to);
        fs::create_dir_all(target.parent().unwrap_or(root)).map_err(at(&target))?;
        let metadata = fs::metadata(from).map_err(at(from))?;
        let mode = metadata.permissions().mode();
        let open_to_all = mode & 0o444 == 0o444 && matches!(mode & 0o111, 0 | 0o111);
        if !open_to_all || linkat(CWD, from, CWD, &target, AtFlags::SYMLINK_FOLLOW).is_err() {
            // The copy shares extents on filesystems that support it.
            added.bytes += fs::copy(from, &target).map_err(at(from))?;
            added.inodes += 1;
            fs::set_permissions(&target, Permissions::from_mode(MODE)).map_err(at(&target))?;
        }
    }
    for dir in dirs.iter().map(|dir| root.join(dir)).chain([root.to_owned()]) {
        fs::set_permissions(&dir, Permissions::from_mode(MODE)).map_err(at(&dir))?;
        added.inodes += 1;
    }
    Ok(added)
}

/// Returns the digest and length of the archive of everything under `root`.
pub(crate) fn digest(root: &Path) -> io::Result<(Digest, u64)> {
    let hashing = archive(root, Hashing::new(io::sink(), Hasher::sha256()))?;
    let (_, digest, length) = hashing.finish();
    Ok((digest, length))
}

/// Returns the archive of everything under `root`, in an unnamed file in `scratch`.
pub(crate) fn archived(root: &Path, scratch: &Path) -> io::Result<File> {
    let mut file = archive(root, tempfile::tempfile_in(scratch)?)?;
    file.rewind()?;
    Ok(file)
}

/// Writes directories and files sorted by path and owned by root, so that equal content gives equal archives.
fn archive<W: Write>(root: &Path, out: W) -> io::Result<W> {
    let mut tar = Builder::new(out);
    let mut waiting = vec![root.to_owned()];
    let mut found = BTreeSet::new();
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path.clone());
            }
            found.insert(path);
        }
    }
    for path in found {
        let name = path.strip_prefix(root).expect("it was found below the root");
        if path.is_dir() {
            tar.append_data(&mut header(EntryType::Directory, MODE, 0), name, io::empty())?;
        } else {
            let file = File::open(&path)?;
            let size = file.metadata()?.len();
            tar.append_data(&mut header(EntryType::Regular, MODE, size), name, file)?;
        }
    }
    tar.into_inner()
}
