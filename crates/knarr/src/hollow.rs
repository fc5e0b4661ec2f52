//! `knarr hollow`: simulated nodes for a cluster, on which pods run without containers.

use std::path::PathBuf;

use ::hollow_node::node::Size;
use ::hollow_node::{Nodes, Settings};
use anyhow::{Context, Result, ensure};
use clap::{ArgMatches, Args, FromArgMatches};
use client::Client;
use client::config::Kubeconfig;

use crate::component;

/// Run simulated nodes of a cluster.
#[derive(Args, Debug, Clone)]
struct Hollow {
    /// Path to the kubeconfig file with credentials for the API server.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Number of nodes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32_767))]
    nodes: u32,
    /// Prefix of the nodes' names.
    #[arg(long, default_value = "hollow-")]
    name_prefix: String,
    /// CPU capacity of a node.
    #[arg(long, default_value = "32")]
    cpu: String,
    /// Memory capacity of a node.
    #[arg(long, default_value = "256Gi")]
    memory: String,
    /// Pod capacity of a node.
    #[arg(long, default_value_t = 110)]
    pods: u32,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Hollow::augment_args(command)
}

/// Runs the nodes until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let flags = Hollow::from_arg_matches(matches)?;
    crate::log::to_stderr(tracing::Level::INFO);
    component::run_stateless("hollow", serve(flags))
}

async fn serve(flags: Hollow) -> Result<()> {
    ensure!(flags.kubeconfig.is_file(), "--kubeconfig: no such file: {}", flags.kubeconfig.display());
    let config = Kubeconfig::load(std::slice::from_ref(&flags.kubeconfig))?.config(None)?;
    let settings = client::Settings { user_agent: "hollow".to_owned(), ..client::Settings::default() };
    let client =
        Client::connect(&config, settings).with_context(|| format!("failed to connect to {}", config.server))?;
    let size = Size { cpu: flags.cpu, memory: flags.memory, pods: flags.pods };
    let nodes = Settings { nodes: flags.nodes, prefix: flags.name_prefix, size };
    let nodes = Nodes::start(client, nodes).await.context("failed to register the nodes")?;
    tracing::info!(nodes = flags.nodes, "ready");
    crate::etcd::signal().await?;
    drop(nodes);
    Ok(())
}
