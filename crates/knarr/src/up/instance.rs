//! Lock of a data directory: at most one running cluster per directory, and the PID of its process.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use audit::log::rotation::Rotation;
use component_base::LogFile;
use rustix::fs::{FlockOperation, flock};

use crate::trace_file::TraceFile;

/// Time limit for a killed process to release its lock, and the polling interval. flock has no timeout.
const DYING: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Mode of a data directory. Other users may traverse but not list it. The root user of a pod with a user namespace is
/// another user on the node, and must reach the pod's root file system. Private files below have their own modes.
pub(crate) const DATA_DIR_MODE: u32 = 0o711;
/// The sticky bit of shared directories such as /tmp.
const STICKY: u32 = 0o1000;

/// Rotation of `knarr.log`.
const LOG_ROTATION: Rotation = Rotation { megabytes_max: 64, days_max: 0, backups_max: 3, compress: false };

/// The lock of this process on a data directory.
#[derive(Debug)]
pub(crate) struct Instance {
    dir: PathBuf,
    lock: File,
}

impl Instance {
    /// Locks a directory. Creates it if it does not exist, and removes list permission for other users.
    pub(crate) fn claim(dir: &Path) -> Result<Self> {
        prepare(dir)?;
        // The kernel lists mounts by their resolved paths, so all paths are made from the resolved directory.
        let dir = &dir.canonicalize().with_context(|| format!("failed to resolve {}", dir.display()))?;
        if let Some(holder) = Self::holder(dir)? {
            bail!("{} belongs to a cluster that runs as process {holder}; stop it with `knarr down`", dir.display());
        }
        let lock = open(dir)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("another cluster is starting in {}", dir.display()))?;
        let instance = Self { dir: dir.to_owned(), lock };
        instance.write_lock(&format!("{}\n", std::process::id()))?;
        Ok(instance)
    }

    /// Returns the PID of the process that holds the lock. Waits up to [`DYING`] for a killed process to release it,
    /// and for a new process to write its PID.
    pub(crate) fn holder(dir: &Path) -> Result<Option<u32>> {
        if !dir.join("knarr.lock").is_file() {
            return Ok(None);
        }
        let deadline = Instant::now() + DYING;
        loop {
            let mut lock = open(dir)?;
            if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
                return Ok(None);
            }
            let mut text = String::new();
            lock.read_to_string(&mut text)?;
            let number: Result<u32, _> = text.lines().next().unwrap_or_default().parse();
            let late = Instant::now() >= deadline;
            match number {
                Ok(number) if late || is_alive(number) => return Ok(Some(number)),
                Err(error) if late => {
                    let lock = dir.join("knarr.lock");
                    return Err(error).with_context(|| format!("{} contains no PID", lock.display()));
                }
                Ok(_) | Err(_) => {}
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the lock is released.
    pub(crate) fn wait_for_end(dir: &Path) -> Result<()> {
        Ok(flock(open(dir)?, FlockOperation::LockShared)?)
    }

    /// Whether the cluster of a data directory is ready.
    pub(crate) fn is_ready(dir: &Path) -> bool {
        std::fs::read_to_string(dir.join("knarr.lock")).is_ok_and(|text| text.lines().nth(1) == Some("ready"))
    }

    /// Records that the cluster is ready, and its components.
    pub(crate) fn ready(&self, components: &[&str]) -> Result<()> {
        self.write_lock(&format!("{}\nready\n{}\n", std::process::id(), components.join(" ")))
    }

    /// Returns the components in the process of a cluster. They start and exit together.
    pub(crate) fn components(dir: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(dir.join("knarr.lock")).unwrap_or_default();
        text.lines().nth(2).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    /// Returns the data directory without symbolic links in its path.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens the trace file, which the components of the node share.
    pub(crate) fn trace(&self) -> Result<Arc<TraceFile>> {
        let file = TraceFile::open(&self.dir);
        Ok(Arc::new(file.with_context(|| format!("failed to open the trace file in {}", self.dir.display()))?))
    }

    /// Opens the components' log file, which is rotated by size.
    pub(crate) fn log(&self) -> Result<Mutex<LogFile>> {
        let path = self.dir.join("knarr.log");
        let mut log = LogFile::new(&path, LOG_ROTATION);
        log.open().with_context(|| format!("failed to write {}", path.display()))?;
        Ok(Mutex::new(log))
    }

    fn write_lock(&self, text: &str) -> Result<()> {
        let mut lock = &self.lock;
        lock.set_len(0)?;
        lock.rewind()?;
        Ok(lock.write_all(text.as_bytes())?)
    }
}

/// Whether a process is alive. A killed process loses its executable before its locks.
fn is_alive(process: u32) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok()
}

/// Creates a data directory that only its owner can list, or changes the mode of an existing one. A directory with
/// other files keeps its mode.
pub(super) fn prepare(dir: &Path) -> Result<()> {
    let failed = || {
        format!(
            "failed to create {}; run this command as root, or choose another directory with --data-dir",
            dir.display()
        )
    };
    sys::create_dirs(dir, DATA_DIR_MODE).with_context(failed)?;
    let mode = std::fs::metadata(dir).with_context(failed)?.permissions().mode();
    let is_own = dir.join("knarr.lock").is_file() || std::fs::read_dir(dir).with_context(failed)?.next().is_none();
    let is_shared = mode & STICKY != 0;
    if mode & 0o777 != DATA_DIR_MODE && is_own && !is_shared {
        std::fs::set_permissions(dir, Permissions::from_mode(DATA_DIR_MODE))
            .with_context(|| format!("failed to change the mode of {}", dir.display()))?;
    }
    Ok(())
}

fn open(dir: &Path) -> Result<File> {
    let path = dir.join("knarr.lock");
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
    file.with_context(|| format!("failed to write {}; run this command as root", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_directory_is_locked_by_one_process() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Instance::holder(dir.path()).unwrap(), None);
        let first = Instance::claim(dir.path()).unwrap();
        assert_eq!(Instance::holder(dir.path()).unwrap(), Some(std::process::id()));
        let error = Instance::claim(dir.path()).unwrap_err().to_string();
        assert!(error.contains("knarr down"), "{error}");
        assert!(!Instance::is_ready(dir.path()));
        first.ready(&["kubelet", "dns"]).unwrap();
        assert_eq!(Instance::components(dir.path()), ["kubelet", "dns"]);
        assert!(Instance::is_ready(dir.path()));
        drop(first);
        assert_eq!(Instance::holder(dir.path()).unwrap(), None);
    }

    #[test]
    fn data_directory_cannot_be_listed_by_other_users() {
        let top = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let check = |name: &str, before: Option<u32>, content: Option<&str>, expect: u32| {
            let dir = top.path().join(name);
            if let Some(before) = before {
                std::fs::create_dir(&dir).unwrap();
                std::fs::set_permissions(&dir, Permissions::from_mode(before)).unwrap();
            }
            if let Some(content) = content {
                std::fs::write(dir.join(content), "").unwrap();
            }
            prepare(&dir).unwrap();
            assert_eq!(mode(&dir), expect, "{name}");
        };
        check("new/below", None, None, 0o711);
        check("empty", Some(0o755), None, 0o711);
        check("of-an-older-version", Some(0o755), Some("knarr.lock"), 0o711);
        check("of-somebody-else", Some(0o755), Some("letter"), 0o755);
        check("like-tmp", Some(0o1777), Some("knarr.lock"), 0o1777);
        let instance = Instance::claim(&top.path().join("claimed")).unwrap();
        for file in ["knarr.lock", "knarr.log"] {
            drop(instance.log().unwrap());
            assert_eq!(mode(&instance.dir().join(file)), 0o600, "{file}");
        }
    }

    #[test]
    fn log_is_rotated() {
        let top = tempfile::tempdir().unwrap();
        let instance = Instance::claim(top.path()).unwrap();
        let log = instance.log().unwrap();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..LOG_ROTATION.megabytes_max + 2 {
            log.lock().unwrap().write_all(&line).unwrap();
        }
        assert!(std::fs::metadata(top.path().join("knarr.log")).unwrap().len() < 4 << 20);
        let logs = std::fs::read_dir(top.path()).unwrap().flatten().map(|entry| entry.file_name());
        assert_eq!(logs.filter(|name| name.to_string_lossy().starts_with("knarr-")).count(), 1);
    }

    #[test]
    fn symbolic_link_to_data_directory_is_resolved() {
        let top = tempfile::tempdir().unwrap();
        let (real, link) = (top.path().join("real"), top.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let instance = Instance::claim(&link).unwrap();
        assert_eq!(instance.dir(), real.canonicalize().unwrap());
    }

    #[test]
    fn holder_waits_until_a_new_process_writes_its_pid() {
        let dir = tempfile::tempdir().unwrap();
        let come = Instance { dir: dir.path().to_owned(), lock: open(dir.path()).unwrap() };
        flock(&come.lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let holder = std::thread::scope(|scope| {
            let asking = scope.spawn(|| Instance::holder(dir.path()).unwrap());
            come.write_lock(&format!("{}\n", std::process::id())).unwrap();
            asking.join().unwrap()
        });
        assert_eq!(holder, Some(std::process::id()));
    }
}
