//! `knarr install` and `knarr uninstall`: a service of this host that runs a cluster or a node.
//!
//! ```text
//!  flags, files ──> Observed, Service ──> plan ──> actions ──> execute (below a root directory)
//! ```

mod execute;
mod options;
mod plan;
mod uninstall;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use apimachinery::{Object, Value, yaml};
use clap::{ArgMatches, Args, FromArgMatches};

use crate::join::token_args;
use crate::output::outln;
use crate::settings;
use crate::up::Instance;
use execute::{below, command, execute};
use plan::{Init, Observed, Record};

pub(crate) use uninstall::{arguments as uninstall_arguments, run as uninstall};

/// Time limit until a service that starts in the background is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(180);
/// Interval between checks for readiness.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Install this binary as a service that starts at boot.
#[derive(Args, Debug)]
struct Install {
    /// Service manager [default: the running one].
    #[arg(long, value_enum)]
    init: Option<Init>,
    /// Directory to install into instead of `/`, such as a mounted disk image. Nothing is started.
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
    /// Install without starting the service.
    #[arg(long)]
    no_start: bool,
    /// Print the steps without executing them.
    #[arg(long)]
    dry_run: bool,
    /// Command of the service, `up`, `server` or `agent`, and its flags, which become keys of a configuration file
    /// [default: that of the installed service, or up].
    #[arg(value_name = "COMMAND [FLAGS]", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Install::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let install = Install::from_arg_matches(matches)?;
    token_args::hide_token()?;
    let root = &install.root;
    let is_host = root == Path::new("/");
    ensure!(
        !is_host || install.dry_run || rustix::process::geteuid().is_root(),
        "installing a service needs root; use sudo"
    );
    let record = std::fs::read_to_string(below(root, Path::new(plan::RECORD))).ok();
    let record = record.as_deref().and_then(Record::parse);
    let installed = record.as_ref().map_or("up", |record| record.command.as_str());
    let typed = if install.command.is_empty() { vec![installed.into()] } else { install.command };
    let file = below(root, Path::new(settings::FILE));
    let service = options::read(&crate::cli(), &typed, &file)?;
    let init = match install.init.or_else(|| record.as_ref().map(|record| record.init)) {
        Some(init) => init,
        None => detect(root)?,
    };
    if is_host {
        check_holder(&service.data_dir, init)?;
    }
    let observed = Observed {
        init,
        program: std::env::current_exe().context("failed to find the path of this executable")?,
        record,
        settings: read_settings(&below(root, Path::new(plan::SETTINGS)))?,
        is_dir: &|dir| below(root, dir).is_dir(),
    };
    let mut actions = plan::install(observed, &service);
    let is_started = is_host && !install.no_start;
    if is_started {
        actions.extend(plan::start(init));
    }
    if install.dry_run {
        actions.iter().for_each(|action| outln!("{action}"));
        return Ok(());
    }
    execute(root, &actions, &mut |words| {
        command(words).with_context(|| format!("the service did not start; see {}", init.log()))
    })?;
    outln!("installed {} and the service {}, which runs `knarr {}`", plan::PROGRAM, init.service(), service.command);
    if is_started {
        wait_until_ready(&service.data_dir, init)?;
        outln!("the service is ready; `knarr status` shows its state");
    }
    Ok(())
}

/// Returns the running service manager, or the one that a root directory contains.
fn detect(root: &Path) -> Result<Init> {
    let markers: &[(Init, &str)] = if root == Path::new("/") {
        &[(Init::Systemd, "/run/systemd/system"), (Init::Openrc, "/run/openrc")]
    } else {
        &[
            (Init::Systemd, "/usr/lib/systemd/systemd"),
            (Init::Systemd, "/lib/systemd/systemd"),
            (Init::Openrc, "/sbin/openrc-run"),
        ]
    };
    let found = markers.iter().find(|(_, marker)| below(root, Path::new(marker)).exists());
    let Some((init, _)) = found else {
        bail!(
            "neither systemd nor OpenRC was found; choose one with --init, or run `knarr up` under another supervisor"
        )
    };
    Ok(*init)
}

/// Fails if a cluster runs outside of the service: the service could not lock its data directory.
fn check_holder(data_dir: &Path, init: Init) -> Result<()> {
    if !data_dir.is_dir() || Path::new(init.service()).exists() {
        return Ok(());
    }
    if let Some(holder) = Instance::holder(data_dir)? {
        bail!(
            "a cluster already runs in {} as process {holder}; stop this process with `kill {holder}`, which keeps its pods running, and install again",
            data_dir.display()
        );
    }
    Ok(())
}

/// Reads the settings of an earlier installation.
fn read_settings(file: &Path) -> Result<Object> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Object::new()),
        Err(error) => return Err(error).with_context(|| format!("failed to read {}", file.display())),
    };
    match yaml::parse(&text).with_context(|| format!("{} is invalid", file.display()))? {
        Value::Object(settings) => Ok(settings),
        _ => Ok(Object::new()),
    }
}

/// Waits until the service is ready. With systemd the start command has waited already; OpenRC does not wait.
fn wait_until_ready(data_dir: &Path, init: Init) -> Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    while !(Instance::is_ready(data_dir) && Instance::holder(data_dir)?.is_some()) {
        ensure!(
            Instant::now() < deadline,
            "the service is not ready after {READY_TIMEOUT:?}; see {} and {}",
            init.log(),
            data_dir.join("knarr.log").display()
        );
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
