//! File access of a kustomization, limited to its root directory.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::Error;

/// The files that a kustomization may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restriction {
    /// Files in or below the kustomization's directory.
    #[default]
    RootOnly,
    /// Any file.
    None,
}

/// Reads the files of one kustomization.
#[derive(Clone, Debug)]
pub(super) struct Loader {
    root: PathBuf,
    /// The roots of the including kustomizations, which must not be loaded again.
    referrers: Vec<PathBuf>,
    restriction: Restriction,
}

impl Loader {
    /// Returns the loader of the kustomization that the user named.
    pub(super) fn open(directory: &Path, restriction: Restriction) -> Result<Self, Error> {
        let root = confirm_directory(directory, &directory.display().to_string())?;
        Ok(Self { root, referrers: Vec::new(), restriction })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the loader of a base or component. A base at or above the root of an including kustomization is a cycle.
    pub(super) fn enter(&self, path: &str) -> Result<Self, Error> {
        if path.is_empty() {
            return Err(Error::new("new root cannot be empty"));
        }
        if is_remote(path) {
            return Err(remote(path));
        }
        if Path::new(path).is_absolute() {
            return Err(Error::new(format!("new root '{path}' cannot be absolute")));
        }
        let joined = clean(&self.root.join(path));
        let root = confirm_directory(&joined, &joined.display().to_string())?;
        for visited in std::iter::once(&self.root).chain(self.referrers.iter().rev()) {
            if visited.starts_with(&root) {
                return Err(Error::new(format!(
                    "cycle detected: candidate root '{}' contains visited root '{}'",
                    root.display(),
                    visited.display()
                )));
            }
        }
        let mut referrers = self.referrers.clone();
        referrers.push(self.root.clone());
        Ok(Self { root, referrers, restriction: self.restriction })
    }

    pub(super) fn load(&self, path: &str) -> Result<Vec<u8>, Error> {
        if path.starts_with("http://") || path.starts_with("https://") {
            return Err(remote(path));
        }
        let full = clean(&self.root.join(path));
        let real = real_path(&full, &full.display().to_string())?;
        if self.restriction == Restriction::RootOnly {
            if real.is_dir() {
                return Err(Error::new(format!("'{}' must resolve to a file", full.display())));
            }
            if !real.starts_with(&self.root) {
                let (file, root) = (full.display(), self.root.display());
                return Err(Error::new(format!("security; file '{file}' is not in or below '{root}'")));
            }
        }
        fs::read(&real).map_err(|error| Error::new(format!("open {}: {}", real.display(), reason(&error))))
    }

    /// Loads a file that must be text.
    pub(super) fn load_text(&self, path: &str) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(&self.load(path)?).into_owned())
    }
}

/// Whether a path names a remote repository or file.
fn is_remote(path: &str) -> bool {
    path.contains("://") || path.starts_with("git@") || path.starts_with("github.com/") || path.contains("?ref=")
}

fn remote(path: &str) -> Error {
    Error::new(format!("remote resource '{path}' is not supported: download it and refer to the local copy"))
}

fn confirm_directory(path: &Path, display: &str) -> Result<PathBuf, Error> {
    let real =
        real_path(path, display).map_err(|error| error.context("must build at directory: not a valid directory"))?;
    if real.is_dir() {
        return Ok(real);
    }
    Err(Error::new(format!("must build at directory: '{display}': file is not directory")))
}

/// Resolves symbolic links.
fn real_path(path: &Path, display: &str) -> Result<PathBuf, Error> {
    fs::canonicalize(path).map_err(|error| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let missing =
            absolute.ancestors().filter(|ancestor| fs::symlink_metadata(ancestor).is_err()).last().unwrap_or(&absolute);
        Error::new(format!("evalsymlink failure on '{display}' : lstat {}: {}", missing.display(), reason(&error)))
    })
}

/// Returns an I/O error as worded by Go.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        _ => error.to_string(),
    }
}

/// Removes `.` and `..` from a path without reading the file system.
fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}
