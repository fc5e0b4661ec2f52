//! `knarr dns`: the cluster's DNS server.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use dns::Zone;
use dns::clients::Clients;
use dns::forward::{Forwarder, nameservers};
use dns::serve::{Knowledge, Listeners};
use tracing::Instrument;

use crate::component::{self, ApiEndpoint, InProcessServer};
use crate::output::outln;

pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("kubeconfig")
                .long("kubeconfig")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("Path to a kubeconfig file [default: the in-cluster configuration]"),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS:PORT")
                .action(ArgAction::Append)
                .value_parser(value_parser!(SocketAddr))
                .default_value("127.0.0.1:53")
                .help("Address on which to serve DNS over UDP and TCP"),
        )
        .arg(
            Arg::new("cluster-domain")
                .long("cluster-domain")
                .default_value("cluster.local")
                .help("Domain of the cluster"),
        )
        .arg(
            Arg::new("service-ip")
                .long("service-ip")
                .action(ArgAction::Append)
                .value_parser(value_parser!(IpAddr))
                .help("Cluster IP of the DNS Service"),
        )
        .arg(
            Arg::new("cluster-cidr")
                .long("cluster-cidr")
                .value_name("CIDR,...")
                .value_parser(netlink::Cidr::parse_list)
                .help("Answer only pods in these CIDRs, the cluster's nodes and this host [default: all clients]"),
        )
        .arg(
            Arg::new("resolv-conf")
                .long("resolv-conf")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .default_value("/etc/resolv.conf")
                .help("File with the nameservers to which other queries are forwarded"),
        )
        .arg(
            Arg::new("metrics-listen")
                .long("metrics-listen")
                .value_name("ADDRESS:PORT")
                .value_parser(value_parser!(SocketAddr))
                .help("Address on which to serve metrics [default: none]"),
        )
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    crate::log::to_stderr(tracing::Level::INFO);
    component::run_stateless("dns", start(matches, None))
}

/// Serves in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, in_process: Option<&InProcessServer>) -> anyhow::Result<()> {
    let reach = ApiEndpoint::new(matches.get_one::<PathBuf>("kubeconfig").map(PathBuf::as_path), None, in_process)?;
    let domain = matches.get_one::<String>("cluster-domain").expect("it has a default");
    let mut zone = Zone::of(domain).with_context(|| format!("invalid --cluster-domain {domain}"))?;
    zone.servers = matches.get_many::<IpAddr>("service-ip").into_iter().flatten().copied().collect();
    let addresses: Vec<SocketAddr> = matches.get_many("listen").expect("it has a default").copied().collect();
    let resolv_conf = matches.get_one::<PathBuf>("resolv-conf").expect("it has a default");
    let resolvers = resolvers(resolv_conf)?;
    let listeners = Listeners::bind(&addresses).await.context("failed to listen")?;
    let listen_addresses = listeners.addresses()?;
    let clients = match matches.get_one::<Vec<netlink::Cidr>>("cluster-cidr") {
        Some(pods) => Clients::of_cluster(pods.clone(), &listen_addresses),
        None => Clients::all(),
    };
    let knowledge = Arc::new(Knowledge::new(zone, Forwarder::new(nameservers(&resolvers, &listen_addresses)), clients));
    if let Some(address) = matches.get_one::<SocketAddr>("metrics-listen") {
        let listener =
            tokio::net::TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}"))?;
        let metrics_source = Arc::clone(&knowledge);
        tokio::spawn(dns::metrics::serve(listener, move || metrics_source.metrics.text()).in_current_span());
    }
    let settings = client::Settings { user_agent: "knarr-dns".to_owned(), ..client::Settings::default() };
    let client = reach.client(settings)?;
    if in_process.is_none() {
        outln!("ready: {}", listen_addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }
    tokio::select! {
        () = listeners.serve(Arc::clone(&knowledge)) => anyhow::bail!("the listeners stopped"),
        followed = dns::feed::follow(client, knowledge) => Ok(followed?),
        signal = crate::etcd::signal() => signal,
    }
}

/// Reads a resolv.conf. Without the file nothing is forwarded, and cluster names are still served.
fn resolvers(file: &Path) -> anyhow::Result<String> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), "the file does not exist: only cluster names are resolved");
            Ok(String::new())
        }
        Err(error) => Err(error).with_context(|| format!("failed to read {}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_resolv_conf_means_no_resolvers() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(resolvers(&dir.path().join("resolv.conf")).unwrap(), "");
        let unreadable = resolvers(dir.path()).unwrap_err();
        assert!(unreadable.to_string().starts_with("failed to read "), "{unreadable}");
    }
}
