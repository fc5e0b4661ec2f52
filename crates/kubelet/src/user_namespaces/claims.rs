//! Claims of user ID ranges by the nodes of one host: a file per range contains the path of the pod's directory.
//!
//! A claim is valid while that directory records the range, so claims need not be released.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// The claims of a host.
pub(super) struct Claims {
    dir: PathBuf,
}

/// The claims while locked against other nodes.
pub(super) struct LockedClaims<'a> {
    dir: &'a Path,
    _lock: File,
}

impl Claims {
    /// Uses claims in a directory, which is created with the first claim.
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Locks the claims; blocks while another node holds the lock.
    pub(super) fn lock(&self) -> io::Result<LockedClaims<'_>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let file =
            fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.dir.join("lock"))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(LockedClaims { dir: &self.dir, _lock: file })
    }
}

impl LockedClaims<'_> {
    /// Claims a range for the pod in `pod_dir`. Returns false if another pod has it.
    pub(super) fn claim(&self, first: u32, pod_dir: &Path) -> io::Result<bool> {
        match self.owner(first) {
            Some(owner) if owner == pod_dir => Ok(true),
            Some(_) => Ok(false),
            None => {
                let text = pod_dir.to_str().ok_or_else(|| io::Error::other("the pod's directory is not UTF-8"))?;
                fs::write(self.dir.join(first.to_string()), text)?;
                Ok(true)
            }
        }
    }

    /// Returns the ranges of other pods.
    pub(super) fn taken(&self, pod_dir: &Path) -> io::Result<Vec<u32>> {
        let names = fs::read_dir(self.dir)?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(names.filter(|first| self.owner(*first).is_some_and(|owner| owner != pod_dir)).collect())
    }

    /// Returns the directory of the pod that owns a range.
    fn owner(&self, first: u32) -> Option<PathBuf> {
        let owner = PathBuf::from(fs::read_to_string(self.dir.join(first.to_string())).ok()?);
        (super::read(&owner) == Some(first)).then_some(owner)
    }
}
