//! `knarr node`: additional nodes of the cluster in network namespaces of this host.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use apimachinery::Resource;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use client::{DeleteOptions, Target};

use crate::output::outln;
use crate::up::nodes::Nodes;
use crate::up::{Instance, Offer, ready};
use crate::{down, token};

static NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");

/// Manage nodes in network namespaces of this host.
#[derive(Args, Debug)]
struct Node {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr", global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    what: NodeCommand,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// Add a node, and wait until it is ready.
    Add {
        /// Name of the node.
        name: String,
        #[command(flatten)]
        offer: Offer,
    },
    /// List the nodes in network namespaces of this host.
    Ls,
    /// Remove a node with all of its pods.
    Rm {
        /// Name of the node.
        name: String,
    },
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Node::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Node { data_dir, what } = Node::from_arg_matches(matches)?;
    let nodes = Nodes::open(&data_dir);
    if let NodeCommand::Ls = what {
        nodes.names()?.iter().for_each(|name| outln!("{name}"));
        return Ok(());
    }
    ensure!(
        Instance::holder(&data_dir)?.is_some(),
        "no cluster runs in {}; start it with `knarr up`",
        data_dir.display()
    );
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match what {
        NodeCommand::Ls => {}
        NodeCommand::Add { name, offer } => {
            nodes.add_with(&name, &offer)?;
            executor.block_on(async { ready::node_as(token::admin(&data_dir)?, name.clone()).await })?;
            outln!("node {name} is ready");
        }
        NodeCommand::Rm { name } => {
            nodes.remove(&name)?;
            let dir = nodes.node_dir(&name);
            if dir.join("knarr.lock").is_file() {
                // The agent of a node that is not listed any more exits.
                Instance::wait_for_end(&dir)?;
                down::kill_node(&name, &dir)?;
            }
            nodes.disconnect(&name)?;
            sys::remove_tree(&dir).with_context(|| format!("failed to remove {}", dir.display()))?;
            executor.block_on(async {
                let client = token::admin(&data_dir)?;
                match client.delete(&Target::named(&NODES, "", &name), &DeleteOptions::default()).await {
                    Err(error) if !error.is_not_found() => {
                        bail!(anyhow::Error::from(error).context("failed to delete the Node object"))
                    }
                    _ => Ok(()),
                }
            })?;
            outln!("node {name} is removed");
        }
    }
    Ok(())
}
