//! A directory of image archives, which are imported when the runtime starts.
//!
//! An archive is imported if it is new or has changed since it was imported last, so that an image that was removed
//! stays removed. Nodes keep imported images until they are removed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use image_store::{ImportError, Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::blocking;

/// Maximum number of archives.
const ARCHIVES_MAX: usize = 10_000;
/// Endings of the names of archives.
const ENDINGS: [&str; 4] = [".tar", ".tar.gz", ".tgz", ".tar.zst"];

/// Archives by file name.
type Archives = BTreeMap<String, Stamp>;

/// Identifies a version of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    modified_seconds: i64,
    modified_nanos: i64,
}

/// An archive was not imported.
#[derive(Debug, thiserror::Error)]
enum ArchiveError {
    #[error("other users can change the file: run `chmod go-w` on it, and on its directory")]
    Mode,
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Imports the archives of a directory that are not in the record. An archive that cannot be imported is logged and
/// tried again at the next start.
pub(crate) async fn import(store: &Store, dir: &Path, record: &Path) {
    let found = match blocking::in_place(|| list(dir)) {
        Ok(found) => found,
        Err(error) => return tracing::error!(dir = %dir.display(), %error, "failed to list image archives"),
    };
    let mut imported = blocking::in_place(|| read(record));
    imported.retain(|name, _| found.contains_key(name));
    for name in changed(&found, &imported) {
        let path = dir.join(&name);
        match import_one(store, &path).await {
            Ok(images) => {
                tracing::info!(archive = %path.display(), images, "imported an image archive");
                imported.insert(name.clone(), found[&name]);
                // Written after each archive: an interrupted start does not repeat the ones before.
                if let Err(error) = blocking::in_place(|| write(record, &imported)) {
                    tracing::warn!(record = %record.display(), %error, "failed to record an imported image archive");
                }
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::error!(archive = %path.display(), %error, cause, "failed to import an image archive; skipping it");
            }
        }
    }
}

/// Returns the archives that are new or have changed.
fn changed(found: &Archives, imported: &Archives) -> Vec<String> {
    found.iter().filter(|(name, stamp)| imported.get(*name) != Some(stamp)).map(|(name, _)| name.clone()).collect()
}

/// Returns the number of imported images.
async fn import_one(store: &Store, path: &Path) -> Result<usize, ArchiveError> {
    // Imported images run as root, under any name.
    if blocking::in_place(|| is_writable_by_others(path) || path.parent().is_some_and(is_writable_by_others)) {
        return Err(ArchiveError::Mode);
    }
    let images = store.import(path, None).await?;
    for image in &images {
        store.pin(image)?;
    }
    Ok(images.len())
}

fn is_writable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o022 != 0)
}

fn list(dir: &Path) -> io::Result<Archives> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Archives::new()),
        entries => entries?,
    };
    let mut found = Archives::new();
    for entry in entries.take(ARCHIVES_MAX) {
        let path: PathBuf = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let metadata = fs::metadata(&path);
        if let Ok(metadata) = metadata
            && metadata.is_file()
            && ENDINGS.iter().any(|ending| name.ends_with(ending))
        {
            let stamp = Stamp {
                bytes: metadata.len(),
                modified_seconds: metadata.mtime(),
                modified_nanos: metadata.mtime_nsec(),
            };
            found.insert(name.to_owned(), stamp);
        }
    }
    Ok(found)
}

/// Returns the record. Without a readable one, all archives are imported again, which is harmless.
fn read(record: &Path) -> Archives {
    fs::read(record).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn write(record: &Path, imported: &Archives) -> io::Result<()> {
    let text = serde_json::to_vec(imported).map_err(io::Error::other)?;
    sys::replace_file(record, &text, 0o600)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;

    use image_store::{Name, Recipe};

    use super::*;

    /// Writes an archive with one image.
    async fn write_archive(dir: &Path, file: &str, name: &str) {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::open(scratch.path()).unwrap();
        let recipe = Recipe { files: vec![("/file".into(), name.as_bytes().to_vec(), 0o644)], ..Recipe::default() };
        let image = store.build(&Name::parse(name).unwrap(), &recipe).await.unwrap();
        store.export(&[&image], File::create(dir.join(file)).unwrap()).unwrap();
        fs::set_permissions(dir.join(file), fs::Permissions::from_mode(0o644)).unwrap();
    }

    #[tokio::test]
    async fn changed_archives_are_imported_and_pinned_and_bad_ones_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let (archives, record) = (dir.path().join("images"), dir.path().join("imported.json"));
        let store = Store::open(&dir.path().join("store")).unwrap();
        import(&store, &archives, &record).await;
        assert!(!record.exists(), "without a directory there is nothing to do");
        fs::create_dir(&archives).unwrap();
        fs::set_permissions(&archives, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(archives.join("bad.tar"), "no archive").unwrap();
        fs::write(archives.join("notes.txt"), "no archive").unwrap();
        write_archive(&archives, "good.tar", "test.local/one:1").await;
        import(&store, &archives, &record).await;
        assert!(store.find("test.local/one:1").is_some_and(|image| image.pinned));
        assert_eq!(read(&record).keys().collect::<Vec<_>>(), ["good.tar"], "the bad one is tried again");
        store.remove("test.local/one:1").unwrap();
        import(&store, &archives, &record).await;
        assert!(store.find("test.local/one:1").is_none(), "the archive has not changed");
        write_archive(&archives, "good.tar", "test.local/another:1").await;
        import(&store, &archives, &record).await;
        assert!(store.find("test.local/another:1").is_some());
        write_archive(&archives, "open.tar", "test.local/open:1").await;
        fs::set_permissions(archives.join("open.tar"), fs::Permissions::from_mode(0o666)).unwrap();
        import(&store, &archives, &record).await;
        assert!(store.find("test.local/open:1").is_none(), "another user could have written the archive");
    }
}
