//! Unpacked layers for overlayfs, shared by all images that contain them.
//!
//! A layer is unpacked independently, so that layers unpack in parallel and are shared by diff ID. There is one
//! exception: an archive may contain `a/b` without `a`, and then `a` has the attributes of the layers below. Such a
//! layer is stored by its chain ID, that is per sequence of layers below it, with those attributes copied.

pub(crate) mod tree;

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Hasher, Hashing};
use crate::unpack::{ArchiveLimits, UnpackError, open_real, unpack};
use crate::{archive, durable};

/// Mode of layer directories: only root can enter them.
const DIR_MODE: u32 = 0o700;
/// Maximum padding after the end marker of an archive. Writers only fill their last record, which is much smaller.
const PADDING_BYTES_MAX: u64 = 16 << 20;

/// A layer could not be unpacked or stored.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The archive does not have the diff ID of the image's configuration.
    #[error("the layer unpacks to {actual} instead of {expected}")]
    Mismatch {
        /// The diff ID in the configuration.
        expected: Digest,
        actual: Digest,
    },
    #[error("cannot unpack layer {diff_id}")]
    Unpack {
        diff_id: Digest,
        #[source]
        source: UnpackError,
    },
    #[error("cannot store or read layer {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("layer {0} is missing")]
    Missing(Digest),
}

/// The unpacked layers.
pub(crate) struct Layers {
    root: PathBuf,
}

/// Metadata of an unpacked layer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Layer {
    pub diff_id: Digest,
    pub bytes: u64,
    pub inodes: u64,
    /// Directories that the archive uses without an entry for them.
    pub assumed: Vec<PathBuf>,
}

impl Layers {
    pub(crate) fn open(root: &Path) -> Result<Layers, LayerError> {
        let create = || {
            fs::create_dir_all(root)?;
            // Layers contain set-user-ID programs, so only root may reach them here.
            fs::set_permissions(root, Permissions::from_mode(DIR_MODE))
        };
        create().map_err(|source| LayerError::Io { path: root.to_owned(), source })?;
        Ok(Layers { root: root.to_owned() })
    }

    /// Returns the key of the layer at the end of `chain`, if it is stored.
    pub(crate) fn key(&self, chain: &[Digest]) -> Option<Digest> {
        let diff_id = chain.last()?;
        [diff_id.clone(), chain_id(chain)].into_iter().find(|key| self.dir(key).join("layer.json").exists())
    }

    /// Returns the directory to mount for a key.
    pub(crate) fn files(&self, key: &Digest) -> PathBuf {
        self.dir(key).join("fs")
    }

    pub(crate) fn describe(&self, key: &Digest) -> Result<Layer, LayerError> {
        let path = self.dir(key).join("layer.json");
        let text = fs::read(&path).map_err(|source| LayerError::Io { path: path.clone(), source })?;
        serde_json::from_slice(&text).map_err(|error| LayerError::Io { path, source: error.into() })
    }

    /// Unpacks an archive to a temporary directory; [`Layers::publish`] gives it its name.
    pub(crate) fn prepare(&self, blob: &Path, diff_id: &Digest) -> Result<UnpackedLayer, LayerError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| LayerError::Io { path, source }
        };
        let dir = tempfile::Builder::new().prefix(".tmp-").tempdir_in(&self.root).map_err(io(&self.root))?;
        let files = dir.path().join("fs");
        fs::create_dir(&files).map_err(io(&files))?;
        let bad = |source| LayerError::Unpack { diff_id: diff_id.clone(), source };
        let raw = File::open(blob).map_err(io(blob))?;
        let packed = raw.metadata().map_err(io(blob))?.len();
        let limits = ArchiveLimits::of(packed, &files).map_err(io(&files))?;
        let tar = archive::decompress(raw).map_err(io(blob))?;
        let mut tar = Hashing::new(tar, Hasher::like(diff_id));
        let unpacked = unpack(&mut tar, &files, &limits).map_err(bad)?;
        // The end of an archive may be padded, and the padding is part of its digest.
        let padding = io::copy(&mut (&mut tar).take(PADDING_BYTES_MAX + 1), &mut io::sink()).map_err(io(blob))?;
        if padding > PADDING_BYTES_MAX {
            return Err(bad(UnpackError::TooLarge(format!("{PADDING_BYTES_MAX} bytes after the end of its archive"))));
        }
        let (_, actual, _) = tar.finish();
        if actual != *diff_id {
            return Err(LayerError::Mismatch { expected: diff_id.clone(), actual });
        }
        let layer = Layer {
            diff_id: diff_id.clone(),
            bytes: unpacked.bytes,
            inodes: unpacked.inodes,
            assumed: unpacked.assumed,
        };
        Ok(UnpackedLayer { dir, layer })
    }

    /// Builds a layer from host files, hard-linked if the filesystem allows it; [`Layers::publish`] gives it its name.
    /// Returns the length of its archive.
    pub(crate) fn link(&self, files: &[(PathBuf, PathBuf)]) -> Result<(UnpackedLayer, u64), LayerError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| LayerError::Io { path, source }
        };
        let dir = tempfile::Builder::new().prefix(".tmp-").tempdir_in(&self.root).map_err(io(&self.root))?;
        let root = dir.path().join("fs");
        fs::create_dir(&root).map_err(io(&root))?;
        let linked = tree::install_files(files, &root)?;
        let (diff_id, length) = tree::digest(&root).map_err(io(&root))?;
        let layer = Layer { diff_id, bytes: linked.bytes, inodes: linked.inodes, assumed: Vec::new() };
        Ok((UnpackedLayer { dir, layer }, length))
    }

    /// Gives a prepared layer its name; the layers below must be published.
    pub(crate) fn publish(&self, prepared: UnpackedLayer, chain: &[Digest]) -> Result<Digest, LayerError> {
        let UnpackedLayer { dir, layer } = prepared;
        let key = if layer.assumed.is_empty() { layer.diff_id.clone() } else { chain_id(chain) };
        let target = self.dir(&key);
        if target.exists() {
            return Ok(key);
        }
        let io = |source| LayerError::Io { path: target.clone(), source };
        if !layer.assumed.is_empty() {
            let below = self.below(chain)?;
            adopt_attributes(&dir.path().join("fs"), &below, &layer.assumed).map_err(io)?;
        }
        let text = serde_json::to_vec(&layer).expect("a layer's description is JSON");
        durable::write(&dir.path().join("layer.json"), &text).map_err(io)?;
        rustix::fs::syncfs(File::open(dir.path()).map_err(io)?).map_err(|error| io(error.into()))?;
        let dir = dir.keep();
        fs::set_permissions(&dir, Permissions::from_mode(DIR_MODE)).map_err(io)?;
        durable::publish(&dir, &target).map_err(io)?;
        Ok(key)
    }

    pub(crate) fn all(&self) -> io::Result<BTreeSet<Digest>> {
        let mut all = BTreeSet::new();
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            all.extend(name.to_str().and_then(|hex| Digest::parse(&format!("sha256:{hex}")).ok()));
        }
        Ok(all)
    }

    /// Removes a layer. The layer is renamed first, so that a crash leaves no partial layer under its name.
    pub(crate) fn remove(&self, key: &Digest) -> io::Result<()> {
        let grave = tempfile::Builder::new().prefix(".tmp-").tempdir_in(&self.root)?;
        fs::rename(self.dir(key), grave.path().join("layer"))?;
        grave.close()
    }

    /// Removes partly unpacked or partly removed layers after a crash.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".tmp-") {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Returns the directories below the last layer of a chain, topmost first.
    fn below(&self, chain: &[Digest]) -> Result<Vec<PathBuf>, LayerError> {
        let mut below = Vec::new();
        for end in (1..chain.len()).rev() {
            let key = self.key(&chain[..end]).ok_or_else(|| LayerError::Missing(chain[end - 1].clone()))?;
            below.push(self.files(&key));
        }
        Ok(below)
    }

    fn dir(&self, key: &Digest) -> PathBuf {
        self.root.join(key.hex())
    }
}

/// An unpacked layer without a name.
pub(crate) struct UnpackedLayer {
    dir: tempfile::TempDir,
    layer: Layer,
}

impl UnpackedLayer {
    pub(crate) const fn diff_id(&self) -> &Digest {
        &self.layer.diff_id
    }
}

/// Returns the chain ID of the OCI image specification: the identity of a layer on top of others.
pub(crate) fn chain_id(chain: &[Digest]) -> Digest {
    let mut ids = chain.iter();
    let mut id = ids.next().expect("a chain has a layer").clone();
    for next in ids {
        id = Digest::of(format!("{id} {next}").as_bytes());
    }
    id
}

/// Copies attributes from the layers below to directories that the archive assumes. No path is followed through a
/// symlink, since the archive chose the names.
fn adopt_attributes(layer: &Path, below: &[PathBuf], assumed: &[PathBuf]) -> io::Result<()> {
    let open = |dir: &Path| rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let layer = open(layer)?;
    let below: Vec<OwnedFd> = below.iter().map(|lower| open(lower)).collect::<rustix::io::Result<_>>()?;
    for path in assumed {
        let Some(stat) = attributes_below(&below, path)? else { continue };
        let own = open_real(&layer, path)?;
        rustix::fs::fchown(&own, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
        rustix::fs::fchmod(&own, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        let time = |seconds, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds.cast_signed() };
        let times = Timestamps {
            last_access: time(stat.st_atime, stat.st_atime_nsec),
            last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
        };
        rustix::fs::futimens(&own, &times)?;
    }
    Ok(())
}

/// Returns the attributes of a directory in the topmost layer that has it, unless another entry hides it there.
fn attributes_below(below: &[OwnedFd], path: &Path) -> io::Result<Option<Stat>> {
    for lower in below {
        match open_real(lower, path) {
            Ok(dir) => return Ok(Some(rustix::fs::fstat(dir)?)),
            Err(Errno::NOENT) => {}
            // A file, symlink or whiteout has this name.
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
