//! `knarr network`: routes between nodes, network policies on this node, and announced load balancer addresses.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command, value_parser};

use crate::component::{self, ApiEndpoint, ProcessContext};

/// Time limit for handing addresses over to other nodes at exit. After it, the other nodes detect the failure.
const LEAVING: Duration = Duration::from_secs(2);

pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("kubeconfig")
                .long("kubeconfig")
                .value_name("PATH")
                .help("Path to a kubeconfig file [default: the in-cluster configuration]"),
        )
        .arg(Arg::new("hostname-override").long("hostname-override").required(true).help("Name of the node"))
        .arg(
            Arg::new("mtu")
                .long("mtu")
                .value_parser(value_parser!(u32))
                .help("MTU of the tunnel between nodes [default: derived from the default route's interface]"),
        )
        .arg(
            Arg::new("dns-service")
                .long("dns-service")
                .value_name("IP[,IP]")
                .value_delimiter(',')
                .value_parser(value_parser!(IpAddr))
                .help(
                    "Cluster IPs of the DNS Service if nodes run the DNS server; network policies treat them as a pod of kube-system \
                     with the label k8s-app=kube-dns",
                ),
        )
        .arg(
            Arg::new("load-balancer-pool").long("load-balancer-pool").value_name("ADDRESSES").help(
                "Pool of load balancer addresses that nodes announce: ranges and CIDRs",
            ),
        )
}

/// Maintains routes and policies until SIGTERM or SIGINT. They stay in place at exit.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    crate::log::to_stderr(tracing::Level::INFO);
    component::run_stateless("network", async { start(matches, &ProcessContext::default()).await })
}

/// Runs in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, shared: &ProcessContext) -> Result<()> {
    let kubeconfig = matches.get_one::<String>("kubeconfig").map(Path::new);
    let reach = ApiEndpoint::new(kubeconfig, None, shared.in_process.as_ref())?;
    let node = matches.get_one::<String>("hostname-override").expect("it is required");
    let mtu = matches.get_one::<u32>("mtu").copied();
    let settings = client::Settings { user_agent: "knarr-network".to_owned(), ..client::Settings::default() };
    let client = reach.client(settings)?;
    let dns: Vec<IpAddr> = matches.get_many("dns-service").into_iter().flatten().copied().collect();
    let pool = matches.get_one::<String>("load-balancer-pool");
    let answering = match pool {
        None => None,
        Some(text) => {
            let parsed = controllers::service_lb::Config::parse(text);
            let pool =
                parsed.with_context(|| format!("--load-balancer-pool: {text:?} is not a list of addresses"))?.pool;
            Some(kube_proxy::announce::Config { node: node.clone(), pool })
        }
    };
    let serving = async {
        match &answering {
            Some(config) => kube_proxy::announce::run(client.clone(), config.clone()).await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        result = serving => result.map_err(Into::into),
        result = kube_proxy::mesh::run(client.clone(), node, mtu) => result.map_err(Into::into),
        result = kube_proxy::policy::sync::run(client.clone(), node, &dns, &shared.gate) => result.map_err(Into::into),
        signal = crate::etcd::signal() => signal,
    };
    if let Some(config) = &answering {
        // An API server in this process may have stopped already.
        let _ = tokio::time::timeout(LEAVING, kube_proxy::announce::leave(&client, config)).await;
    }
    result
}
