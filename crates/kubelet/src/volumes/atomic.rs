//! Atomic volume updates, as upstream's AtomicWriter: a symlink points to the directory of the newest files.
//!
//! ```text
//!   volume/key        -> ..data/key
//!   volume/..data     -> ..1794805200123456789 (Unix nanoseconds)
//!   volume/..1794…/key
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::payload::{File, Files};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Replaces the files of a volume; readers never see a mix of old and new files. Returns whether anything changed.
pub(super) fn write(dir: &Path, files: &Files, group: Option<i64>) -> io::Result<bool> {
    let old = fs::read_link(dir.join(DATA)).ok();
    if old.as_ref().is_some_and(|old| is_current(&dir.join(old), files)) {
        return Ok(false);
    }
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let name = format!("..{nanos}");
    let fresh = dir.join(&name);
    fs::create_dir(&fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
    let group = group.and_then(|group| u32::try_from(group).ok());
    for (path, file) in files {
        write_file(&fresh, path, file, group)?;
    }
    // A killed predecessor may have left the temporary link behind.
    let _ = fs::remove_file(dir.join(NEW_DATA));
    symlink(&name, dir.join(NEW_DATA))?;
    fs::rename(dir.join(NEW_DATA), dir.join(DATA))?;
    link_names(dir, files)?;
    if let Some(old) = old.filter(|old| old.as_os_str() != name.as_str()) {
        sys::remove_tree(&dir.join(old))?;
    }
    Ok(true)
}

fn write_file(root: &Path, path: &str, file: &File, group: Option<u32>) -> io::Result<()> {
    let target = root.join(path);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
        let mut dir = parent;
        while dir.starts_with(root) && dir != root {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
            dir = dir.parent().unwrap_or(root);
        }
    }
    fs::write(&target, &file.bytes)?;
    // The pod's group gets the owner's read permission.
    let shared = if group.is_some() { (file.mode & 0o400) >> 3 } else { 0 };
    fs::set_permissions(&target, fs::Permissions::from_mode(file.mode | shared))?;
    if file.owner.is_some() || group.is_some() {
        chown(&target, file.owner, group)?;
    }
    Ok(())
}

fn is_current(dir: &Path, files: &Files) -> bool {
    let same = |(path, file): (&String, &File)| fs::read(dir.join(path)).is_ok_and(|bytes| bytes == file.bytes);
    files.iter().all(same) && count(dir) == files.len()
}

fn count(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

/// Creates a symlink for each top-level name and removes those of deleted files.
fn link_names(dir: &Path, files: &Files) -> io::Result<()> {
    let desired: BTreeSet<&str> = files.keys().map(|path| path.split('/').next().unwrap_or(path)).collect();
    for name in &desired {
        if fs::symlink_metadata(dir.join(name)).is_err() {
            symlink(Path::new(DATA).join(name), dir.join(name))?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let own = name.to_str().is_some_and(|name| name.starts_with("..") || desired.contains(name));
        if !own && entry.file_type()?.is_symlink() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> Files {
        let file = |text: &str| File { bytes: text.as_bytes().to_vec(), mode: 0o640, owner: None };
        entries.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
    }

    #[test]
    fn files_change_atomically_and_stale_ones_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let read = |path: &str| fs::read_to_string(dir.path().join(path)).ok();
        assert!(write(dir.path(), &files(&[("a", "1"), ("d/b", "2")]), None).unwrap());
        let first = fs::read_link(dir.path().join(DATA)).unwrap();
        assert_eq!((read("a").as_deref(), read("d/b").as_deref()), (Some("1"), Some("2")));
        let mode = fs::metadata(dir.path().join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(!write(dir.path(), &files(&[("a", "1"), ("d/b", "2")]), None).unwrap(), "nothing changed");
        assert!(write(dir.path(), &files(&[("a", "3")]), None).unwrap());
        assert_eq!((read("a").as_deref(), read("d/b")), (Some("3"), None));
        assert!(!dir.path().join(first).exists());
        assert!(fs::symlink_metadata(dir.path().join("d")).is_err());
    }
}
