//! Disk abstraction for log and checkpoints, so that a simulated disk can tear and lose unsynced writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A flat directory.
pub trait Disk: Send + 'static {
    type File: DiskFile;

    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Creates a file of `bytes` zero bytes and replaces an existing one.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Self::File>;
    /// Renames a file and replaces an existing one. Durable after [`Disk::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Durable after [`Disk::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes directory entries durable.
    fn sync(&self) -> io::Result<()>;
}

#[expect(clippy::len_without_is_empty, reason = "no caller needs is_empty")]
pub trait DiskFile: Send {
    fn len(&self) -> io::Result<u64>;
    /// Fills the buffer with the bytes at an offset.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all bytes at an offset. Durable after [`DiskFile::sync`]; until then any part may be lost.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file to `bytes` if it is longer. A crash may undo the truncation.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

/// A directory of the host's file system.
#[derive(Clone, Debug)]
pub struct FileDisk {
    directory: PathBuf,
}

impl FileDisk {
    /// Opens the directory and creates it if needed.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let directory = directory.into();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self { directory })
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }
}

impl Disk for FileDisk {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.directory)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.directory.join(name))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<File> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(self.directory.join(name))?;
        if bytes > 0 {
            preallocate(&file, bytes)?;
        }
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.directory.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        if bytes < self.metadata()?.len() { self.set_len(bytes) } else { Ok(()) }
    }
}

/// Opens the lock file of a directory with mode 0600 and creates it if needed.
pub fn lock_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Allocates the space now, so that a full disk is detected when a segment is created and not during a write.
fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        // Some file systems do not support it; blocks are then allocated on write.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL) => file.set_len(bytes),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn store_files_are_accessible_only_by_their_owner() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(directory.path().join("store")).unwrap();
        disk.create("1.log", 10).unwrap();
        lock_file(&disk.path().join("lock")).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(disk.path()), 0o700);
        for name in disk.list().unwrap() {
            assert_eq!(mode(&disk.path().join(&name)), 0o600, "{name}");
        }
    }
}
