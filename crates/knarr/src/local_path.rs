//! `knarr local-path`: provisioner of PersistentVolumes that are directories of this node.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use apimachinery::Value;
use clap::{ArgMatches, Args, FromArgMatches};
use component_base::events::Recorder;
use controller::{Controller, Setup};
use controller_runtime::{Caches, Driver};
use controllers::local_path::{self, DirectoryChange, LocalPath};

use crate::component::{self, ApiEndpoint, InProcessServer, host};

/// Number of claims and volumes that are reconciled concurrently.
const WORKERS: usize = 4;
/// Prefix of the names of volumes and their directories.
const PREFIX: &str = "pvc-";

#[derive(Args, Debug, Clone)]
struct Flags {
    /// Path to a kubeconfig file [default: the in-cluster configuration].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Name of this node.
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Directory in which the volumes are created.
    #[arg(long, value_name = "PATH", default_value = "/var/lib/knarr/storage")]
    root: PathBuf,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Flags::augment_args(command)
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    crate::log::to_stderr(tracing::Level::INFO);
    component::run_stateless("local-path", start(matches, None))
}

/// Runs in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, in_process: Option<&InProcessServer>) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    let reach = ApiEndpoint::new(flags.kubeconfig.as_deref(), None, in_process)?;
    let dirs = Folders::new(&flags.root).with_context(|| format!("invalid --root {}", flags.root.display()))?;
    let root = dirs.0.to_str().context("--root must be UTF-8")?.to_owned();
    let node = flags.hostname_override.unwrap_or_else(host);
    let setup =
        Setup { config: local_path::Config { node, root }, perform: Arc::new(move |change| dirs.perform(change)) };
    let settings = client::Settings { user_agent: "knarr-local-path".to_owned(), ..client::Settings::default() };
    let client = reach.client(settings)?;
    let caches = Caches::start(&client, &client::cache::Settings::default(), LocalPath::READS.iter().copied())?;
    let (events, sending) = Recorder::new(client.clone(), LocalPath::NAME);
    let driver = Driver { client, caches, events, manager: LocalPath::NAME.to_owned() };
    tokio::select! {
        () = sending => anyhow::bail!("failed to send events"),
        () = controller_runtime::run::<LocalPath>(Arc::new(driver), Arc::new(setup), WORKERS) => anyhow::bail!("the caches stopped"),
        signal = crate::etcd::signal() => signal,
    }
}

/// The root directory. Each volume is a direct child.
struct Folders(PathBuf);

impl Folders {
    /// Creates the root with mode 0700: volume directories are world-writable, and only root may reach them on the
    /// host.
    fn new(root: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        Ok(Self(root.canonicalize()?))
    }

    /// Returns the path of a volume if it is a direct child of the root with [`PREFIX`]. Rejects others: users can
    /// write PersistentVolumes.
    fn child(&self, path: &str) -> Result<PathBuf, String> {
        let path = Path::new(path);
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| name.starts_with(PREFIX));
        let child = name.map(|name| self.0.join(name)).filter(|child| child.as_path() == path);
        child.ok_or_else(|| format!("{} is not a volume directory below {}", path.display(), self.0.display()))
    }

    fn perform(&self, change: &DirectoryChange) -> Result<Value, String> {
        let done = match change {
            DirectoryChange::Create(path) => make(&self.child(path)?),
            DirectoryChange::Remove(path) => sys::remove_tree(&self.child(path)?),
        };
        done.map(|()| Value::Null).map_err(|error| error.to_string())
    }
}

/// Creates the directory with mode 0777, because the container may run as any user.
fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::set_permissions(path, Permissions::from_mode(0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_directories_are_created_and_removed_only_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        let dirs = Folders::new(&dir.path().join("root")).unwrap();
        let path = |name: &str| format!("{}/{name}", dirs.0.display());
        for _ in 0..2 {
            dirs.perform(&DirectoryChange::Create(path("pvc-1_a_c"))).unwrap();
        }
        let volume_dir = PathBuf::from(path("pvc-1_a_c"));
        assert_eq!(fs::metadata(&volume_dir).unwrap().permissions().mode() & 0o777, 0o777);
        std::os::unix::fs::symlink(&outside, volume_dir.join("link")).unwrap();
        for _ in 0..2 {
            dirs.perform(&DirectoryChange::Remove(path("pvc-1_a_c"))).unwrap();
        }
        assert!(!volume_dir.exists() && outside.join("precious").exists());
        for bad in ["pvc-1/../../outside", "../outside", "other", "", "pvc-1/x"] {
            dirs.perform(&DirectoryChange::Remove(path(bad))).unwrap_err();
        }
        dirs.perform(&DirectoryChange::Remove(outside.display().to_string())).unwrap_err();
        assert!(outside.join("precious").exists());
    }
}
