//! The little that log and checkpoints need of a disk, so that a simulated one can tear and lose what was not synced.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A flat directory.
pub trait Disk: Send + 'static {
    /// An open file of it.
    type File: DiskFile;

    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Makes a file of so many zero bytes, in place of any other of that name.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Self::File>;
    /// Gives a file another name, in place of any other of that name. Durable after [`Disk::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Durable after [`Disk::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes names durable.
    fn sync(&self) -> io::Result<()>;
}

/// A file.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a segment is empty")]
pub trait DiskFile: Send {
    /// Its length.
    fn len(&self) -> io::Result<u64>;
    /// Fills the buffer from an offset on.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all bytes at an offset. Durable after [`DiskFile::sync`]; until then any part of it may be lost.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was written durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Gives back what lies after so many bytes, if there is more. A crash may undo it.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

/// A directory of the machine's file system.
#[derive(Clone, Debug)]
pub struct FileDisk {
    directory: PathBuf,
}

impl FileDisk {
    /// The directory, made if it is not there.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let directory = directory.into();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self { directory })
    }

    /// Where it is.
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

/// Opens the file by whose lock a directory is held, for its owner alone; it is made if it is not there.
pub fn lock_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Space is taken now, so that a full disk shows when a segment starts and not in the middle of a write.
fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        // Not every file system can; then the blocks come with the writes.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL) => file.set_len(bytes),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_of_the_store_are_for_their_owner_alone() {
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
