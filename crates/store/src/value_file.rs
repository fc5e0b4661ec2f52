//! Value storage: in memory, or spilled to a memory-mapped file.
//!
//! The file is not part of the durable data: log and checkpoints contain every value, and a starting member fills a new
//! file from them. Nothing is lost with the file, and a value that does not fit into it stays in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use sys::Spill;

/// Value storage. Clones are handles to the same storage.
#[derive(Clone, Default)]
pub struct ValueFile {
    file: Option<Arc<File>>,
}

struct File {
    spill: Arc<Spill>,
    /// Bytes placed since the last [`ValueFile::trim`].
    placed: AtomicUsize,
}

/// A shorter value needs no more memory than the reference to its position in the file.
const VALUE_BYTES_MIN: usize = 256;
/// Number of placed bytes after which the resident pages are released.
const TRIM_BYTES: usize = 16 << 20;
const NAME: &str = "values";

impl ValueFile {
    /// Keeps values in memory.
    pub fn memory() -> Self {
        Self::default()
    }

    /// Stores values in a file in the directory; if it cannot be created, values stay in memory.
    pub fn in_directory(directory: &Path) -> Self {
        match Spill::create(&directory.join(NAME)) {
            Ok(spill) => Self { file: Some(Arc::new(File { spill, placed: AtomicUsize::new(0) })) },
            Err(error) => {
                tracing::warn!(%error, "failed to create the value file; keeping all values in memory");
                Self::memory()
            }
        }
    }

    /// Stores a copy of a value, so that it does not keep a larger buffer in memory.
    pub fn store(&self, value: &[u8]) -> Bytes {
        let aside = self.file.as_ref().filter(|_| value.len() >= VALUE_BYTES_MIN).and_then(|file| file.store(value));
        aside.unwrap_or_else(|| Bytes::copy_from_slice(value))
    }

    /// Releases the resident pages of values that were read.
    pub fn trim(&self) {
        if let Some(file) = &self.file {
            file.spill.trim();
        }
    }
}

impl File {
    fn store(&self, value: &[u8]) -> Option<Bytes> {
        // With a full disk, or if the value is too long for a slot, the value stays in memory.
        let slot = self.spill.put(value).ok()?;
        if self.placed.fetch_add(value.len(), Ordering::Relaxed) >= TRIM_BYTES {
            self.placed.store(0, Ordering::Relaxed);
            self.spill.trim();
        }
        Some(Bytes::from_owner(slot))
    }
}

impl std::fmt::Debug for ValueFile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(if self.file.is_some() { "Shelf(file)" } else { "Shelf(memory)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_in_memory_and_in_the_file() {
        let dir = tempfile::tempdir().expect("the directory");
        let value_files =
            [ValueFile::memory(), ValueFile::in_directory(dir.path()), ValueFile::in_directory(Path::new("/nowhere"))];
        for value_file in value_files {
            for len in [0, 1, VALUE_BYTES_MIN - 1, VALUE_BYTES_MIN, 5000, sys::SLOT_BYTES_MAX, sys::SLOT_BYTES_MAX + 1]
            {
                let value = vec![b'v'; len];
                let placed = value_file.store(&value);
                value_file.trim();
                assert_eq!(placed, value, "{len} bytes in {value_file:?}");
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("the directory").count(), 0, "the file has no name");
    }
}
