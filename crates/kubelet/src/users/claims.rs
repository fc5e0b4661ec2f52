//! Ranges of user IDs that the nodes of one machine have taken: a file per range that names the pod's directory.
//!
//! A claim counts as long as that directory says that the pod has the range, so nothing has to be released.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// The claims of a machine.
pub struct Claims {
    dir: PathBuf,
}

/// The claims while no other node changes them.
pub struct Locked<'a> {
    dir: &'a Path,
    _lock: File,
}

impl Claims {
    /// Claims in a directory, which is created when the first one is made.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Waits until no other node changes the claims.
    pub fn lock(&self) -> io::Result<Locked<'_>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let file =
            fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.dir.join("lock"))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(Locked { dir: &self.dir, _lock: file })
    }
}

impl Locked<'_> {
    /// Claims a range for the pod in `pod_dir`. Returns false if another pod has it.
    pub fn claim(&self, first: u32, pod_dir: &Path) -> io::Result<bool> {
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

    /// The ranges that other pods have.
    pub fn taken(&self, pod_dir: &Path) -> io::Result<Vec<u32>> {
        let names = fs::read_dir(self.dir)?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(names.filter(|first| self.owner(*first).is_some_and(|owner| owner != pod_dir)).collect())
    }

    /// The directory of the pod that has a range.
    fn owner(&self, first: u32) -> Option<PathBuf> {
        let owner = PathBuf::from(fs::read_to_string(self.dir.join(first.to_string())).ok()?);
        (super::read(&owner) == Some(first)).then_some(owner)
    }
}
