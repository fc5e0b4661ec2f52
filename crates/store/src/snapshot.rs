//! Snapshot files: the complete key space of a cluster, for backup, inspection and restore.
//!
//! The format is that of the Maintenance service: the state, zero bytes up to a multiple of 512, and the SHA-256 of
//! everything before.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use consensus::{Group, Peer};
use mvcc::{CorruptCheckpoint, State};

use crate::checkpoint::CheckpointError;
use crate::client::{Remote, RemoteConfig, RemoteError};
use crate::disk::{Disk, FileDisk};
use crate::etcd::proto::etcdserverpb as pb;
use crate::open;

/// A snapshot could not be saved or used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("the snapshot was received incompletely")]
    Stream(#[source] Box<tonic::Status>),
    #[error("cannot read or write {path}")]
    File {
        /// The snapshot file or data directory.
        path: PathBuf,
        source: io::Error,
    },
    #[error("{0} is damaged: its SHA-256 does not match its content")]
    Digest(PathBuf),
    /// The digest matches, but the content is not a snapshot of this store.
    #[error("{path} is not a snapshot of this store")]
    Content {
        /// The snapshot file.
        path: PathBuf,
        source: CorruptCheckpoint,
    },
    #[error("the data directory {0} is not empty")]
    NotEmpty(PathBuf),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// Saves a snapshot of a cluster and returns its size. The file appears atomically, and only its owner can read it.
pub async fn save(cluster: &RemoteConfig, path: &Path) -> Result<u64, SnapshotError> {
    let unusable = |source| SnapshotError::File { path: path.to_owned(), source };
    let mut maintenance = Remote::new(cluster)?.maintenance();
    let broken = |status| SnapshotError::Stream(Box::new(status));
    let mut parts = maintenance.snapshot(pb::SnapshotRequest {}).await.map_err(broken)?.into_inner();
    let unfinished = path.with_added_extension("part");
    let mut file = create(&unfinished).map_err(unusable)?;
    let mut size = 0;
    while let Some(part) = parts.message().await.map_err(broken)? {
        file.write_all(&part.blob).map_err(unusable)?;
        size += part.blob.len() as u64;
    }
    file.sync_all().map_err(unusable)?;
    drop(file);
    read(&unfinished)?;
    std::fs::rename(&unfinished, path).map_err(unusable)?;
    Ok(size)
}

/// Creates a file with mode 0600, because a snapshot contains every Secret. Symbolic links are not followed, and an
/// existing file is not reused, since its creator may have it open.
fn create(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Reads a snapshot and verifies its digest.
pub fn read(path: &Path) -> Result<State, SnapshotError> {
    let unusable = |source| SnapshotError::File { path: path.to_owned(), source };
    let digest_len = digest::SHA256.output_len() as u64;
    let length = std::fs::metadata(path).map_err(unusable)?.len();
    let content = length.checked_sub(digest_len).ok_or_else(|| SnapshotError::Digest(path.to_owned()))?;
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(unusable)?);
    let mut hashing = Hashing { input: (&mut file).take(content), context: digest::Context::new(&digest::SHA256) };
    let state = State::read_from(&mut hashing);
    io::copy(&mut hashing, &mut io::sink()).map_err(unusable)?;
    let found = hashing.context.finish();
    let mut expected = Vec::new();
    file.read_to_end(&mut expected).map_err(unusable)?;
    if expected != found.as_ref() {
        return Err(SnapshotError::Digest(path.to_owned()));
    }
    state.map_err(|source| SnapshotError::Content { path: path.to_owned(), source })
}

/// Revisions skipped on restore, if clients of the cluster may have seen later revisions than the snapshot contains: as
/// many as a busy cluster creates in a year.
pub const SKIPPED: u32 = 1_000_000_000;

/// Creates the data directory of a member of a new cluster with this state.
pub fn restore(state: State, members: &[Peer], data_dir: &Path) -> Result<(), SnapshotError> {
    let unusable = |source| SnapshotError::File { path: data_dir.to_owned(), source };
    let disk = FileDisk::open(data_dir).map_err(unusable)?;
    if !disk.list().map_err(unusable)?.is_empty() {
        return Err(SnapshotError::NotEmpty(data_dir.to_owned()));
    }
    open::bootstrap_with(&disk, Group::new(members.iter().cloned()), state)?;
    Ok(())
}

struct Hashing<R> {
    input: R,
    context: digest::Context,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.context.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn snapshot_has_mode_0600_and_follows_no_symlink() {
        let directory = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (directory.path().join("backup.part"), directory.path().join("elsewhere"));
        let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
        create(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        // A leftover file that is world-readable.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        create(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        std::fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        create(&path).unwrap();
        assert!(!elsewhere.exists());
        assert_eq!(mode(&path), 0o600);
    }
}
