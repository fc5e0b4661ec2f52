//! Content store: one file per digest, verified before it gets its name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::digest::{Digest, Hasher};
use crate::durable;
use crate::manifest::DOCUMENT_BYTES_MAX;

/// Content could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("content of {expected} has the digest {actual}")]
    Mismatch { expected: Digest, actual: Digest },
    #[error("content of {digest} is longer than the announced {size} bytes")]
    TooLong {
        digest: Digest,
        /// The size in the descriptor.
        size: u64,
    },
    #[error("content of {digest} has {actual} bytes instead of {size}")]
    Size {
        digest: Digest,
        /// The size in the descriptor.
        size: u64,
        actual: u64,
    },
    /// The content exceeds the size limit of documents.
    #[error("{digest} is too large for a manifest or configuration")]
    Document { digest: Digest },
    #[error("cannot store or read {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The content store.
pub(crate) struct Blobs {
    root: PathBuf,
}

impl Blobs {
    /// Opens or creates the store in a directory.
    pub(crate) fn open(root: &Path) -> Result<Blobs, BlobError> {
        let blobs = Blobs { root: root.to_owned() };
        for dir in ["sha256", "sha512", "ingest"] {
            let path = root.join(dir);
            fs::create_dir_all(&path).map_err(|source| BlobError::Io { path, source })?;
        }
        Ok(blobs)
    }

    /// Returns the path of content, whether or not it exists.
    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.root.join(digest.algorithm()).join(digest.hex())
    }

    pub(crate) fn has(&self, digest: &Digest) -> bool {
        self.path(digest).exists()
    }

    /// Reads a manifest or configuration and verifies its digest again, since it determines which files and commands
    /// run.
    pub(crate) fn document(&self, digest: &Digest) -> Result<Vec<u8>, BlobError> {
        let path = self.path(digest);
        let io = |source| BlobError::Io { path: path.clone(), source };
        let mut bytes = Vec::new();
        File::open(&path).map_err(io)?.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
            return Err(BlobError::Document { digest: digest.clone() });
        }
        let mut hasher = Hasher::like(digest);
        hasher.update(&bytes);
        verified(digest, hasher.finish())?;
        Ok(bytes)
    }

    /// Stores bytes from memory.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Digest, BlobError> {
        let digest = Digest::of(bytes);
        self.put_as(&digest, bytes)?;
        Ok(digest)
    }

    /// Stores bytes from memory; fails if they do not have the claimed digest.
    pub(crate) fn put_as(&self, digest: &Digest, bytes: &[u8]) -> Result<(), BlobError> {
        let mut hasher = Hasher::like(digest);
        hasher.update(bytes);
        verified(digest, hasher.finish())?;
        let path = self.path(digest);
        if !path.exists() {
            durable::write(&path, bytes).map_err(|source| BlobError::Io { path, source })?;
        }
        Ok(())
    }

    /// Starts or resumes a download: bytes of an earlier attempt are hashed again and kept.
    pub(crate) fn ingest(&self, digest: &Digest, size: u64) -> Result<Ingest, BlobError> {
        let path = self.root.join("ingest").join(digest.hex());
        let io = |source| BlobError::Io { path: path.clone(), source };
        let mut file =
            OpenOptions::new().create(true).truncate(false).read(true).append(true).open(&path).map_err(io)?;
        let mut hasher = Hasher::like(digest);
        let mut arrived = 0;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = file.read(&mut buffer).map_err(io)?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            arrived += count as u64;
        }
        Ok(Ingest { digest: digest.clone(), size, path, target: self.path(digest), file, hasher, arrived })
    }

    /// Copies content from another store: by a hard link on the same filesystem, otherwise with verification.
    pub(crate) fn take_from(&self, other: &Blobs, digest: &Digest) -> Result<(), BlobError> {
        let (from, to) = (other.path(digest), self.path(digest));
        // A named file never changes, so a hard link is safe.
        if to.exists() || fs::hard_link(&from, &to).is_ok() {
            return Ok(());
        }
        let io = |source| BlobError::Io { path: from.clone(), source };
        let mut file = File::open(&from).map_err(io)?;
        let mut ingest = self.ingest(digest, file.metadata().map_err(io)?.len())?;
        ingest.restart()?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = file.read(&mut buffer).map_err(io)?;
            if count == 0 {
                return ingest.finish();
            }
            ingest.write(&buffer[..count])?;
        }
    }

    /// Returns all digests in the store.
    pub(crate) fn all(&self) -> io::Result<Vec<Digest>> {
        let mut all = Vec::new();
        for algorithm in ["sha256", "sha512"] {
            for entry in fs::read_dir(self.root.join(algorithm))? {
                let name = entry?.file_name();
                all.extend(name.to_str().and_then(|hex| Digest::parse(&format!("{algorithm}:{hex}")).ok()));
            }
        }
        Ok(all)
    }

    pub(crate) fn remove(&self, digest: &Digest) -> io::Result<()> {
        fs::remove_file(self.path(digest))
    }
}

/// A download in progress.
pub(crate) struct Ingest {
    digest: Digest,
    size: u64,
    path: PathBuf,
    target: PathBuf,
    file: File,
    hasher: Hasher,
    arrived: u64,
}

impl Ingest {
    /// Returns the number of bytes received so far.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Discards the received bytes.
    pub(crate) fn restart(&mut self) -> Result<(), BlobError> {
        self.file.set_len(0).map_err(|source| BlobError::Io { path: self.path.clone(), source })?;
        self.hasher = Hasher::like(&self.digest);
        self.arrived = 0;
        Ok(())
    }

    /// Appends bytes; fails immediately if more arrive than announced.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        self.arrived += bytes.len() as u64;
        if self.arrived > self.size {
            self.discard();
            return Err(BlobError::TooLong { digest: self.digest.clone(), size: self.size });
        }
        self.hasher.update(bytes);
        self.file.write_all(bytes).map_err(|source| BlobError::Io { path: self.path.clone(), source })
    }

    /// Verifies the received bytes and gives them their name.
    pub(crate) fn finish(self) -> Result<(), BlobError> {
        if self.arrived != self.size {
            let (digest, size, actual) = (self.digest.clone(), self.size, self.arrived);
            return Err(BlobError::Size { digest, size, actual });
        }
        let path = self.path.clone();
        let io = |source| BlobError::Io { path: path.clone(), source };
        if let Err(error) = verified(&self.digest, self.hasher.finish()) {
            fs::remove_file(&path).map_err(io)?;
            return Err(error);
        }
        self.file.sync_all().map_err(io)?;
        durable::publish(&path, &self.target).map_err(io)
    }

    /// Removes content that must not be resumed because it can never become valid.
    fn discard(&self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "failed to remove a rejected download");
        }
    }
}

fn verified(expected: &Digest, actual: Digest) -> Result<(), BlobError> {
    if *expected == actual { Ok(()) } else { Err(BlobError::Mismatch { expected: expected.clone(), actual }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn download_is_resumed_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path()).unwrap();
        let digest = Digest::of(b"hello world");
        let mut first = blobs.ingest(&digest, 11).unwrap();
        first.write(b"hello ").unwrap();
        drop(first);
        let mut second = blobs.ingest(&digest, 11).unwrap();
        assert_eq!(second.arrived(), 6);
        second.write(b"world").unwrap();
        second.finish().unwrap();
        assert_eq!(blobs.document(&digest).unwrap(), b"hello world");
    }

    #[test]
    fn content_with_wrong_digest_is_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path()).unwrap();
        let digest = Digest::of(b"true");
        let mut lie = blobs.ingest(&digest, 4).unwrap();
        lie.write(b"lies").unwrap();
        assert!(matches!(lie.finish(), Err(BlobError::Mismatch { .. })));
        let mut flood = blobs.ingest(&digest, 4).unwrap();
        assert_eq!(flood.arrived(), 0);
        assert!(matches!(flood.write(b"too much"), Err(BlobError::TooLong { .. })));
        assert!(!blobs.has(&digest));
        assert!(matches!(blobs.put_as(&digest, b"other"), Err(BlobError::Mismatch { .. })));
    }
}
