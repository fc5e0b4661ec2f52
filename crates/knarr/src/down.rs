//! `knarr down`: stops the cluster of this host, and with `--purge` removes all of its data.

mod leftovers;
mod pods;
mod shutdown;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use clap::{ArgMatches, Args, FromArgMatches};
use netlink::namespace;
use rustix::process::{Pid, Signal, kill_process};

use crate::output::outln;
use crate::up::Instance;
use crate::up::nodes::{self, Nodes};
use pods::TerminationMode;

/// Stop the cluster of this host.
#[derive(Args, Debug)]
struct Down {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Kill containers immediately, without preStop hooks, SIGTERM and grace periods.
    #[arg(long)]
    now: bool,
    /// Maximum grace period of containers in seconds; longer ones are cut.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..))]
    grace_max: Option<i64>,
    /// Do nothing unless the host shuts down, for service managers.
    #[arg(long, hide = true)]
    if_host_stops: bool,
    /// Delete all data of the cluster. This includes the data of its pods, so it implies --now.
    #[arg(long)]
    purge: bool,
    /// Name of the network-namespace node of a cluster that is being stopped.
    #[arg(long, hide = true)]
    node: Option<String>,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Down::augment_args(command)
}

/// Stops the process, then the pods, and with `--purge` deletes their data.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Down { data_dir, now, grace_max, if_host_stops, purge, node } = Down::from_arg_matches(matches)?;
    if if_host_stops && !shutdown::is_in_progress()? {
        return Ok(());
    }
    ensure!(data_dir.is_dir(), "no cluster in {}", data_dir.display());
    // Without symbolic links, because the kernel lists mounts by their resolved paths.
    let data_dir = data_dir.canonicalize().with_context(|| format!("failed to resolve {}", data_dir.display()))?;
    let dir = data_dir.display();
    ensure!(
        data_dir.join("knarr.lock").is_file(),
        "{dir} has never been the data directory of a cluster; nothing was changed"
    );
    let prefix = node.as_ref().map(|name| format!("node {name}: ")).unwrap_or_default();
    match (stop_process(&data_dir)?, &node) {
        (Some(process), None) => outln!("stopped process {process}"),
        (None, None) => outln!("no process runs the cluster in {dir}"),
        // The agent of a node exits with the cluster's process.
        (_, Some(_)) => {}
    }
    let manner = if now || purge {
        TerminationMode::Immediate
    } else {
        TerminationMode::Graceful { seconds_max: grace_max.unwrap_or(i64::MAX) }
    };
    let nodes = Nodes::open(&data_dir);
    let stopping = stop_nodes(&nodes, manner)?;
    let netns = data_dir.join("netns");
    if namespace::is_namespace(&netns) {
        // The links and rules of a network-namespace node are inside its namespace.
        namespace::enter(&netns)?;
    }
    if data_dir.join("runtime").is_dir() {
        let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let count = executor.block_on(pods::stop(&data_dir, manner, &prefix))?;
        outln!("{prefix}stopped {count} pods");
    }
    for (name, mut stopping) in stopping {
        ensure!(stopping.wait()?.success(), "failed to stop node {name}; see above, or try again with --now");
    }
    if data_dir.join("runtime").is_dir() {
        clean_up(&data_dir)?;
    }
    if !nodes.names()?.is_empty() {
        nodes.clean_up().context("failed to remove the network of the nodes")?;
    }
    if purge {
        remove_everything(&nodes, &data_dir)?;
        outln!("removed {dir}");
    }
    Ok(())
}

/// Stops the process of a cluster or agent. Returns its PID, or `None` if none runs.
fn stop_process(data_dir: &Path) -> Result<Option<u32>> {
    let Some(process) = Instance::holder(data_dir)? else { return Ok(None) };
    let id = i32::try_from(process).ok().and_then(Pid::from_raw).context("the PID is invalid")?;
    kill_process(id, Signal::TERM).with_context(|| format!("failed to stop process {process}"))?;
    Instance::wait_for_end(data_dir)?;
    Ok(Some(process))
}

/// Starts to stop the pods of all network-namespace nodes. Each namespace is entered by a separate process.
fn stop_nodes(nodes: &Nodes, manner: TerminationMode) -> Result<Vec<(String, Child)>> {
    let mut stopping = Vec::new();
    for name in nodes.names()? {
        let dir = nodes.node_dir(&name);
        if dir.join("knarr.lock").is_file() {
            stopping.push((name.clone(), stop_node(&name, &dir, manner)?));
        }
    }
    Ok(stopping)
}

fn stop_node(name: &str, data_dir: &Path, manner: TerminationMode) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["down", "--node", name, "--data-dir"]).arg(data_dir);
    match manner {
        TerminationMode::Immediate => {
            command.arg("--now");
        }
        TerminationMode::Graceful { seconds_max } => {
            command.args(["--grace-max", &seconds_max.to_string()]);
        }
    }
    Ok(command.spawn()?)
}

/// Kills the pods of one node, so that the node can be removed.
pub(crate) fn kill_node(name: &str, data_dir: &Path) -> Result<()> {
    let down = stop_node(name, data_dir, TerminationMode::Immediate)?.wait()?;
    ensure!(down.success(), "failed to stop the pods of node {name}");
    Ok(())
}

/// Removes host resources of pods and Services: links, rules, mounts and cgroups.
fn clean_up(data_dir: &Path) -> Result<()> {
    let network =
        pod_network::RoutedNetwork::new(pod_network::routed::Config::new(&data_dir.join("runtime").join("network")));
    network.clean_up().context("failed to remove the pod network")?;
    pod_network::mesh::apply(&[], &[], None).context("failed to remove the routes to other nodes")?;
    kube_proxy::run::clean_up().context("failed to remove the rules of Services")?;
    kube_proxy::policy::sync::clean_up().context("failed to remove the rules of network policies")?;
    leftovers::unmount_below(&data_dir.join("kubelet"))?;
    leftovers::unmount_below(&data_dir.join("runtime"))?;
    leftovers::remove_cgroup_root(&nodes::group(data_dir));
    let uids = leftovers::pod_uids(&[data_dir.to_owned()]);
    leftovers::remove_pod_cgroups(&uids);
    leftovers::remove_pod_slices(&uids);
    Ok(())
}

/// Deletes the data directory and the logs of its pods.
fn remove_everything(nodes: &Nodes, data_dir: &Path) -> Result<()> {
    let mut data_dirs: Vec<PathBuf> = nodes.names()?.iter().map(|name| nodes.node_dir(name)).collect();
    data_dirs.push(data_dir.to_owned());
    leftovers::remove_logs(&leftovers::pod_uids(&data_dirs));
    leftovers::remove_data(data_dir).with_context(|| format!("failed to remove {}", data_dir.display()))
}
