//! Atomic, crash-safe file updates.

use std::fs;
use std::io;
use std::path::Path;

/// Replaces a file's content: writes a temporary file, syncs and renames it, and syncs the directory.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    sys::replace_file(path, content, 0o600)
}

/// Renames a finished file or directory to its final path and syncs the directory.
pub(crate) fn publish(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sys::sync_dir(to.parent().expect("a file of the store has a directory"))
}
