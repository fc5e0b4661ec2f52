//! Reads the directory: regular files of root, within limits. It decides nothing about objects.

use std::collections::BTreeMap;
use std::fs::{DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use component_base::trust;
use sys::{Access, ReadLease};

use crate::document::{self, Document};

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Maximum size of all files together.
const BYTES_MAX: u64 = 32 << 20;
/// Maximum number of files.
const FILES_MAX: usize = 1000;
/// Maximum number of objects.
const OBJECTS_MAX: usize = 4000;
/// Maximum number of directories, of which each is watched.
const DIRECTORIES_MAX: usize = 256;
/// Extensions of the files that are read.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The observed directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub root: Root,
    /// Files by their path in the directory. A subdirectory that is not read has a path that ends with a slash.
    pub files: BTreeMap<String, FileState>,
    /// Set if a directory cannot be watched, so that changes are not noticed.
    pub unwatched: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Root {
    #[default]
    Present,
    Missing,
    /// The directory is not read.
    Refused(String),
}

#[derive(Debug)]
pub(crate) enum FileState {
    Parsed {
        version: FileVersion,
        documents: Vec<Document>,
    },
    /// The file is not used; the objects that it had before are kept.
    Refused {
        /// Zero if the problem has no line.
        line: usize,
        problem: String,
    },
    /// A process has the file open for writing. Its end is reported by the watch.
    BeingWritten,
}

/// Identifies the content of a file: device, inode, size, and times of change in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileVersion(pub [i128; 5]);

/// The read of one directory.
struct Walk<'w> {
    root: &'w Path,
    watch: &'w dyn Fn(&Path) -> io::Result<()>,
    found: Directory,
    bytes: u64,
    objects: usize,
    directories: usize,
}

/// Reads all files. `watch` is called with each directory before it is read, so that no change is missed.
pub(crate) fn read(root: &Path, watch: &dyn Fn(&Path) -> io::Result<()>) -> Directory {
    let mut walk = Walk { root, watch, found: Directory::default(), bytes: 0, objects: 0, directories: 0 };
    let metadata = match std::fs::metadata(root) {
        Ok(metadata) if !metadata.is_dir() => return refused("it is not a directory".to_owned()),
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Directory { root: Root::Missing, ..Directory::default() };
        }
        Err(error) => return refused(error.to_string()),
    };
    match walk.directory(root, &metadata) {
        Ok(()) => walk.found,
        Err(problem) => refused(problem),
    }
}

fn refused(problem: String) -> Directory {
    Directory { root: Root::Refused(problem), ..Directory::default() }
}

impl Walk<'_> {
    fn directory(&mut self, path: &Path, metadata: &Metadata) -> Result<(), String> {
        if let Some(problem) = trust::problem("directory", metadata) {
            return Err(problem);
        }
        self.directories += 1;
        if self.directories > DIRECTORIES_MAX {
            return Err(format!("the manifests directory has more than {DIRECTORIES_MAX} directories"));
        }
        if let Err(error) = (self.watch)(path) {
            self.found.unwatched = Some(format!("failed to watch {}: {error}", path.display()));
        }
        let entries = std::fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<DirEntry>>>);
        let mut entries = entries.map_err(|error| error.to_string())?;
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            self.entry(&entry.path());
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        // A file may disappear after it was listed; the watch reports that.
        let Ok(metadata) = std::fs::symlink_metadata(path) else { return };
        if name.starts_with(b".") {
            return;
        }
        let relative = path.strip_prefix(self.root).unwrap_or(path).to_string_lossy().into_owned();
        if metadata.is_dir() {
            if let Err(problem) = self.directory(path, &metadata) {
                self.found.files.insert(relative + "/", FileState::Refused { line: 0, problem });
            }
        } else if path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known)) {
            let state = self.file(path, &metadata);
            let state = state.unwrap_or_else(|problem| FileState::Refused { line: 0, problem });
            self.found.files.insert(relative, state);
        }
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) -> Result<FileState, String> {
        if self.found.files.len() >= FILES_MAX {
            return Err(format!("the directory has more than {FILES_MAX} files; join some of them"));
        }
        if metadata.is_symlink() {
            return Err("symbolic links are not followed; copy the file".to_owned());
        }
        if !metadata.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        let file = sys::open_container_file(path, Access::Read).map_err(|error| error.to_string())?;
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        if let Some(problem) = trust::problem("file", &metadata) {
            return Err(problem);
        }
        if sys::lease_for_reading(&file).map_err(|error| error.to_string())? == ReadLease::BeingWritten {
            return Ok(FileState::BeingWritten);
        }
        let left = BYTES_MAX - self.bytes;
        let too_large = format!(
            "a file may have at most {} MiB, and all files together {} MiB",
            FILE_BYTES_MAX >> 20,
            BYTES_MAX >> 20
        );
        let bytes = sys::read_bounded(file, FILE_BYTES_MAX.min(left)).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => too_large,
            _ => error.to_string(),
        })?;
        self.bytes += bytes.len() as u64;
        let text = String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())?;
        self.parsed(&text, version(&metadata))
    }

    fn parsed(&mut self, text: &str, version: FileVersion) -> Result<FileState, String> {
        let documents = match document::parse(text) {
            Ok(documents) => documents,
            Err(error) => return Ok(FileState::Refused { line: error.line, problem: error.problem }),
        };
        // A failed `helm template … > FILE` leaves an empty file, and must not delete the application.
        if documents.is_empty() {
            return Err("the file has no objects; delete the file to delete the objects that it had".to_owned());
        }
        self.objects += documents.len();
        if self.objects > OBJECTS_MAX {
            return Err(format!("the directory has more than {OBJECTS_MAX} objects"));
        }
        Ok(FileState::Parsed { version, documents })
    }
}

fn version(metadata: &Metadata) -> FileVersion {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    FileVersion([
        metadata.dev().into(),
        metadata.ino().into(),
        metadata.len().into(),
        nanos(metadata.mtime(), metadata.mtime_nsec()),
        nanos(metadata.ctime(), metadata.ctime_nsec()),
    ])
}

/// Creates the directory, which only its owner may read: manifests contain Secrets.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let parent: Option<PathBuf> = path.parent().map(Path::to_owned);
    if let Some(parent) = parent.filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";

    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let made = ["sub/deep", ".git"].map(|name| fs::create_dir_all(dir.path().join(name)));
        assert!(made.iter().all(Result::is_ok));
        for name in ["b.yaml", "a.json", "d.yml", "sub/deep/e.yaml", "c.txt", ".hidden.yaml", ".git/f.yaml"] {
            put(dir.path(), name, SECRET, 0o600);
        }
        for name in ["sub", "sub/deep"] {
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o755)).unwrap();
        }
        dir
    }

    fn put(dir: &Path, name: &str, text: &str, mode: u32) {
        fs::write(dir.join(name), text).unwrap();
        fs::set_permissions(dir.join(name), Permissions::from_mode(mode)).unwrap();
    }

    fn problem(dir: &Path, name: &str) -> String {
        match read(dir, &|_| Ok(())).files.remove(name) {
            Some(FileState::Refused { problem, .. }) => problem,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn files_with_known_extensions_are_read_and_their_directories_watched() {
        let dir = directory();
        let watched = std::cell::RefCell::new(Vec::new());
        let found = read(dir.path(), &|path| {
            watched.borrow_mut().push(path.strip_prefix(dir.path()).unwrap().display().to_string());
            Ok(())
        });
        let names: Vec<&str> = found.files.keys().map(String::as_str).collect();
        assert_eq!(names, ["a.json", "b.yaml", "d.yml", "sub/deep/e.yaml"]);
        assert!(
            found
                .files
                .values()
                .all(|state| matches!(state, FileState::Parsed { documents, .. } if documents.len() == 1))
        );
        assert_eq!(watched.into_inner(), ["", "sub", "sub/deep"]);
    }

    #[test]
    fn only_regular_files_that_other_users_cannot_change_are_read() {
        let dir = directory();
        put(dir.path(), "open.yaml", SECRET, 0o666);
        put(dir.path(), "empty.yaml", "# nothing\n", 0o600);
        put(dir.path(), "broken.yaml", "a: [", 0o600);
        symlink(dir.path().join("b.yaml"), dir.path().join("link.yaml")).unwrap();
        symlink("/etc", dir.path().join("etc.yaml")).unwrap();
        rustix::fs::mknodat(CWD, dir.path().join("fifo.yaml"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::write(dir.path().join("binary.yaml"), [0xff]).unwrap();
        fs::File::create(dir.path().join("large.yaml")).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        fs::set_permissions(dir.path().join("sub"), Permissions::from_mode(0o777)).unwrap();
        for (name, expect) in [
            ("open.yaml", "other users can change the file; run `chmod go-w` on it"),
            ("empty.yaml", "the file has no objects"),
            ("link.yaml", "symbolic links are not followed"),
            ("etc.yaml", "symbolic links are not followed"),
            ("fifo.yaml", "not a regular file"),
            ("binary.yaml", "not UTF-8"),
            ("large.yaml", "at most 8 MiB"),
            ("sub/", "other users can change the directory; run `chmod go-w` on it"),
            ("broken.yaml", ""),
        ] {
            let found = problem(dir.path(), name);
            assert!(found.contains(expect), "{name}: {found}");
        }
    }

    #[test]
    fn file_that_is_open_for_writing_is_not_read() {
        let dir = directory();
        let path = dir.path().join("b.yaml");
        let writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert!(matches!(read(dir.path(), &|_| Ok(())).files["b.yaml"], FileState::BeingWritten));
        drop(writer);
        assert!(matches!(read(dir.path(), &|_| Ok(())).files["b.yaml"], FileState::Parsed { .. }));
    }

    #[test]
    fn root_is_refused_if_other_users_can_change_it_and_created_if_missing() {
        let dir = directory();
        let root = dir.path().join("new/manifests");
        assert_eq!(read(&root, &|_| Ok(())).root, Root::Missing);
        create(&root).unwrap();
        create(&root).unwrap();
        assert_eq!(read(&root, &|_| Ok(())).root, Root::Present);
        fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(read(&root, &|_| Ok(())).root, Root::Refused(_)));
        assert!(matches!(read(&dir.path().join("b.yaml"), &|_| Ok(())).root, Root::Refused(_)));
        fs::set_permissions(&root, Permissions::from_mode(0o700)).unwrap();
        let unwatched = read(&root, &|_| Err(io::Error::from(io::ErrorKind::StorageFull)));
        assert!(unwatched.unwatched.is_some());
    }

    #[test]
    fn files_beyond_the_limits_are_refused() {
        let dir = directory();
        let many = format!("{SECRET}---\n{SECRET}");
        let many = vec![many.as_str(); OBJECTS_MAX / 2].join("---\n");
        put(dir.path(), "b.yaml", &many, 0o600);
        assert!(problem(dir.path(), "b.yaml").contains("more than 4000 objects"));
        for number in 0..FILES_MAX {
            fs::write(dir.path().join(format!("x{number}.yaml")), "").unwrap();
        }
        assert!(problem(dir.path(), "x999.yaml").contains("more than 1000 files"));
    }
}
