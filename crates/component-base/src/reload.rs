//! Values loaded from files, and reloaded when the files change.
//!
//! There is no watcher and no polling: each use of the value checks at most once a second whether the files have
//! changed.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Minimum interval between checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Loads the value; errors are logged.
type Load<T> = Box<dyn Fn() -> Result<T, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// A value loaded from files.
pub struct ReloadedValue<T> {
    files: Vec<PathBuf>,
    load: Load<T>,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    value: Arc<T>,
    stamps: Vec<Option<Stamp>>,
    looked_at: Instant,
}

/// Identifies a version of a file: inode, length, and modification time in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

impl<T> ReloadedValue<T> {
    /// Loads the value for the first time; any failure is returned.
    pub fn new<E, F>(files: Vec<PathBuf>, load: F) -> Result<Self, E>
    where
        E: Error + Send + Sync + 'static,
        F: Fn() -> Result<T, E> + Send + Sync + 'static,
    {
        let stamps = files.iter().map(|file| stamp(file)).collect();
        let value = Arc::new(load()?);
        let inner = Mutex::new(Inner { value, stamps, looked_at: Instant::now() });
        Ok(Self { files, load: Box::new(move || load().map_err(Into::into)), inner })
    }

    /// Returns the current value. If changed files cannot be loaded, the error is logged once and the old value is
    /// kept.
    pub fn current(&self) -> Arc<T> {
        let mut inner = self.inner.lock().expect("no holder panics");
        if inner.looked_at.elapsed() >= CHECK_INTERVAL {
            self.reload_if_changed(&mut inner);
        }
        inner.value.clone()
    }

    fn reload_if_changed(&self, inner: &mut Inner<T>) {
        inner.looked_at = Instant::now();
        let stamps: Vec<_> = self.files.iter().map(|file| stamp(file)).collect();
        if stamps == inner.stamps {
            return;
        }
        inner.stamps = stamps;
        match (self.load)() {
            Ok(value) => {
                inner.value = Arc::new(value);
                tracing::info!(files = ?self.files, "reloaded changed files");
            }
            Err(error) => {
                let cause = error.source().map(ToString::to_string).unwrap_or_default();
                tracing::error!(
                    files = ?self.files, %error, cause,
                    "failed to reload changed files; keeping the previous contents"
                );
            }
        }
    }
}

fn stamp(file: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(file: &Path) -> Result<u32, std::io::Error> {
        std::fs::read_to_string(file)?.trim().parse().map_err(std::io::Error::other)
    }

    /// Returns the value as if a second had passed.
    fn later(reloaded: &ReloadedValue<u32>) -> u32 {
        let mut inner = reloaded.inner.lock().unwrap();
        reloaded.reload_if_changed(&mut inner);
        *inner.value
    }

    #[test]
    fn a_changed_file_is_reloaded_and_a_broken_one_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("n");
        std::fs::write(&file, "1").unwrap();
        let read = file.clone();
        let reloaded = ReloadedValue::new(vec![file.clone()], move || number(&read)).unwrap();
        assert_eq!(*reloaded.current(), 1);
        std::fs::write(&file, "22").unwrap();
        assert_eq!(later(&reloaded), 22);
        std::fs::write(&file, "broken").unwrap();
        assert_eq!(later(&reloaded), 22);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(later(&reloaded), 22);
        std::fs::write(&file, "3").unwrap();
        assert_eq!(later(&reloaded), 3);
        let missing = dir.path().join("missing");
        assert!(ReloadedValue::new(vec![missing.clone()], move || number(&missing)).is_err());
    }
}
