//! Files and directories that only root can access: a container's specification contains values of Secrets.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Creates a directory and its missing parents with mode 0700. An existing directory gets that mode.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(DIR_MODE))
}

/// Creates or truncates a file with mode 0600.
pub fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Writes a file with mode 0600.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    create(path)?.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_files_with_wider_modes_become_private() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, file) = (dir.path().join("a"), dir.path().join("a/file"));
        fs::create_dir(&inner).unwrap();
        fs::set_permissions(&inner, Permissions::from_mode(0o755)).unwrap();
        fs::write(&file, "old content").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        create_dir(&inner).unwrap();
        write(&file, b"new").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&inner), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }
}
