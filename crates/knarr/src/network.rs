//! `knarr network`: the ways to other nodes' pods, and network policies on this node.

use std::path::Path;

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};

use crate::component::{self, Inside, Reach};

/// Its flags.
pub fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("kubeconfig")
                .long("kubeconfig")
                .value_name("PATH")
                .help("How to reach the API server and who to be; as a pod finds it if not given"),
        )
        .arg(Arg::new("hostname-override").long("hostname-override").required(true).help("The node's name"))
        .arg(
            Arg::new("mtu")
                .long("mtu")
                .value_parser(value_parser!(u32))
                .default_value("1430")
                .help("The largest packet through a tunnel between nodes"),
        )
}

/// Keeps routes and policies until SIGTERM or SIGINT; they stay.
pub fn run(matches: &ArgMatches) -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    component::run(start(matches, None))
}

/// Keeps them in a process that has a log and an executor.
pub async fn start(matches: &ArgMatches, inside: Option<&Inside>) -> Result<()> {
    let reach = Reach::new(matches.get_one::<String>("kubeconfig").map(Path::new), None, inside)?;
    let node = matches.get_one::<String>("hostname-override").expect("it is required");
    let mtu = *matches.get_one::<u32>("mtu").expect("it has a default");
    let settings = client::Settings { user_agent: "knarr-network".to_owned(), ..client::Settings::default() };
    let client = reach.client(settings)?;
    tokio::select! {
        ended = proxy::mesh::run(client.clone(), node, mtu) => Ok(ended?),
        ended = proxy::policy::follow::run(client, node) => Ok(ended?),
        signal = crate::etcd::signal() => signal,
    }
}
