//! Values loaded from files, and reloaded when the files change.
//!
//! There is no watcher and no polling: each use of the value checks whether the files have changed, at most once a
//! second where uses are frequent.

use std::collections::BTreeMap;
use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Minimum interval between checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Loads the value, and records the files that it depends on; errors are logged.
type Load<T> = Box<dyn Fn(&mut Files) -> Result<T, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// A value loaded from files.
pub struct ReloadedValue<T> {
    load: Load<T>,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    value: Arc<T>,
    files: Files,
    looked_at: Instant,
}

/// Files and directories that a value depends on, each in the version that it had before it was read.
#[derive(Default)]
pub struct Files(BTreeMap<PathBuf, Option<Stamp>>);

/// Identifies a version of a file: inode, length, and modification time in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

impl Files {
    /// Adds a file, which need not exist. It must be added before it is read, so that a change in between is noticed.
    pub fn add(&mut self, file: &Path) {
        self.0.entry(file.to_owned()).or_insert_with(|| stamp(file));
    }

    fn have_changed(&self) -> bool {
        self.0.iter().any(|(file, known)| stamp(file) != *known)
    }

    fn paths(&self) -> Vec<&PathBuf> {
        self.0.keys().collect()
    }
}

impl<T> ReloadedValue<T> {
    /// Loads the value for the first time; any failure is returned.
    pub fn new<E, F>(files: Vec<PathBuf>, load: F) -> Result<Self, E>
    where
        E: Error + Send + Sync + 'static,
        F: Fn() -> Result<T, E> + Send + Sync + 'static,
    {
        Self::of_found_files(move |found| {
            files.iter().for_each(|file| found.add(file));
            load()
        })
    }

    /// Loads the value for the first time; any failure is returned. `load` adds each file that it reads.
    pub fn of_found_files<E, F>(load: F) -> Result<Self, E>
    where
        E: Error + Send + Sync + 'static,
        F: Fn(&mut Files) -> Result<T, E> + Send + Sync + 'static,
    {
        let mut files = Files::default();
        let value = Arc::new(load(&mut files)?);
        let inner = Mutex::new(Inner { value, files, looked_at: Instant::now() });
        Ok(Self { load: Box::new(move |files| load(files).map_err(Into::into)), inner })
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

    /// Returns the current value, and checks the files each time: for uses that are rare, and must see every change.
    pub fn latest(&self) -> Arc<T> {
        let mut inner = self.inner.lock().expect("no holder panics");
        self.reload_if_changed(&mut inner);
        inner.value.clone()
    }

    fn reload_if_changed(&self, inner: &mut Inner<T>) {
        inner.looked_at = Instant::now();
        if !inner.files.have_changed() {
            return;
        }
        let mut files = Files::default();
        let loaded = (self.load)(&mut files);
        // A failed load may have found only some of the files. The next change of any file leads to another attempt.
        if loaded.is_err() {
            inner.files.0.keys().for_each(|file| files.add(file));
        }
        inner.files = files;
        match loaded {
            Ok(value) => {
                inner.value = Arc::new(value);
                tracing::info!(files = ?inner.files.paths(), "reloaded changed files");
            }
            Err(error) => {
                let cause = error.source().map(ToString::to_string).unwrap_or_default();
                tracing::error!(
                    files = ?inner.files.paths(), %error, cause,
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
    fn changed_file_is_reloaded_and_a_broken_one_is_ignored() {
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
    #[test]
    fn files_that_a_load_finds_are_watched() {
        let dir = tempfile::tempdir().unwrap();
        let (list, at) = (dir.path().join("list"), dir.path().to_owned());
        std::fs::write(&list, "a").unwrap();
        std::fs::write(dir.path().join("a"), "1").unwrap();
        let load = move |files: &mut Files| {
            files.add(&at.join("list"));
            let named = at.join(std::fs::read_to_string(at.join("list"))?);
            files.add(&named);
            number(&named)
        };
        let reloaded = ReloadedValue::of_found_files(load).unwrap();
        std::fs::write(dir.path().join("a"), "22").unwrap();
        assert_eq!(*reloaded.latest(), 22);
        std::fs::write(&list, "later").unwrap();
        assert_eq!(*reloaded.latest(), 22, "the named file is missing");
        std::fs::write(dir.path().join("later"), "3").unwrap();
        assert_eq!(*reloaded.latest(), 3);
    }
}
