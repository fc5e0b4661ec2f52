//! hostPath volumes: type checks, and creation of missing paths.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use apimachinery::Value;

use super::VolumeError;

/// Checks a path against its type, creates it if the type requires that, and returns it.
pub(super) fn check(source: &Value) -> Result<PathBuf, VolumeError> {
    let path = PathBuf::from(source.str_at(&["path"]).unwrap_or_default());
    let kind = source.str_at(&["type"]).unwrap_or_default();
    match kind {
        "DirectoryOrCreate" if !path.exists() => make(&path, |path| {
            fs::create_dir_all(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        })?,
        "FileOrCreate" if !path.exists() => make(&path, |path| {
            fs::File::create(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o644))
        })?,
        _ => {}
    }
    let found = fs::metadata(&path).ok().map(|metadata| metadata.file_type());
    let is = |test: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(test);
    let (right, what) = match kind {
        "DirectoryOrCreate" | "Directory" => (is(fs::FileType::is_dir), "a directory"),
        "FileOrCreate" | "File" => (is(fs::FileType::is_file), "a file"),
        "Socket" => (is(FileTypeExt::is_socket), "a socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "a character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "a block device"),
        _ => (true, ""),
    };
    if right { Ok(path) } else { Err(VolumeError::HostPath(format!("{} is not {what}", path.display()))) }
}

fn make(path: &Path, how: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), VolumeError> {
    how(path).map_err(VolumeError::io(format!("make {}", path.display())))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn host_path_must_match_its_type() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let tried = |path: &Path, kind: &str| {
            check(&value!({"path": (path.display().to_string()), "type": kind})).map_err(|error| error.to_string())
        };
        assert!(tried(&file, "File").unwrap_err().ends_with("is not a file"));
        assert!(tried(&file, "").is_ok());
        assert!(tried(&file, "FileOrCreate").is_ok());
        assert!(tried(&file, "File").is_ok());
        assert!(tried(&file, "DirectoryOrCreate").unwrap_err().ends_with("is not a directory"));
        assert!(tried(&dir.path().join("a/b"), "DirectoryOrCreate").is_ok());
        assert!(tried(Path::new("/dev/null"), "CharDevice").is_ok());
    }
}
