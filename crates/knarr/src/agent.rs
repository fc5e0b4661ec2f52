//! `knarr agent`: a node of a cluster whose servers run on other hosts.
//!
//! The first start needs a join token: the agent verifies the cluster's CA with it and requests client certificates,
//! one for the kubelet and one per component. Later starts use the data directory only.

mod balancer;
mod parent;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::kubelet::bootstrap::{self, Purpose};
use anyhow::{Context, Result, bail};
use apimachinery::meta::Meta;
use apimachinery::{Resource, Value};
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};
use client::config::Kubeconfig;
use client::{Client, Event, Settings, Target, WatchOptions};
use pki::Pki;
use rustix::process::{Signal, getpid, kill_process};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::component::{self, ProcessContext};
use crate::join::token_args::{self, TokenArgs};
use crate::join::{self, Cluster, JoinToken, Network};
use crate::registry_flags::RegistryArgs;
use crate::service_manager::ServiceManager;
use crate::up::plan::{self, Layout, Placement};
use crate::up::reach::NodeAddresses;
use crate::up::{self, Instance, Offer, Options, Parts, Steps, addons, address, background, preflight, ready};
use balancer::Servers;
use parent::Parent;
use tracing::Instrument;

static SLICES: Resource = Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");
/// Delay before the watch of the servers' EndpointSlices is restarted.
const RETRY: Duration = Duration::from_secs(1);

/// Run a node that joins an existing cluster.
#[derive(Args, Debug, Clone)]
struct Agent {
    /// URL of one server of the cluster; the other servers are discovered through it.
    #[arg(long, value_name = "https://HOST:PORT")]
    server: String,
    #[command(flatten)]
    token: TokenArgs,
    /// Data directory of the node.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// IP address of this node, or one per IP family [default: the source addresses of the default routes].
    #[arg(long, value_delimiter = ',')]
    node_ip: Vec<IpAddr>,
    /// Name of the node [default: the host name].
    #[arg(long)]
    node_name: Option<String>,
    /// Port of the kubelet.
    #[arg(long, default_value_t = 10250)]
    kubelet_port: u16,
    /// Port of the DNS server on this host.
    #[arg(long, default_value_t = 10053)]
    dns_port: u16,
    /// Loopback port of the local load balancer through which components reach the servers.
    #[arg(long, default_value_t = 6444)]
    local_port: u16,
    #[command(flatten)]
    reach: NodeAddresses,
    #[command(flatten)]
    offer: Offer,
    #[command(flatten)]
    registries: RegistryArgs,
    /// Components that are not started.
    #[arg(long, value_delimiter = ',', value_parser = plan::parts().collect::<Vec<_>>())]
    disable: Vec<String>,
    /// Run in the background, and return when the node is ready.
    #[arg(short = 'd', long)]
    background: bool,
    /// Print a systemd unit that runs this command at boot, and exit. The unit never contains the token: use
    /// --token-file, or join before the unit is started.
    #[arg(long)]
    systemd_unit: bool,
    /// Network namespace of this node.
    #[arg(long, hide = true)]
    netns: Option<PathBuf>,
    /// PID of the parent process; this process exits when the parent does.
    #[arg(long, hide = true)]
    with_process: Option<i32>,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Agent::augment_args(command).args(plan::ROWS.iter().filter(|row| row.role == Placement::Node).map(|row| {
        Arg::new(row.own_flags)
            .long(row.own_flags)
            .value_name("NAME=VALUE")
            .action(ArgAction::Append)
            .help(format!("Flag of {}; overrides the computed one", row.name))
    }))
}

/// Runs the node until SIGTERM or SIGINT. Pods keep running.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let mut agent = Agent::from_arg_matches(matches)?;
    if agent.systemd_unit {
        return background::print_unit(&agent.data_dir);
    }
    token_args::hide_token()?;
    preflight::check_free_space(&agent.data_dir)?;
    agent.registries.check()?;
    if agent.background {
        return background::start(&agent.data_dir);
    }
    let parent = agent.with_process.map(Parent::open).transpose()?;
    if let Some(netns) = &agent.netns {
        // Threads inherit the namespace, so it is entered before any are started.
        netlink::namespace::enter(netns)
            .with_context(|| format!("failed to enter the network namespace {}", netns.display()))?;
    }
    if let Some(parent) = parent {
        parent.on_exit(|| {
            if let Err(error) = kill_process(getpid(), Signal::TERM) {
                tracing::error!(%error, "failed to stop the agent after its parent process has exited");
            }
        })?;
    }
    let mut own_flags = BTreeMap::new();
    for row in plan::ROWS.iter().filter(|row| row.role == Placement::Node) {
        let flags: Vec<String> = matches.get_many::<String>(row.own_flags).into_iter().flatten().cloned().collect();
        own_flags.insert(row.name, flags);
    }
    let instance = Instance::claim(&agent.data_dir)?;
    agent.data_dir = instance.dir().to_owned();
    let options = options(&agent, own_flags);
    preflight::node(&options)?;
    crate::log::to_file(tracing::Level::INFO, instance.log()?);
    component::run("agent", serve(&agent, options, &instance))
}

async fn serve(agent: &Agent, options: Options, instance: &Instance) -> Result<()> {
    let mut steps = Steps::start();
    // The process exits when a component exits, so watchdog notifications need no health check.
    let service_manager = ServiceManager::start(Box::new(|| Box::pin(std::future::ready(Ok(())))))?;
    // A node that has joined needs no token, and its token file may have been deleted.
    let token = if has_joined(&agent.data_dir) { None } else { agent.token.read()? };
    let cluster = cluster(agent, token.as_ref()).await?;
    steps.done("cluster");
    let options = cluster.network.clone().given(options);
    let addresses = preflight::addresses_or(&agent.node_ip, &options.service_cidr)?;
    let layout = Layout { port: agent.local_port, ..Layout::of(&options, addresses)? };
    let first = agent.server.parse::<http::Uri>().ok().and_then(|uri| uri.authority().map(ToString::to_string));
    let first = first.with_context(|| format!("--server {:?} is not a URL", agent.server))?;
    let servers = Arc::new(Servers::open(&agent.data_dir.join("servers"), &first));
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], agent.local_port))).await;
    let listener = listener.with_context(|| {
        format!("failed to listen on port {}; choose another one with --local-port", agent.local_port)
    })?;
    let mut running: Parts = JoinSet::new();
    let passing = Arc::clone(&servers);
    running.spawn(async move { ("balancer", passing.serve(listener).await) }.in_current_span());
    up::until(&mut running, credentials(token, &layout)).await?;
    steps.done("certificates");
    let network = cluster.network.refreshed(client(&layout, "kubelet"), &agent.data_dir).await?;
    let options = network.given(options);
    let rows = plan::of(&[Placement::Node], &options, &layout, &Pki::at(&layout.pki()));
    let parts: Vec<&str> = rows.iter().map(|(row, _)| row.name).collect();
    let shared = ProcessContext { trace: Some(instance.trace()?), ..ProcessContext::default() };
    component::expect_policies(&shared.gate, &parts);
    for (row, flags) in rows {
        up::start(row, flags, shared.clone(), &mut running)?;
    }
    tokio::spawn(follow_servers(client(&layout, "proxy")?, servers).in_current_span());
    up::until(&mut running, ready::node_as(client(&layout, "kubelet")?, layout.node_name.clone())).await?;
    for ClientCertificate { purpose, dir, .. } in
        required_certificates(&layout).into_iter().filter(|it| it.purpose != Purpose::Client)
    {
        let client = client(&layout, "kubelet")?;
        tokio::spawn(bootstrap::keep(client, layout.node_name.clone(), dir, purpose, || {}).in_current_span());
    }
    if ready::expects_signed(&options) {
        up::until(&mut running, async {
            ready::serving_certificate(&layout).await;
            Ok(())
        })
        .await?;
    }
    steps.done("node");
    if !agent.disable.iter().any(|part| part == "dns") {
        let dns = client(&layout, "dns")?;
        up::until(&mut running, async { addons::publish_dns(&dns, &layout).await }).await?;
        up::until(&mut running, ready::dns(&layout)).await?;
        steps.done("DNS");
    }
    steps.joined(&layout);
    instance.ready(&parts)?;
    service_manager.ready();
    tokio::select! {
        // The components receive the signal too. Their exit is then not an error.
        biased;
        signal = crate::etcd::signal() => signal,
        result = up::first_end(&mut running) => result,
        moved = address::changed(&options, &layout.addresses) => moved.and_then(|()| address::re_execute()),
    }
}

/// Returns the cluster's CA and network configuration from the data directory, or from a server with the token.
async fn cluster(agent: &Agent, token: Option<&JoinToken>) -> Result<Cluster> {
    let ca = agent.data_dir.join("pki").join("ca.crt");
    if let (Some(network), Ok(ca)) = (Network::load(&agent.data_dir)?, std::fs::read_to_string(&ca)) {
        return Ok(Cluster { ca, network });
    }
    let Some(token) = token else {
        bail!(
            "this node has not joined yet: give a join token with --token-file; create one with `knarr token create` on a server"
        )
    };
    let cluster = join::fetch_cluster(&agent.server, token).await?;
    std::fs::create_dir_all(agent.data_dir.join("pki"))?;
    pki::write(&ca, &cluster.ca, 0o644)?;
    cluster.network.keep(&agent.data_dir)?;
    Ok(cluster)
}

fn options(agent: &Agent, own_flags: BTreeMap<&'static str, Vec<String>>) -> Options {
    Options {
        data_dir: agent.data_dir.clone(),
        node_ip: agent.node_ip.clone(),
        node_name: agent.node_name.clone(),
        kubelet_port: agent.kubelet_port,
        dns_port: agent.dns_port,
        node_reach: agent.reach.clone(),
        offer: agent.offer.clone(),
        registries: agent.registries.clone(),
        disable: agent.disable.clone(),
        own_flags,
        ..Options::default()
    }
}

/// A client certificate of this node: the kubeconfig that uses it, and the directory of its files.
struct ClientCertificate {
    kubeconfig: &'static str,
    purpose: Purpose,
    dir: PathBuf,
}

fn required_certificates(layout: &Layout) -> Vec<ClientCertificate> {
    let certificate = |row: &plan::Row| {
        if row.name == "kubelet" {
            let dir = kubelet_certificates(&layout.data_dir);
            return Some(ClientCertificate { kubeconfig: row.kubeconfig, purpose: Purpose::Client, dir });
        }
        let (user, group) = layout.subject(row.kubeconfig)?;
        let purpose = Purpose::Component { name: row.kubeconfig.to_owned(), user, group };
        Some(ClientCertificate { kubeconfig: row.kubeconfig, purpose, dir: layout.pki() })
    };
    plan::ROWS.iter().filter(|row| row.role == Placement::Node).filter_map(certificate).collect()
}

/// Makes sure that every component has a kubeconfig and a client certificate.
///
/// The kubelet's certificate is requested first, with the token. The certificates of the other components are requested
/// with the kubelet's.
async fn credentials(token: Option<JoinToken>, layout: &Layout) -> Result<()> {
    let ca = layout.pki().join("ca.crt");
    let server = layout.server();
    if let Some(token) = token {
        let text = join::bootstrap_kubeconfig(&server, &ca, &token);
        pki::write(&layout.kubeconfig("bootstrap"), &text, 0o600)?;
    }
    for ClientCertificate { kubeconfig, purpose, dir } in required_certificates(layout) {
        let pem = purpose.file(&dir);
        if !is_usable(&pem, &purpose) {
            let by = if purpose == Purpose::Client { "bootstrap" } else { "kubelet" };
            let client =
                client(layout, by).context("this node has not joined yet: give a join token with --token-file")?;
            let obtained = bootstrap::obtain(&client, &layout.node_name, &dir, &purpose).await;
            obtained.with_context(|| format!("failed to obtain the certificate of {kubeconfig}"))?;
        }
        pki::write(&layout.kubeconfig(kubeconfig), &join::certificate_kubeconfig(&server, &ca, &pem), 0o600)?;
    }
    // The node has joined and the token is not needed any more.
    token_args::delete_token(&layout.data_dir)?;
    match std::fs::remove_file(layout.kubeconfig("bootstrap")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("failed to remove bootstrap.kubeconfig")
        }
        _ => Ok(()),
    }
}

/// Whether the certificate exists, is still valid and has the component's current user and group. Another version may
/// have used a different subject.
fn is_usable(pem: &Path, purpose: &Purpose) -> bool {
    let is_named = match purpose {
        Purpose::Component { user, group, .. } => {
            pki::seen(pem).is_some_and(|seen| seen.common_name == *user && seen.organization == *group)
        }
        Purpose::Client | Purpose::Serving(_) => pem.exists(),
    };
    is_named && !bootstrap::is_over(pem, component_base::clock::now())
}

/// Whether the node has the cluster's CA and a valid kubelet client certificate.
fn has_joined(data_dir: &Path) -> bool {
    let client = Purpose::Client.file(&kubelet_certificates(data_dir));
    data_dir.join("pki").join("ca.crt").is_file() && is_usable(&client, &Purpose::Client)
}

/// The directory in which the kubelet stores and rotates its certificates.
fn kubelet_certificates(data_dir: &Path) -> PathBuf {
    data_dir.join("kubelet").join("pki")
}

fn client(layout: &Layout, name: &str) -> Result<Client> {
    let config = Kubeconfig::load(&[layout.kubeconfig(name)])?.config(None)?;
    Ok(Client::connect(&config, Settings::default())?)
}

/// Updates the list of servers from the EndpointSlices of the `kubernetes` Service.
async fn follow_servers(client: Client, servers: Arc<Servers>) {
    let options = WatchOptions {
        label_selector: "kubernetes.io/service-name=kubernetes".to_owned(),
        send_initial_events: true,
        ..WatchOptions::default()
    };
    let mut slices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    loop {
        if let Ok(mut watch) = client.watch(&Target::within(&SLICES, "default"), &options).await {
            while let Some(Ok(event)) = watch.next().await {
                match event {
                    Event::Added(slice) | Event::Modified(slice) => {
                        slices.insert(Meta::of(&slice).name().to_owned(), addresses(&slice));
                    }
                    Event::Deleted(slice) => drop(slices.remove(Meta::of(&slice).name())),
                    Event::Bookmark { .. } => {}
                }
                servers.set(slices.values().flatten().cloned().collect());
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Returns the `host:port` addresses of a slice, without loopback addresses.
fn addresses(slice: &Value) -> Vec<String> {
    let Some(port) = slice["ports"][0]["port"].as_int().and_then(|port| u16::try_from(port).ok()) else {
        return Vec::new();
    };
    let endpoints = slice["endpoints"].as_array().unwrap_or_default();
    let ips = endpoints.iter().filter_map(|endpoint| endpoint["addresses"][0].as_str()?.parse::<IpAddr>().ok());
    ips.filter(|ip| !ip.is_loopback()).map(|ip| SocketAddr::new(ip, port).to_string()).collect()
}
