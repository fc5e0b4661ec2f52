//! `knarr doctor`: checks whether this host can run a cluster, and the health of the one that runs on it.

mod bundle;
mod cluster;
mod features;
mod host;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use apimachinery::json;
use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};
use diagnostics::checkup;

use crate::output::{self, out, outln};
use crate::registry_flags::RegistryArgs;
use crate::up::Instance;

/// Check this host and the cluster on it.
#[derive(Args, Debug)]
struct Doctor {
    /// Data directory of the cluster, existing or planned.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Port of the API server.
    #[arg(long, default_value_t = 6443)]
    secure_port: u16,
    /// Port of the kubelet.
    #[arg(long, default_value_t = 10250)]
    kubelet_port: u16,
    /// Port of the DNS server on this host.
    #[arg(long, default_value_t = 10053)]
    dns_port: u16,
    /// Port of the metrics server on this host.
    #[arg(long, default_value_t = 4443)]
    metrics_port: u16,
    #[command(flatten)]
    registries: RegistryArgs,
    /// Output format.
    #[arg(short, long, default_value = "table")]
    output: Output,
    /// Also write an archive for the analysis of a problem: checks, objects without Secrets, logs, packet rules,
    /// settings and versions. The file must not exist.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Doctor::augment_args(command)
}

/// Runs all checks and prints the report. Exits with code 1 if a check fails that would prevent a start.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let doctor = Doctor::from_arg_matches(matches)?;
    let holder = if doctor.data_dir.is_dir() { Instance::holder(&doctor.data_dir)? } else { None };
    let machine = host::observe(&doctor, holder);
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = holder.map(|process| executor.block_on(cluster::observe(&doctor.data_dir, process)));
    let rows = checkup::evaluate(&machine, cluster.as_ref());
    match doctor.output {
        Output::Json => outln!("{}", json::to_string_pretty(&checkup::json(&rows))),
        Output::Table => out!("{}", checkup::table(&rows)),
    }
    if let Some(file) = &doctor.bundle {
        let count = executor.block_on(bundle::write(file, &doctor.data_dir, &rows))?;
        output::error_line(format_args!("wrote {count} files into {}", file.display()));
    }
    match cluster {
        None => ensure!(!checkup::prevents(&rows), "a cluster cannot start on this host; see the checks marked FAIL"),
        Some(_) => ensure!(!checkup::prevents(&rows), "the cluster is not healthy; see the checks marked FAIL"),
    }
    Ok(())
}
