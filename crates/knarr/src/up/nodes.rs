//! Additional nodes on this host: each is a network namespace with its own address, and an agent inside.
//!
//! ```text
//!   D/nodes/list       names of the desired nodes
//!   D/nodes/cidr       CIDRs of their addresses
//!   D/nodes/network    address leases
//!   D/nodes/NAME/      data directory of the node's agent, as on another host
//!            netns     bind mount that keeps its namespace
//! ```
//!
//! The list is the desired state, and a change to it adds or removes nodes. An agent exits with the process that
//! started it. Its pods keep running.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use client::backoff::Backoff;
use component_base::inotify::Changes;
use diagnostics::chain;
use netlink::Cidr;
use netlink::namespace;
use pod_network::RoutedNetwork;
use pod_network::routed::INTERFACE;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::Instrument;

use super::instance::DATA_DIR_MODE;
use super::plan::Layout;
use super::preflight::is_node_name;
use super::{Offer, Options};
use crate::trace_file::TraceFile;
use crate::{join, settings, token};

/// Default CIDRs of node addresses, one per IP family.
const CIDR: &str = "172.30.0.0/24";
const CIDR_SIX: &str = "fd4b:6e61:7272::/64";
/// File with the names of the desired nodes.
const LIST: &str = "list";
/// Back-off for restarts of an agent that exits.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(30) };
/// Run time after which the back-off of an agent is reset.
const WELL: Duration = Duration::from_secs(30);
/// Lifetime of the join token of a new node.
const TOKEN_LIFE: Duration = Duration::from_secs(600);

/// The network-namespace nodes of this host, which do not include the host's own node.
#[derive(Clone)]
pub(crate) struct Nodes {
    dir: PathBuf,
    network: RoutedNetwork,
    cidrs: Vec<Cidr>,
}

impl Nodes {
    /// Opens the nodes of a data directory with the CIDRs of the last start.
    pub(crate) fn open(data_dir: &Path) -> Self {
        let dir = data_dir.join("nodes");
        let cidrs = stored_cidrs(&dir).unwrap_or_else(|| vec![CIDR.parse().expect("a constant")]);
        Self::new(dir, cidrs)
    }

    /// Opens the nodes of a starting cluster. Existing nodes keep their CIDRs: fails if `--node-cidr` differs.
    pub(crate) fn open_for_start(options: &Options) -> Result<Self> {
        let dir = options.data_dir.join("nodes");
        let (given, service_cidr) = (&options.node_cidr, &options.service_cidr);
        let stored = if names(&dir)?.is_empty() { None } else { stored_cidrs(&dir) };
        let usual = || -> Vec<Cidr> {
            let of_family = |cidr: &str| if cidr.contains(':') { CIDR_SIX } else { CIDR };
            service_cidr.split(',').map(|cidr| of_family(cidr).parse().expect("a constant")).collect()
        };
        let cidrs = match stored {
            Some(stored) if !given.is_empty() && *given != stored => bail!(
                "the nodes of this host have addresses of {}, not of {}; remove them first with `knarr node rm`",
                list(&stored),
                list(given)
            ),
            Some(stored) => stored,
            None if given.is_empty() => usual(),
            None => given.clone(),
        };
        Ok(Self::new(dir, cidrs))
    }

    fn new(dir: PathBuf, cidrs: Vec<Cidr>) -> Self {
        let network = RoutedNetwork::new(pod_network::routed::Config {
            pod_cidrs: cidrs.clone(),
            cluster_cidrs: cidrs.clone(),
            table: "knarr-nodes".to_owned(),
            // Pods send packets through the links of their nodes.
            bind_sources: false,
            // A restarted node must keep the address that other nodes know.
            keep_addresses: true,
            ..pod_network::routed::Config::new(&dir.join("network"))
        });
        Self { dir, network, cidrs }
    }

    /// Returns the addresses of the host. If network-namespace nodes exist, a loopback address is replaced by one that
    /// they reach.
    pub(crate) fn addresses(&self, found: Vec<IpAddr>, options: &Options) -> Result<Vec<IpAddr>> {
        if options.nodes == 1 && self.names()?.is_empty() {
            return Ok(found);
        }
        let reached = |address: IpAddr| {
            let same = self.cidrs.iter().find(|cidr| cidr.is_ipv4() == address.is_ipv4());
            let gateway = same.and_then(pod_network::ipam::gateway).filter(|_| address.is_loopback());
            gateway.unwrap_or(address)
        };
        Ok(found.into_iter().map(reached).collect())
    }

    pub(crate) fn names(&self) -> Result<Vec<String>> {
        names(&self.dir)
    }

    /// Returns the data directory of a node.
    pub(crate) fn node_dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes sure that at least `count` nodes exist, including the host's own, and that each has a network. Returns the
    /// names of network-namespace nodes.
    pub(crate) fn ensure(&self, machine: &str, count: u16) -> Result<Vec<String>> {
        sys::create_dirs(&self.dir, DATA_DIR_MODE)?;
        // Nodes that are added later get addresses of the same CIDRs.
        sys::replace_file(&self.dir.join("cidr"), list(&self.cidrs).as_bytes(), 0o600)?;
        let mut number = 2;
        while self.names()?.len() + 1 < usize::from(count) {
            let name = format!("{machine}-{number}");
            if !self.names()?.contains(&name) {
                self.add(&name)?;
            }
            number += 1;
        }
        let names = self.names()?;
        for name in &names {
            self.connect(name).with_context(|| format!("failed to create the network of node {name}"))?;
        }
        Ok(names)
    }

    /// Adds a node to the list, with its own allocatable resources.
    pub(crate) fn add_with(&self, name: &str, offer: &Offer) -> Result<()> {
        ensure_name(name)?;
        offer.check()?;
        if *offer != Offer::default() {
            let dir = self.node_dir(name);
            sys::create_dirs(&dir, DATA_DIR_MODE)?;
            offer.keep(&dir)?;
        }
        self.add(name)
    }

    /// Adds a node to the list.
    pub(crate) fn add(&self, name: &str) -> Result<()> {
        ensure_name(name)?;
        let mut names = self.names()?;
        ensure!(!names.iter().any(|known| known == name), "node {name} already exists");
        names.push(name.to_owned());
        self.write(&names)
    }

    /// Removes a node from the list.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let mut names = self.names()?;
        let before = names.len();
        names.retain(|known| known != name);
        ensure!(names.len() < before, "{name} is not a network-namespace node of this host");
        self.write(&names)
    }

    /// Removes a node's network, and releases its addresses.
    pub(crate) fn disconnect(&self, name: &str) -> Result<()> {
        self.network.remove(name, INTERFACE)?;
        Ok(namespace::unpin(&self.node_dir(name).join("netns"))?)
    }

    /// Removes the networks of all nodes, and the links between them. The nodes keep their addresses.
    pub(crate) fn clean_up(&self) -> Result<()> {
        for name in self.names()? {
            namespace::unpin(&self.node_dir(&name).join("netns"))?;
        }
        Ok(self.network.clean_up()?)
    }

    /// Runs the agents of all nodes in the list until the process exits.
    pub(crate) async fn keep(self, options: Options, layout: Layout) -> (&'static str, Result<()>) {
        ("nodes", self.follow(&options, &layout).await)
    }

    async fn follow(&self, options: &Options, layout: &Layout) -> Result<()> {
        sys::create_dirs(&self.dir, DATA_DIR_MODE)?;
        let changes = Changes::of(&self.dir).context("failed to watch the list of nodes")?;
        let mut stop_senders: BTreeMap<String, oneshot::Sender<()>> = BTreeMap::new();
        let mut keepers = JoinSet::new();
        loop {
            let names = self.names()?;
            // Dropping the channel of a removed node stops its agent.
            stop_senders.retain(|name, _| names.contains(name));
            for name in names {
                stop_senders.entry(name.clone()).or_insert_with(|| {
                    let (end, stopped) = oneshot::channel();
                    let keeper = Keeper { nodes: self.clone(), name, options: options.clone(), layout: layout.clone() };
                    keepers.spawn(keeper.run(stopped).in_current_span());
                    end
                });
            }
            changes.next().await?;
        }
    }

    /// Creates the network namespace of a node and connects it. Existing parts are kept.
    fn connect(&self, name: &str) -> Result<Vec<IpAddr>> {
        let dir = self.node_dir(name);
        sys::create_dirs(&dir, DATA_DIR_MODE)?;
        let netns = dir.join("netns");
        namespace::ensure(&netns)?;
        let lease = match self.network.inspect(&netns, name, INTERFACE) {
            Ok(()) => self.network.lease(name, INTERFACE)?,
            Err(_) => Some(self.network.add(&netns, name, INTERFACE, &[])?),
        };
        lease.map(|lease| lease.ips).context("the node has no address")
    }

    /// Replaces the list atomically.
    fn write(&self, names: &[String]) -> Result<()> {
        sys::create_dirs(&self.dir, DATA_DIR_MODE)?;
        let text: String = names.iter().map(|name| format!("{name}\n")).collect();
        let file = self.dir.join(LIST);
        let written = sys::replace_file(&file, text.as_bytes(), 0o600);
        written.with_context(|| format!("failed to write {}", file.display()))
    }
}

/// Supervises the agent of one node.
struct Keeper {
    nodes: Nodes,
    name: String,
    options: Options,
    layout: Layout,
}

impl Keeper {
    async fn run(self, mut stopped: oneshot::Receiver<()>) {
        let mut waits = RETRY.waits();
        loop {
            let start = Instant::now();
            match self.start().await {
                Ok(mut agent) => tokio::select! {
                    _ = &mut stopped => return end(agent).await,
                    status = agent.wait() => tracing::warn!(node = self.name, ?status, "the agent of a node exited"),
                },
                Err(error) => tracing::warn!(node = self.name, "failed to start the agent of a node: {error:#}"),
            }
            if start.elapsed() > WELL {
                waits.reset();
            }
            tokio::select! {
                _ = &mut stopped => return,
                () = tokio::time::sleep(waits.next_wait()) => {}
            }
        }
    }

    async fn start(&self) -> Result<Child> {
        let (nodes, name) = (self.nodes.clone(), self.name.clone());
        let addresses = tokio::task::spawn_blocking(move || nodes.connect(&name)).await??;
        let dir = self.nodes.node_dir(&self.name);
        let mut command = Command::new(std::env::current_exe().context("failed to find the path of this executable")?);
        // The settings of this process are for its own node.
        settings::clear(command.as_std_mut());
        command.arg("agent").arg("--data-dir").arg(&dir).arg("--netns").arg(dir.join("netns"));
        command.args(["--node-name", &self.name, "--node-ip", &list(&addresses)]);
        command.args([
            "--server",
            &format!("https://{}", std::net::SocketAddr::new(self.layout.address, self.layout.port)),
        ]);
        command.args(["--with-process", &std::process::id().to_string()]);
        command.envs(crate::log::chosen().map(|levels| (crate::log::VARIABLE, levels)));
        command.args(["--kubelet-arg", &format!("cgroup-root={}", group(&dir))]);
        command.args(Offer::load(&dir).unwrap_or_else(|| self.options.offer.clone()).flags());
        command.args(self.options.registries.flags());
        let archives = self.options.data_dir.join("images");
        command.args(["--kubelet-arg", &format!("image-archives={}", archives.display())]);
        for (flag, value) in self.given() {
            command.args([&flag, &value]);
        }
        // Pods and processes of the host send from the host's address in the node network, which no Node object lists.
        let dns = self.options.own_flags.get("dns").into_iter().flatten();
        if !dns.into_iter().any(|flag| flag.starts_with("cluster-cidr=")) {
            let clients = format!("cluster-cidr={},{}", self.options.pod_cidr, list(&self.nodes.cidrs));
            command.args(["--dns-arg", &clients]);
        }
        if !dir.join("kubelet.kubeconfig").is_file() {
            let data_dir = &self.options.data_dir;
            let token = token::create(&token::admin(data_dir)?, data_dir, TOKEN_LIFE, &[join::GROUP]).await?;
            // Other users must not read the token. The agent deletes the file after it has joined.
            let file = join::token_args::store_token(&dir, &token.to_string())?;
            command.arg("--token-file").arg(file);
        }
        let mut log = std::fs::OpenOptions::new();
        let log = log.create(true).write(true).truncate(true).mode(0o600).open(dir.join("agent.out"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command.spawn()?)
    }

    /// Returns the flags of node components, which also apply to these nodes.
    fn given(&self) -> Vec<(String, String)> {
        let rows = super::plan::ROWS.iter().filter(|row| row.role == super::Placement::Node);
        let flags = rows.flat_map(|row| {
            let own = self.options.own_flags.get(row.name).into_iter().flatten();
            own.map(|flag| (format!("--{}", row.own_flags), flag.clone()))
        });
        flags
            .chain(
                [("--disable".to_owned(), self.options.disable.join(","))]
                    .into_iter()
                    .filter(|(_, parts)| !parts.is_empty()),
            )
            .collect()
    }
}

/// Returns the records of this host and of its network-namespace nodes. Each has its own proxy.
pub(crate) fn trace_records(data_dir: &Path) -> Result<Vec<chain::NodeRecords>> {
    let of_node = |dir: &Path, by: String| -> Result<chain::NodeRecords> {
        let records =
            TraceFile::read(dir).with_context(|| format!("failed to read the records in {}", dir.display()))?;
        Ok(chain::NodeRecords { by, records })
    };
    let nodes = Nodes::open(data_dir);
    let mut records = vec![of_node(data_dir, "kube-proxy".to_owned())?];
    for name in nodes.names()? {
        records.push(of_node(&nodes.node_dir(&name), format!("kube-proxy on {name}"))?);
    }
    Ok(records)
}

/// Returns a function that reads the records. Without readable records, chains lack the steps of nodes.
pub(crate) fn records_source(data_dir: &Path) -> ::dashboard::NodeRecordsSource {
    let data_dir = data_dir.to_owned();
    Arc::new(move || {
        trace_records(&data_dir).unwrap_or_else(|error| {
            tracing::debug!("no trace records: {error:#}");
            Vec::new()
        })
    })
}

fn ensure_name(name: &str) -> Result<()> {
    ensure!(is_node_name(name), "{name:?} is not a valid node name: use lower-case letters, digits, dashes and dots");
    Ok(())
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let file = dir.join(LIST);
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("failed to read {}", file.display())),
    }
}

/// Reads the CIDRs of the last start.
fn stored_cidrs(dir: &Path) -> Option<Vec<Cidr>> {
    let text = std::fs::read_to_string(dir.join("cidr")).ok()?;
    Cidr::parse_list(text.trim()).ok().filter(|cidrs| !cidrs.is_empty())
}

/// Joins items with commas, as in flags and files.
fn list(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the cgroup root of a node's pods, unique per data directory.
pub(crate) fn group(dir: &Path) -> String {
    let name: String = dir.display().to_string().trim_start_matches('/').replace('/', "-");
    format!("/knarr-{name}")
}

async fn end(mut agent: Child) {
    let id = agent.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    // An agent that has exited has no PID.
    if let Some(id) = id {
        let _ = kill_process(id, Signal::TERM);
    }
    let _ = agent.wait().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_list_is_stored_and_invalid_names_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let options = |given: &str, services: &str| Options {
            data_dir: dir.path().to_owned(),
            node_cidr: Cidr::parse_list(given).unwrap(),
            service_cidr: services.to_owned(),
            ..Options::default()
        };
        let nodes = Nodes::open_for_start(&options("192.0.2.0/28", "10.96.0.0/16")).unwrap();
        assert!(nodes.ensure("machine", 1).unwrap().is_empty());
        nodes.add("a").unwrap();
        nodes.add("b").unwrap();
        for wrong in ["a", "", "A", "../c", ".", "list/x"] {
            assert!(nodes.add(wrong).is_err(), "{wrong}");
        }
        nodes.remove("a").unwrap();
        assert!(nodes.remove("a").is_err());
        for again in [Nodes::open(dir.path()), Nodes::open_for_start(&options("", "10.96.0.0/16")).unwrap()] {
            assert_eq!((again.names().unwrap(), list(&again.cidrs).as_str()), (vec!["b".to_owned()], "192.0.2.0/28"));
        }
        assert!(Nodes::open_for_start(&options("198.51.100.0/24", "10.96.0.0/16")).is_err(), "addresses stay");
        nodes.remove("b").unwrap();
        let dual = Nodes::open_for_start(&options("", "fd00:96::/108,10.96.0.0/16")).unwrap();
        assert_eq!(list(&dual.cidrs), "fd4b:6e61:7272::/64,172.30.0.0/24");
    }

    #[test]
    fn each_data_directory_has_its_own_cgroup() {
        assert_eq!(group(Path::new("/var/lib/knarr/nodes/a")), "/knarr-var-lib-knarr-nodes-a");
    }
}
