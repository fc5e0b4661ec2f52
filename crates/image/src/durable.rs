//! Files that are there wholly or not at all after a crash.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces a file's content: written beside it, synced, renamed, and the directory synced.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().expect("a file of the store has a directory");
    let mut file = tempfile::Builder::new().prefix(".tmp-").tempfile_in(dir)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    sync_dir(dir)
}

/// Moves a finished file or directory to its place.
pub fn publish(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_dir(to.parent().expect("a file of the store has a directory"))
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
