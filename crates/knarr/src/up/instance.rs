//! One running cluster a folder: a lock that ends with its process, and who holds it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

/// How long a process may take to die, and how often it is looked: a lock cannot be waited for with a deadline.
const DYING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// The claim of this process on a folder.
#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
    lock: File,
}

impl Instance {
    /// Claims a folder, which is made if there is none.
    pub fn claim(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| {
            format!("{} cannot be made; run this as root, or choose another folder with --data-dir", folder.display())
        })?;
        if let Some(holder) = Self::holder(folder)? {
            bail!("{} belongs to a cluster that runs as process {holder}; stop it with `knarr down`", folder.display());
        }
        let lock = open(folder)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("another cluster is just being started in {}", folder.display()))?;
        let instance = Self { folder: folder.to_owned(), lock };
        instance.say(&format!("{}\n", std::process::id()))?;
        Ok(instance)
    }

    /// The process that holds a folder, if any. One that is dying holds it for a moment more, and one that has just come has not said yet
    /// who it is; both are waited for.
    pub fn holder(folder: &Path) -> Result<Option<u32>> {
        if !folder.join("knarr.lock").is_file() {
            return Ok(None);
        }
        let deadline = Instant::now() + DYING;
        loop {
            let mut lock = open(folder)?;
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
                    let lock = folder.join("knarr.lock");
                    return Err(error).with_context(|| format!("{} names no process", lock.display()));
                }
                Ok(_) | Err(_) => {}
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until nobody holds a folder.
    pub fn wait_for_end(folder: &Path) -> Result<()> {
        Ok(flock(open(folder)?, FlockOperation::LockShared)?)
    }

    /// Whether the cluster of a folder can be used.
    pub fn is_ready(folder: &Path) -> bool {
        std::fs::read_to_string(folder.join("knarr.lock")).is_ok_and(|text| text.lines().nth(1) == Some("ready"))
    }

    /// Says that the cluster can be used, and what runs.
    pub fn ready(&self, components: &[&str]) -> Result<()> {
        self.say(&format!("{}\nready\n{}\n", std::process::id(), components.join(" ")))
    }

    /// The components that the cluster of a folder runs in its process: the end of one is the end of all.
    pub fn components(folder: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(folder.join("knarr.lock")).unwrap_or_default();
        text.lines().nth(2).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    /// Where components write what they do.
    pub fn log(&self) -> Result<File> {
        let path = self.folder.join("knarr.log");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.with_context(|| format!("{} cannot be written", path.display()))
    }

    fn say(&self, text: &str) -> Result<()> {
        let mut lock = &self.lock;
        lock.set_len(0)?;
        lock.rewind()?;
        Ok(lock.write_all(text.as_bytes())?)
    }
}

/// A process that was killed loses its program first, and its locks a little later.
fn is_alive(process: u32) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok()
}

fn open(folder: &Path) -> Result<File> {
    let path = folder.join("knarr.lock");
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    file.with_context(|| format!("{} cannot be written; run this as root", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_holder() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Instance::holder(folder.path()).unwrap(), None);
        let first = Instance::claim(folder.path()).unwrap();
        assert_eq!(Instance::holder(folder.path()).unwrap(), Some(std::process::id()));
        let refused = Instance::claim(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("knarr down"), "{refused}");
        assert!(!Instance::is_ready(folder.path()));
        first.ready(&["kubelet", "dns"]).unwrap();
        assert_eq!(Instance::components(folder.path()), ["kubelet", "dns"]);
        assert!(Instance::is_ready(folder.path()));
        drop(first);
        assert_eq!(Instance::holder(folder.path()).unwrap(), None);
    }

    #[test]
    fn who_has_just_come_is_waited_for_until_it_says_who_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let come = Instance { folder: folder.path().to_owned(), lock: open(folder.path()).unwrap() };
        flock(&come.lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let holder = std::thread::scope(|scope| {
            let asking = scope.spawn(|| Instance::holder(folder.path()).unwrap());
            come.say(&format!("{}\n", std::process::id())).unwrap();
            asking.join().unwrap()
        });
        assert_eq!(holder, Some(std::process::id()));
    }
}
