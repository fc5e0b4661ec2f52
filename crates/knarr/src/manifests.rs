//! `knarr manifests`: applies the objects in the files of a directory.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use apimachinery::Key;
use clap::{ArgAction, ArgMatches, Args, FromArgMatches};
use component_base::election;
use manifests::Config;

use crate::component::{self, ApiEndpoint, InProcessServer};
use crate::output::outln;

#[derive(Args, Debug, Clone)]
struct Flags {
    /// Path to a kubeconfig file [default: the in-cluster configuration].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Directory with the manifests. It is created if it does not exist.
    #[arg(long, value_name = "PATH", default_value = "/var/lib/knarr/manifests")]
    dir: PathBuf,
    /// Name of the ApplySet, and of the ConfigMap in kube-system that records it. Directories with different content
    /// need different names: an object that is not in the directory is deleted from the set.
    #[arg(long, value_name = "NAME", default_value = "knarr-manifests")]
    name: String,
    /// Change objects only while holding the Lease kube-system/knarr-manifests, so that several directories can contain
    /// the same objects.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    leader_elect: bool,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Flags::augment_args(command)
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    crate::log::to_stderr(tracing::Level::INFO);
    component::run_stateless("manifests", start(matches, None))
}

/// Runs in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, in_process: Option<&InProcessServer>) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    let reach = ApiEndpoint::new(flags.kubeconfig.as_deref(), None, in_process)?;
    let settings = client::Settings { user_agent: manifests::MANAGER.to_owned(), ..client::Settings::default() };
    let client = reach.client(settings)?;
    let lease = || election::Settings {
        // A pass is short, and the next server should not wait long for it.
        retry_period: Duration::from_millis(500),
        ..election::Settings::new(Key::new("kube-system", manifests::MANAGER), component::identity())
    };
    let config = Config { directory: flags.dir, name: flags.name, election: flags.leader_elect.then(lease) };
    if in_process.is_none() {
        outln!("ready");
    }
    tokio::select! {
        () = manifests::run(client, config) => bail!("failed to send events"),
        signal = crate::etcd::signal() => signal,
    }
}
