//! `knarr cri`: the container runtime, served on a CRI socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use component_base::spans;
use container_runtime::{Config, Runtime, Ulimit};
use netlink::Cidr;
use pod_network::{Auto, Cni, Loopback, Network, RoutedNetwork};
use tokio::signal::unix::{SignalKind, signal};
use tracing::Instrument;

use crate::output::outln;
use crate::registry_flags;

pub(crate) fn arguments(command: Command) -> Command {
    runtime_arguments(command).arg(path("listen", "Path of the CRI socket").default_value("/run/knarr/cri.sock"))
}

fn path(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("PATH").value_parser(value_parser!(PathBuf)).help(help)
}

/// Adds the flags of the runtime, which a kubelet with the built-in runtime has too.
pub(crate) fn runtime_arguments(command: Command) -> Command {
    command
        .arg(path("data-dir", "Data directory of the runtime").default_value("/var/lib/knarr"))
        .arg(
            Arg::new("cgroup-parent")
                .long("cgroup-parent")
                .default_value("/knarr")
                .help("Parent cgroup of sandboxes that specify none"),
        )
        .arg(
            Arg::new("runtime-handler")
                .long("runtime-handler")
                .value_name("NAME=PATH")
                .action(ArgAction::Append)
                .help("OCI runtime (runc, crun) of a RuntimeClass handler; without a path, the built-in one"),
        )
        .arg(
            Arg::new("default-ulimit")
                .long("default-ulimit")
                .value_name("NAME=SOFT[:HARD]")
                .action(ArgAction::Append)
                .value_parser(value_parser!(Ulimit))
                .help("Default rlimit of containers, such as nofile=1024:65536 [default: the rlimits of this process]"),
        )
        .arg(Arg::new("network").long("network").value_parser(["auto", "built-in", "cni", "loopback"]).help(
            "Network of sandboxes; auto is cni if --cni-conf-dir has a configuration, else built-in \
             [default: cni with --cni-conf-dir, built-in with --pod-cidr, otherwise loopback]",
        ))
        .arg(
            Arg::new("pod-cidr")
                .long("pod-cidr")
                .value_name("CIDR[,CIDR]")
                .help("CIDRs of the built-in network, until the kubelet sets the node's pod CIDRs"),
        )
        .arg(
            Arg::new("cluster-cidr")
                .long("cluster-cidr")
                .value_name("CIDR[,CIDR]")
                .default_value("")
                .help("CIDRs that pods of the built-in network reach without masquerading"),
        )
        .arg(path("cni-conf-dir", "Directory with the CNI configuration of sandboxes"))
        .arg(
            path("cni-bin-dir", "Directory with CNI plugins")
                .action(ArgAction::Append)
                .default_values(["/opt/cni/bin", "/usr/lib/cni"]),
        )
        .args(registry_flags::arguments())
        .arg(path(
            "image-archives",
            "Directory of image archives to import at start [default: images in the data directory]",
        ))
}

/// Serves until SIGTERM or SIGINT. Containers keep running.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    crate::log::to_stderr(tracing::Level::INFO);
    let socket = matches.get_one::<PathBuf>("listen").expect("it has a default").clone();
    let config = config(matches)?;
    crate::component::raise_open_files();
    let executor = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the Tokio runtime")?;
    let serve = async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
        };
        let runtime = Runtime::open(config).await?;
        let ready = || outln!("ready: unix://{}", socket.display());
        Ok(container_runtime::serve(runtime, &socket, ready, stop).await?)
    };
    executor.block_on(serve.instrument(spans::component("container-runtime")))
}

/// Returns the runtime configuration of the flags.
pub(crate) fn config(matches: &ArgMatches) -> anyhow::Result<Config> {
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    let root = path("data-dir").expect("it has a default").join("runtime");
    let network = network(matches, &root)?;
    Ok(Config {
        // The link to the running executable stays valid when its file is replaced or renamed.
        shim: (PathBuf::from("/proc/self/exe"), vec!["shim".to_owned()]),
        cgroup_parent: matches.get_one::<String>("cgroup-parent").expect("it has a default").clone(),
        handlers: handlers(matches)?,
        registries: registry_flags::open(matches)?,
        builtins: crate::builtin::images()?,
        archives: path("image-archives").unwrap_or_else(|| root.with_file_name("images")),
        ulimits: matches.get_many::<Ulimit>("default-ulimit").into_iter().flatten().cloned().collect(),
        network,
        root,
    })
}

fn network(matches: &ArgMatches, root: &Path) -> anyhow::Result<Arc<dyn Network>> {
    let conf = matches.get_one::<PathBuf>("cni-conf-dir");
    let pod_cidr = matches.get_one::<String>("pod-cidr");
    let chosen = matches.get_one::<String>("network").map(String::as_str);
    let usual = match (conf, pod_cidr) {
        (Some(_), _) => "cni",
        (None, Some(_)) => "built-in",
        (None, None) => "loopback",
    };
    let by_plugins = || {
        let bins: Vec<PathBuf> = matches.get_many("cni-bin-dir").expect("it has a default").cloned().collect();
        let conf = conf.cloned().unwrap_or_else(|| PathBuf::from("/etc/cni/net.d"));
        Cni::new(&conf, &bins, &root.join("cni"))
    };
    let built_in = || -> anyhow::Result<RoutedNetwork> {
        let cluster_cidr = matches.get_one::<String>("cluster-cidr").expect("it has a default");
        Ok(RoutedNetwork::new(pod_network::routed::Config {
            pod_cidrs: Cidr::parse_list(pod_cidr.map_or("", String::as_str)).context("--pod-cidr")?,
            cluster_cidrs: Cidr::parse_list(cluster_cidr).context("--cluster-cidr")?,
            // Always reserved: a node on another segment may join later, when the MTU of running pods is fixed.
            overhead: pod_network::mesh::OVERHEAD,
            ..pod_network::routed::Config::new(&root.join("network"))
        }))
    };
    Ok(match chosen.unwrap_or(usual) {
        "auto" => {
            let network = Auto::new(by_plugins(), built_in()?);
            network.start().context("failed to set up the pod network")?;
            Arc::new(network)
        }
        "cni" => Arc::new(by_plugins()),
        "built-in" => {
            let network = built_in()?;
            network.start().context("failed to set up the pod network")?;
            Arc::new(network)
        }
        _ => Arc::new(Loopback),
    })
}

fn handlers(matches: &ArgMatches) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let given = matches.get_many::<String>("runtime-handler").into_iter().flatten();
    let pairs = given.map(|text| {
        let (name, path) = text.split_once('=').unwrap_or((text, ""));
        anyhow::ensure!(!name.is_empty(), "--runtime-handler {text}: the handler has no name");
        Ok((name.to_owned(), PathBuf::from(path)))
    });
    pairs.collect()
}
