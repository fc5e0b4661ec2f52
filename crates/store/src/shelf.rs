//! Where values lie: in memory, or aside in a file that the kernel reads them from when they are asked for.
//!
//! The file is no part of what is durable: log and checkpoints hold every value, and a member that starts fills a new file from them. So
//! nothing is lost with it, and a value that finds no room in it stays in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use sys::Spill;

/// Where values lie. Clones are handles to the same.
#[derive(Clone, Default)]
pub struct Shelf {
    file: Option<Arc<File>>,
}

struct File {
    spill: Arc<Spill>,
    /// Bytes placed since this process was last relieved of what it had read.
    placed: AtomicUsize,
}

/// A shorter value takes no more memory than the note where it lies would.
const VALUE_BYTES_MIN: usize = 256;
/// After so many bytes placed, what was read counts as memory no longer.
const TRIM_BYTES: usize = 16 << 20;
const NAME: &str = "values";

impl Shelf {
    /// Values stay in memory.
    pub fn memory() -> Self {
        Self::default()
    }

    /// Values go to a file of their own in a directory; if there can be none, they stay in memory.
    pub fn in_directory(directory: &Path) -> Self {
        match Spill::create(&directory.join(NAME)) {
            Ok(spill) => Self { file: Some(Arc::new(File { spill, placed: AtomicUsize::new(0) })) },
            Err(error) => {
                tracing::warn!(%error, "there is no file for values: all of them stay in memory");
                Self::memory()
            }
        }
    }

    /// Gives a value a place of its own, so that it keeps nothing else in memory.
    pub fn place(&self, value: &[u8]) -> Bytes {
        let aside = self.file.as_ref().filter(|_| value.len() >= VALUE_BYTES_MIN).and_then(|file| file.place(value));
        aside.unwrap_or_else(|| Bytes::copy_from_slice(value))
    }

    /// What was read counts as this process's memory no longer.
    pub fn trim(&self) {
        if let Some(file) = &self.file {
            file.spill.trim();
        }
    }
}

impl File {
    fn place(&self, value: &[u8]) -> Option<Bytes> {
        // A full disk, or a value too long for a slot: it stays in memory.
        let slot = self.spill.put(value).ok()?;
        if self.placed.fetch_add(value.len(), Ordering::Relaxed) >= TRIM_BYTES {
            self.placed.store(0, Ordering::Relaxed);
            self.spill.trim();
        }
        Some(Bytes::from_owner(slot))
    }
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(if self.file.is_some() { "Shelf(file)" } else { "Shelf(memory)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_same_wherever_they_lie() {
        let folder = tempfile::tempdir().expect("a folder");
        let shelves = [Shelf::memory(), Shelf::in_directory(folder.path()), Shelf::in_directory(Path::new("/nowhere"))];
        for shelf in shelves {
            for len in [0, 1, VALUE_BYTES_MIN - 1, VALUE_BYTES_MIN, 5000, sys::SLOT_BYTES_MAX, sys::SLOT_BYTES_MAX + 1]
            {
                let value = vec![b'v'; len];
                let placed = shelf.place(&value);
                shelf.trim();
                assert_eq!(placed, value, "{len} bytes in {shelf:?}");
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "the file has no name");
    }
}
