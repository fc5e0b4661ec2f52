//! Files that are there wholly or not at all after a crash.

use std::fs;
use std::io;
use std::path::Path;

/// Replaces a file's content: written beside it, synced, renamed, and the directory synced.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    sys::replace_file(path, content, 0o600)
}

/// Moves a finished file or directory to its place.
pub fn publish(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sys::sync_dir(to.parent().expect("a file of the store has a directory"))
}
