//! What components that run alone have in common: where the API server is, who they are, what they log.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use client::Config;
use client::config::Kubeconfig;

/// Where the API server is: what the kubeconfig says, or what a pod is given. `master` is an address in its place.
pub fn client_config(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<Config> {
    let mut config = match (kubeconfig, master) {
        (Some(file), _) => {
            ensure!(file.is_file(), "--kubeconfig: there is no file {}", file.display());
            Kubeconfig::load(&[file.to_owned()])?.config(None)?
        }
        (None, Some(master)) => Config::new(master.parse().context("--master")?),
        (None, None) => in_cluster()?,
    };
    if let Some(master) = master {
        config.server = master.parse().with_context(|| format!("--master {master:?} is no address"))?;
    }
    Ok(config)
}

/// What `-v` means.
pub const fn level(verbosity: u8) -> tracing::Level {
    match verbosity {
        0..=3 => tracing::Level::INFO,
        4..=7 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    }
}

/// The name of this machine.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// This machine, and a number that no other process on it has.
pub fn identity() -> String {
    let number = (client::backoff::random() * f64::from(u32::MAX)) as u32;
    format!("{}_{}-{number:08x}", host(), std::process::id())
}

/// A duration in Go's notation that is not negative.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration: machinery::time::Duration = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(duration.nanos()).map(Duration::from_nanos).map_err(|_| "it must not be negative".to_owned())
}

fn in_cluster() -> Result<Config> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(host), Some(port)) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")) else {
        bail!("there is no cluster around this process; say where it is with --kubeconfig");
    };
    Ok(Config::in_cluster(&host, &port, Path::new("/var/run/secrets/kubernetes.io/serviceaccount"))?)
}
