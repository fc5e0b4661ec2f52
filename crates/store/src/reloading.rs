//! Values derived from files (TLS configurations), rebuilt when the files change.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

type Make<T, E> = Box<dyn Fn() -> Result<T, E> + Send + Sync>;

/// A value that follows its files. If they are invalid, such as between the replacement of key and certificate, the
/// last valid value is used.
pub(crate) struct ReloadingValue<T, E> {
    files: Vec<PathBuf>,
    make: Make<T, E>,
    cached: Mutex<(Stamps, T)>,
}

/// Identity of a file's content: modification time, inode and size.
type Stamps = Vec<Option<(i64, i64, u64, u64)>>;

impl<T: Clone, E: std::error::Error + 'static> ReloadingValue<T, E> {
    pub(crate) fn new(files: Vec<PathBuf>, make: impl Fn() -> Result<T, E> + Send + Sync + 'static) -> Result<Self, E> {
        // Taken before the value, so that a change in between is detected by the next call.
        let stamps = stamps(&files);
        let first = make()?;
        Ok(Self { files, make: Box::new(make), cached: Mutex::new((stamps, first)) })
    }

    /// Returns the current value.
    pub(crate) fn get(&self) -> T {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.files);
        if now != cached.0 {
            match (self.make)() {
                Ok(made) => *cached = (now, made),
                Err(error) => {
                    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    tracing::warn!(%error, source, "failed to load changed files; keeping the previous ones");
                }
            }
        }
        cached.1.clone()
    }
}

impl<T, E> fmt::Debug for ReloadingValue<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Renewed").field(&self.files).finish()
    }
}

fn stamps(files: &[PathBuf]) -> Stamps {
    let stamp = |file: &Path| {
        let seen = std::fs::metadata(file).ok()?;
        Some((seen.mtime(), seen.mtime_nsec(), seen.ino(), seen.size()))
    };
    files.iter().map(|file| stamp(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_follows_its_files_and_is_retained_while_they_are_invalid() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("number");
        let write = |text: &str| {
            std::fs::write(dir.path().join("new"), text).unwrap();
            std::fs::rename(dir.path().join("new"), &file).unwrap();
        };
        write("1");
        let from = file.clone();
        let number = ReloadingValue::new(vec![file.clone()], move || {
            std::fs::read_to_string(&from).unwrap_or_default().parse::<u8>()
        });
        let number = number.unwrap();
        let mut seen = vec![number.get()];
        for text in ["2", "nonsense", "3"] {
            write(text);
            seen.push(number.get());
        }
        std::fs::remove_file(&file).unwrap();
        seen.push(number.get());
        assert_eq!(seen, [1, 2, 2, 3, 3]);
    }
}
