//! Container log files: their paths, the symlinks that log collectors read, and their removal.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::pod::Pod;

/// Maximum length of a file name.
const NAME_BYTES_MAX: usize = 255;
const SUFFIX: &str = ".log";

/// The logs of a node's containers: `<namespace>_<pod>_<uid>/<container>/<attempt>.log`, and symlinks to them that name
/// the container.
#[derive(Clone, Debug)]
pub struct Logs {
    pods: PathBuf,
    links: PathBuf,
}

impl Logs {
    // DEVIATION: symlinks to logs are in `containers` beside `podLogsDir`, so that several kubelets of one host stay
    // separate; upstream always uses /var/log/containers.
    pub fn new(pods: &Path) -> Self {
        Self { pods: pods.to_owned(), links: pods.with_file_name("containers") }
    }

    pub fn links_dir(&self) -> &Path {
        &self.links
    }

    /// Returns the log directory of a pod.
    pub fn of(&self, pod: Pod<'_>) -> PathBuf {
        self.named(pod.namespace(), pod.name(), pod.uid())
    }

    /// Returns the log directory of a pod of which only the identity is known.
    pub fn named(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.pods.join(format!("{namespace}_{name}_{uid}"))
    }

    /// Creates the symlink to the log of a started container.
    pub fn link(&self, pod: Pod<'_>, container: &str, attempt: u32, id: &str) -> io::Result<()> {
        let log = self.of(pod).join(container).join(format!("{attempt}{SUFFIX}"));
        // Runtimes that write no log file need no symlink.
        if !log.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.links)?;
        let link = self.links.join(link_name(pod, container, id));
        match symlink(log, link) {
            // Truncated names can collide; the existing symlink stays.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    /// Removes the log of one container, its rotated logs and its symlink.
    pub fn remove_one(&self, log: &Path) {
        // A runtime that reports no log path, or one outside the log directory, manages the log itself.
        let Some(dir) = log.parent().filter(|_| log.starts_with(&self.pods)) else { return };
        self.unlink(log);
        let name = log.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parts = |entry: &std::fs::DirEntry| {
            let found = entry.file_name();
            let rest = found.to_str().and_then(|found| found.strip_prefix(name));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten().filter(parts) {
            // Files that cannot be removed now are removed with their pod.
            let _ = std::fs::remove_file(entry.path());
        }
    }

    /// Removes a pod's logs and symlinks; missing logs are not an error.
    pub fn remove_all(&self, pod: Pod<'_>) {
        let dir = self.of(pod);
        self.unlink(&dir);
        if let Err(error) = sys::remove_tree(&dir) {
            tracing::warn!(pod = pod.described(), %error, "failed to remove the logs of a pod");
        }
    }

    /// Removes the logs of deleted pods, which a kubelet that was killed during cleanup leaves behind.
    pub fn remove_strangers(&self, deleted_uids: &BTreeSet<String>) {
        for entry in std::fs::read_dir(&self.pods).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(uid) = name.to_str().and_then(owner).filter(|uid| deleted_uids.contains(*uid)) else { continue };
            tracing::info!(uid, "removing the logs of a deleted pod");
            self.unlink(&entry.path());
            if let Err(error) = sys::remove_tree(&entry.path()) {
                tracing::warn!(uid, %error, "failed to remove the logs of a deleted pod");
            }
        }
    }

    /// Removes the symlinks to a log, or to logs below a directory. Ignores whether the target exists, since a log is
    /// missing for a moment during rotation.
    fn unlink(&self, log: &Path) {
        for link in std::fs::read_dir(&self.links).into_iter().flatten().flatten() {
            if std::fs::read_link(link.path()).is_ok_and(|to| to.starts_with(log)) {
                let _ = std::fs::remove_file(link.path());
            }
        }
    }
}

fn link_name(pod: Pod<'_>, container: &str, id: &str) -> String {
    let mut name = format!("{}_{}_{container}-{id}", pod.name(), pod.namespace());
    name.truncate(NAME_BYTES_MAX - SUFFIX.len());
    name + SUFFIX
}

/// Returns the UID from the name of a pod's log directory. Namespace, name and UID contain no underscores.
fn owner(name: &str) -> Option<&str> {
    let mut parts = name.split('_');
    let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let whole = parts.next().is_none() && [namespace, pod, uid].iter().all(|part| !part.is_empty());
    whole.then_some(uid)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        entries.collect::<BTreeSet<String>>().into_iter().collect()
    }

    #[test]
    fn logs_are_removed_with_their_pods_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["default_a_here", "default_b_gone", "gone", "b_gone", "a_b_gone_d", "__gone"] {
            std::fs::create_dir_all(dir.path().join(name).join("c")).unwrap();
        }
        std::fs::write(dir.path().join("default_b_gone/c/0.log"), "words").unwrap();
        let deleted_uids = BTreeSet::from(["gone".to_owned()]);
        Logs::new(dir.path()).remove_strangers(&deleted_uids);
        assert_eq!(names(dir.path()), ["__gone", "a_b_gone_d", "b_gone", "default_a_here", "gone"]);
        Logs::new(&dir.path().join("absent")).remove_strangers(&deleted_uids);
    }

    #[test]
    fn log_symlink_exists_until_the_log_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, links) = (Logs::new(&dir.path().join("pods")), dir.path().join("containers"));
        let pod = value!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}});
        let pod = Pod(&pod);
        logs.link(pod, "c", 0, "1").unwrap();
        assert!(!links.exists(), "there is no log");
        let of_container = logs.of(pod).join("c");
        std::fs::create_dir_all(&of_container).unwrap();
        for name in ["0.log", "0.log.20260101-000000", "1.log"] {
            std::fs::write(of_container.join(name), name).unwrap();
        }
        for (attempt, id) in [(0, "1"), (1, "2"), (1, "2")] {
            logs.link(pod, "c", attempt, id).unwrap();
        }
        assert_eq!(names(&links), ["p_n_c-1.log", "p_n_c-2.log"]);
        assert_eq!(std::fs::read_to_string(links.join("p_n_c-2.log")).unwrap(), "1.log");
        logs.remove_one(&of_container.join("0.log"));
        assert_eq!((names(&links), names(&of_container)), (vec!["p_n_c-2.log".into()], vec!["1.log".into()]));
        // A log that is being rotated is missing for a moment, and its symlink stays.
        std::fs::remove_file(of_container.join("1.log")).unwrap();
        logs.remove_one(&of_container.join("0.log"));
        assert_eq!(names(&links), ["p_n_c-2.log"]);
        logs.remove_one(Path::new(""));
        assert_eq!(names(&links), ["p_n_c-2.log"]);
        logs.remove_all(pod);
        assert_eq!((names(&links), logs.of(pod).exists()), (Vec::new(), false));
    }

    #[test]
    fn long_symlink_names_are_truncated() {
        let pod = value!({"metadata": {"name": ("p".repeat(253)), "namespace": "n"}});
        assert_eq!(link_name(Pod(&pod), "c", "1"), format!("{}.log", "p".repeat(251)));
    }
}
