//! Files of the cache directory, which several processes read and write at the same time.

use std::io::{self, Write};
use std::path::Path;

/// Replaces a file atomically, and creates its directory.
pub fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let mut temporary = tempfile::NamedTempFile::new_in(directory)?;
    temporary.write_all(bytes)?;
    temporary.persist(file)?;
    Ok(())
}
