//! Protection of the shim's executable against containers (CVE-2019-5736).
//!
//! The processes that set up a container run the shim's executable, which processes in the container can open by
//! `/proc/<pid>/exe`. Root in the container could overwrite the file on the host as soon as no process runs it.
//! Therefore the shim is started from a view of the file that cannot be written: a detached overlay without a writable
//! layer, which shares the file's page cache. If the filesystem cannot be part of an overlay, a sealed copy in memory
//! is used.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

/// An executable that no process can change.
#[derive(Debug)]
pub struct Program {
    file: OwnedFd,
}

impl Program {
    /// Protects the executable at `path`. `empty` is an empty directory, since an overlay needs at least two layers.
    pub fn protect(path: &Path, empty: &Path) -> io::Result<Program> {
        let elsewhere = || {
            // The executable's directory may be a parent of `empty`, which an overlay rejects.
            let mount = empty_mount()?;
            view(path, Path::new(&format!("/proc/self/fd/{}", mount.as_raw_fd())))
        };
        let file = view(path, empty).or_else(|_| elsewhere()).or_else(|error| {
            tracing::info!(path = %path.display(), %error, "the filesystem of the shim's executable does not support overlays; running the shim from a copy in memory");
            copy(path)
        })?;
        Ok(Program { file })
    }

    /// Returns the path for `execve` in this process and its forks.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// Opens the executable in a read-only overlay of its directory.
fn view(path: &Path, empty: &Path) -> io::Result<OwnedFd> {
    let real = fs::canonicalize(path)?;
    let (expected, found) = (fs::metadata(path)?, fs::metadata(&real)?);
    if (expected.dev(), expected.ino()) != (found.dev(), found.ino()) {
        return Err(io::Error::other(format!("{} is another file now", real.display())));
    }
    let (Some(dir), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let layers = format!("{}:{}", plain(dir)?, plain(empty)?);
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "lowerdir", layers)?;
    fsconfig_set_flag(&context, "ro")?;
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(openat(&mount, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns a detached mount of an empty filesystem.
fn empty_mount() -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "size", "4k")?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?)
}

/// Returns a path as text; rejects characters with a meaning in the `lowerdir` option.
fn plain(path: &Path) -> io::Result<&str> {
    let text = path.to_str().filter(|text| !text.contains([':', ',', '\\']));
    text.ok_or_else(|| io::Error::other(format!("{} cannot be part of an overlay", path.display())))
}

/// Returns a sealed copy in memory.
fn copy(path: &Path) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the EXEC flag and do not need it.
    let made = rustix::fs::memfd_create("knarr-shim", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create("knarr-shim", flags))?;
    let mut file = File::from(made);
    io::copy(&mut File::open(path)?, &mut file)?;
    file.rewind()?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    // A file that is open for writing cannot be executed.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::process::Command;

    use super::*;

    fn check(protected: &OwnedFd) {
        let path = format!("/proc/self/fd/{}", protected.as_raw_fd());
        let output = Command::new(&path).arg("hello").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
        let written = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"evil"));
        let kind = written.unwrap_err().kind();
        assert!(matches!(kind, io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied), "{kind}");
        assert!(OpenOptions::new().write(true).truncate(true).open(&path).is_err());
    }

    #[test]
    fn cve_2019_5736_a_protected_program_runs_and_cannot_be_written() {
        test_requirements::root();
        let dir = tempfile::tempdir().unwrap();
        let (own, empty) = (dir.path().join("own"), dir.path().join("empty"));
        let program = own.join("program");
        for dir in [&own, &empty, &own.join("empty")] {
            fs::create_dir(dir).unwrap();
        }
        fs::copy("/bin/echo", &program).unwrap();
        check(&view(&program, &empty).unwrap());
        check(&copy(&program).unwrap());
        check(&Program::protect(&program, &own.join("empty")).unwrap().file);
        let other = dir.path().join("with:colon");
        fs::rename(&own, &other).unwrap();
        check(&Program::protect(&other.join("program"), &empty).unwrap().file);
    }
}
