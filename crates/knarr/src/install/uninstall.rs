//! `knarr uninstall`: removes what `knarr install` installed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgMatches, Args, FromArgMatches};

use super::execute::{below, command, execute};
use super::plan::{self, Record};
use crate::output::outln;

/// Stop the service and remove the installation of `knarr install`. Cluster data is kept unless --purge is given.
#[derive(Args, Debug)]
struct Uninstall {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Also delete all data of the cluster.
    #[arg(long)]
    purge: bool,
    /// Directory to remove the installation from instead of `/`. No process is stopped and no data is deleted.
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true, conflicts_with = "purge")]
    root: PathBuf,
    /// Print the steps without executing them.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Uninstall::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Uninstall { data_dir, purge, root, dry_run } = Uninstall::from_arg_matches(matches)?;
    let is_host = root == Path::new("/");
    ensure!(!is_host || dry_run || rustix::process::geteuid().is_root(), "removing a service needs root; use sudo");
    let file = below(&root, Path::new(plan::RECORD));
    let record = match std::fs::read_to_string(&file) {
        Ok(text) => Record::parse(&text).with_context(|| format!("{} is damaged", file.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{} does not exist: this host has no installation by `knarr install`", file.display())
        }
        Err(error) => return Err(error).with_context(|| format!("failed to read {}", file.display())),
    };
    // Pods keep running without the service. A data directory that was never used has no pods.
    let has_pods = is_host && data_dir.join("knarr.lock").is_file();
    let down = has_pods.then(|| down(&data_dir, purge)).transpose()?;
    let mut actions = plan::uninstall(&record, down);
    if !is_host {
        actions.retain(|action| !matches!(action, plan::Action::Run(_)));
    }
    if dry_run {
        actions.iter().for_each(|action| outln!("{action}"));
        return Ok(());
    }
    execute(&root, &actions, &mut command)?;
    outln!("removed {} and the service {}", plan::PROGRAM, record.init.service());
    if is_host && !purge && data_dir.is_dir() {
        outln!("the data of the cluster is still in {}; `rm -r` deletes it", data_dir.display());
    }
    let dir = below(&root, Path::new("/etc/knarr"));
    if dir.exists() {
        outln!("{} contains files that `knarr install` did not write", dir.display());
    }
    Ok(())
}

/// Returns the command that stops the pods.
fn down(data_dir: &Path, purge: bool) -> Result<Vec<String>> {
    let program = std::env::current_exe().context("failed to find the path of this executable")?;
    let words = [program.as_path(), Path::new("down"), Path::new("--data-dir"), data_dir];
    let words = words.into_iter().map(|word| word.display().to_string());
    Ok(words.chain(purge.then(|| "--purge".to_owned())).collect())
}
