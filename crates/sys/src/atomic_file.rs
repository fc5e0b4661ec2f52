//! Atomic file replacement: a crash at any moment leaves either the old or the new content.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Temporary names that writers of this process currently use.
static IN_USE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Replaces a file's content: writes a temporary file in the same directory, syncs it, renames it, and syncs the
/// directory.
///
/// When this returns, the new content survives a power failure. After a failure or crash at any step a reader finds the
/// old or the new content, never a mix. The file has exactly this mode, regardless of the process's umask.
pub fn replace_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace(path, |temporary| replace_on(&mut Local, path, temporary, content, mode))
}

/// Replaces a file's content like [`replace_file`], but without syncing: a reader finds the old or the new content
/// while the host runs, and after a power failure possibly neither. For content that is useless after a reboot.
pub fn replace_file_lazily(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace(path, |temporary| {
        Local.create(temporary, content, mode)?;
        Local.rename(temporary, path)
    })
}

fn replace(path: &Path, work: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let temporary = TemporaryPath::of(path)?;
    let replaced = work(&temporary.0);
    if replaced.is_err() {
        // Best effort: the next writer of the same file reuses the name.
        let _ = std::fs::remove_file(&temporary.0);
    }
    replaced.map_err(|error| io::Error::new(error.kind(), format!("failed to replace {}: {error}", path.display())))
}

/// Creates a directory and its missing parents with this mode, and syncs the parent of each new directory: a file that
/// is replaced in it afterwards survives a power failure.
pub fn create_dirs(path: &Path, mode: u32) -> io::Result<()> {
    let mut missing = Vec::new();
    for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        if dir.is_dir() {
            break;
        }
        missing.push(dir);
    }
    for dir in missing.into_iter().rev() {
        match DirBuilder::new().mode(mode).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            made => made?,
        }
        sync_dir(parent_of(dir))?;
    }
    Ok(())
}

/// Syncs a directory, so that names created or renamed in it survive a power failure.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The disk operations of a file replacement, one effect per method.
trait Disk {
    fn create(&mut self, path: &Path, content: &[u8], mode: u32) -> io::Result<()>;
    fn sync(&mut self, path: &Path) -> io::Result<()>;
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_dir(&mut self, dir: &Path) -> io::Result<()>;
}

fn replace_on(disk: &mut impl Disk, path: &Path, temporary: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    disk.create(temporary, content, mode)?;
    disk.sync(temporary)?;
    disk.rename(temporary, path)?;
    disk.sync_dir(parent_of(path))
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

struct Local;

impl Disk for Local {
    fn create(&mut self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode & 0o700).custom_flags(flags);
        let mut file = options.open(path)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.write_all(content)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        sync_dir(dir)
    }
}

/// The name of the temporary file, unique among concurrent writers of this process. A file left behind by a crash is
/// overwritten by the next writer, so at most a few such files ever exist.
struct TemporaryPath(PathBuf);

impl TemporaryPath {
    fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::other(format!("{} has no file name", path.display())))?;
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let temporary = (0u64..).map(|n| {
            let mut temporary = OsString::from(".");
            temporary.push(name);
            temporary.push(if n == 0 { ".new".to_owned() } else { format!(".new{n}") });
            path.with_file_name(temporary)
        });
        let mut free = temporary.filter(|temporary| !in_use.contains(temporary));
        let free = free.next().expect("there are more names than writers");
        in_use.insert(free.clone());
        Ok(Self(free))
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        IN_USE.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A simulated disk that loses unsynced data in a power failure, and fails before a given step.
    #[derive(Clone, Default)]
    struct Model {
        /// Names in the directory as processes see them, and as they are on the disk.
        names: BTreeMap<PathBuf, usize>,
        durable_names: BTreeMap<PathBuf, usize>,
        /// Contents by file, and as they are on the disk.
        files: Vec<Vec<u8>>,
        durable_files: Vec<Vec<u8>>,
        steps_left: usize,
    }

    impl Model {
        fn step(&mut self) -> io::Result<()> {
            self.steps_left = self.steps_left.checked_sub(1).ok_or_else(|| io::Error::other("power failure"))?;
            Ok(())
        }

        /// Returns every possible state after a power failure: each unsynced change is either present or absent.
        fn after_power_failure(&self, path: &Path) -> Vec<Option<Vec<u8>>> {
            let mut found = Vec::new();
            for names in [&self.names, &self.durable_names] {
                for files in [&self.files, &self.durable_files] {
                    found.push(names.get(path).map(|file| files[*file].clone()));
                }
            }
            found
        }
    }

    impl Disk for Model {
        fn create(&mut self, path: &Path, content: &[u8], _mode: u32) -> io::Result<()> {
            self.step()?;
            self.names.insert(path.to_owned(), self.files.len());
            self.files.push(content.to_vec());
            self.durable_files.push(Vec::new());
            Ok(())
        }

        fn sync(&mut self, path: &Path) -> io::Result<()> {
            self.step()?;
            let file = self.names[path];
            self.durable_files[file] = self.files[file].clone();
            Ok(())
        }

        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            self.step()?;
            let file = self.names.remove(from).unwrap();
            self.names.insert(to.to_owned(), file);
            Ok(())
        }

        fn sync_dir(&mut self, _dir: &Path) -> io::Result<()> {
            self.step()?;
            self.durable_names = self.names.clone();
            Ok(())
        }
    }

    #[test]
    fn power_failure_after_any_step_leaves_the_old_content_or_the_new() {
        let (path, temporary) = (Path::new("/d/state"), Path::new("/d/.state.new"));
        let mut disk = Model { steps_left: 4, ..Model::default() };
        replace_on(&mut disk, path, temporary, b"old", 0o600).unwrap();
        assert!(disk.after_power_failure(path).iter().all(|found| found.as_deref() == Some(b"old")));
        for steps_left in 0..=4 {
            let mut disk = Model { steps_left, ..disk.clone() };
            let replaced = replace_on(&mut disk, path, temporary, b"new", 0o600);
            assert_eq!(replaced.is_ok(), steps_left == 4);
            for found in disk.after_power_failure(path) {
                let found = found.expect("the file always exists");
                assert!(found == b"new" || (found == b"old" && replaced.is_err()), "{steps_left}: {found:?}");
            }
            // Leftovers do not prevent the next write.
            let mut disk = Model { steps_left: 4, ..disk };
            replace_on(&mut disk, path, temporary, b"next", 0o600).unwrap();
            assert!(disk.after_power_failure(path).iter().all(|found| found.as_deref() == Some(b"next")));
        }
    }

    #[test]
    fn file_is_replaced_with_its_mode_and_no_temporary_file_remains() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        for (content, mode) in [("one", 0o644), ("two", 0o600)] {
            // Left behind by a crash.
            std::fs::write(dir.path().join(".state.new"), "a much longer half of something").unwrap();
            replace_file(&path, content.as_bytes(), mode).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        assert!(replace_file(&dir.path().join("none/state"), b"", 0o600).is_err());
        std::fs::create_dir(dir.path().join("taken")).unwrap();
        assert!(replace_file(&dir.path().join("taken"), b"", 0o600).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn concurrent_writers_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        std::thread::scope(|scope| {
            for letter in ["a", "b", "c", "d"] {
                let path = &path;
                scope.spawn(move || {
                    (0..20).for_each(|_| replace_file(path, letter.repeat(10_000).as_bytes(), 0o600).unwrap());
                });
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() == 10_000 && text.chars().all(|letter| text.starts_with(letter)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn directories_are_created_with_one_mode() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        create_dirs(&inner, 0o700).unwrap();
        create_dirs(&inner, 0o700).unwrap();
        assert_eq!(std::fs::metadata(dir.path().join("a")).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(create_dirs(&dir.path().join("file"), 0o700).is_err());
    }
}
