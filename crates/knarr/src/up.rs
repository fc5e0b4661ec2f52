//! `knarr up`: store, API server, controllers, scheduler, node, network and DNS of a cluster, in one process.

pub(crate) mod addons;
pub(crate) mod address;
pub(crate) mod background;
mod disk;
mod instance;
pub(crate) mod nodes;
mod offer;
pub(crate) mod plan;
pub(crate) mod preflight;
pub(crate) mod reach;
pub(crate) mod ready;
mod renewal;
pub(crate) mod schedule;
mod static_pods;
mod steps;
mod sudo;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};
use component_base::spans;
use pki::{Pki, Subject};
use tokio::task::JoinSet;
use tracing::Instrument;

pub(crate) use disk::Disk;
pub(crate) use instance::{DATA_DIR_MODE, Instance};
use nodes::Nodes;
pub(crate) use offer::Offer;
use plan::{Layout, Placement, Row};
use reach::{NodeAddresses, ServerAddresses};
use schedule::Schedule;
pub(crate) use steps::Steps;

use crate::component::{self, InProcessServer, ProcessContext};
use crate::last_backup;
use crate::registry_flags::RegistryArgs;
use crate::service_manager::{HealthCheck, ServiceManager};

/// Run a cluster on this host.
#[derive(Args, Debug, Clone)]
pub(crate) struct Options {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr")]
    pub data_dir: PathBuf,
    /// Port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// IP address on which the API server listens.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// IP address of this node, or one per IP family [default: the source addresses of the default routes].
    #[arg(long, value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// Name of the node [default: the host name].
    #[arg(long)]
    pub node_name: Option<String>,
    /// CIDRs of pod IPs, at most one per IP family.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub pod_cidr: String,
    /// CIDRs of Service cluster IPs, at most one per IP family.
    #[arg(long, default_value = "10.96.0.0/16")]
    pub service_cidr: String,
    /// Number of nodes: this host, and network namespaces on it for the others.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
    /// CIDRs of the IPs of nodes in network namespaces, one per IP family [default: those of the last start, initially
    /// 172.30.0.0/24 and fd4b:6e61:7272::/64].
    #[arg(long, value_delimiter = ',')]
    pub node_cidr: Vec<netlink::Cidr>,
    #[command(flatten)]
    pub node_reach: NodeAddresses,
    #[command(flatten)]
    pub server_reach: ServerAddresses,
    /// Name of the cluster, and of its context in kubeconfigs.
    #[arg(long, default_value = "knarr", value_parser = reach::cluster_name)]
    pub cluster_name: String,
    #[command(flatten)]
    pub offer: Offer,
    #[command(flatten)]
    pub registries: RegistryArgs,
    /// Addresses of Services of type LoadBalancer: `nodes` for the nodes' addresses, `none`, or a pool of unused
    /// addresses of the nodes' network, such as 192.0.2.10-192.0.2.20,2001:db8::/120.
    #[arg(long, default_value = "nodes")]
    pub load_balancer: String,
    /// Port of the kubelet.
    #[arg(long, default_value_t = 10250)]
    pub kubelet_port: u16,
    /// Port of the DNS server on this host; pods reach it through its Service.
    #[arg(long, default_value_t = 10053)]
    pub dns_port: u16,
    /// Port of the metrics server on this host; the API server reaches it through its Service.
    #[arg(long, default_value_t = 4443)]
    pub metrics_port: u16,
    /// HTTP port of the ingress controller on the addresses of this node.
    #[arg(long, default_value_t = 80)]
    pub ingress_http_port: u16,
    /// HTTPS port of the ingress controller on the addresses of this node.
    #[arg(long, default_value_t = 443)]
    pub ingress_https_port: u16,
    /// Components that are not started.
    #[arg(long, value_delimiter = ',', value_parser = plan::parts().collect::<Vec<_>>())]
    pub disable: Vec<String>,
    #[command(flatten)]
    pub backup: Schedule,
    /// Flags of components, given as `--kubelet-arg NAME=VALUE` and so on. They override the computed flags.
    #[arg(skip)]
    pub own_flags: BTreeMap<&'static str, Vec<String>>,
    /// Run the store, the API server, the controllers and the scheduler as static pods.
    #[arg(long)]
    pub static_pods: bool,
    #[arg(skip)]
    pub store: plan::Store,
    /// Whether this server joined an existing cluster, which then defines the network settings.
    #[arg(skip)]
    pub joined: bool,
    /// Run in the background, and return when the cluster is ready.
    #[arg(short = 'd', long)]
    pub background: bool,
    /// Print a systemd unit that runs this command at boot, and exit.
    #[arg(long)]
    pub systemd_unit: bool,
}

impl Default for Options {
    /// Returns the options of a command line without arguments.
    fn default() -> Self {
        let command = Self::augment_args(clap::Command::new("up").no_binary_name(true));
        let matches = command.get_matches_from(std::iter::empty::<&str>());
        Self::from_arg_matches(&matches).expect("every argument has a default")
    }
}

/// Makes the scheduled backups of a data directory.
pub(crate) type Backups = fn(Schedule, PathBuf) -> plan::Running;

/// Running components by name.
pub(crate) type Parts = JoinSet<(&'static str, Result<()>)>;

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Options::augment_args(command).args(plan::ROWS.iter().map(|row| {
        Arg::new(row.own_flags)
            .long(row.own_flags)
            .value_name("NAME=VALUE")
            .action(ArgAction::Append)
            .help(format!("Flag of {}; overrides the computed one", row.name))
    }))
}

/// Returns the options with the flags of components.
pub(crate) fn options(matches: &ArgMatches) -> Result<Options> {
    let mut options = Options::from_arg_matches(matches)?;
    for row in plan::ROWS {
        let flags = matches.get_many::<String>(row.own_flags).into_iter().flatten().cloned().collect();
        options.own_flags.insert(row.name, flags);
    }
    Ok(options)
}

/// Runs the cluster until SIGTERM or SIGINT. Pods keep running.
pub(crate) fn run(matches: &ArgMatches, backups: Backups) -> Result<()> {
    launch(options(matches)?, backups, async |options| Ok(options))
}

/// Runs a server of a cluster. `complete` adds the settings of an existing cluster to the options.
pub(crate) fn launch(
    mut options: Options,
    backups: Backups,
    complete: impl AsyncFnOnce(Options) -> Result<Options>,
) -> Result<()> {
    if options.systemd_unit {
        return background::print_unit(&options.data_dir);
    }
    if !options.disable.iter().any(|part| part == "kubelet") {
        sudo::run_as_root()?;
    }
    // Checked before anything is written, and also in the foreground process of `--background`.
    preflight::check_free_space(&options.data_dir)?;
    if !options.disable.iter().any(|part| part == "kubelet") {
        options.registries.check()?;
    }
    if options.background {
        return background::start(&options.data_dir);
    }
    let instance = Instance::claim(&options.data_dir)?;
    options.data_dir = instance.dir().to_owned();
    preflight::check(&options)?;
    static_pods::move_earlier(&options.data_dir)?;
    static_pods::check(&options)?;
    crate::log::to_file(tracing::Level::INFO, instance.log()?);
    component::run("up", async { serve(&complete(options).await?, &instance, backups).await })
}

async fn serve(options: &Options, instance: &Instance, backups: Backups) -> Result<()> {
    let mut steps = Steps::start();
    let nodes = Nodes::open_for_start(options)?;
    let found = preflight::addresses_or(&options.node_ip, &options.service_cidr)?;
    let layout = Layout::of(options, nodes.addresses(found, options)?)?;
    let service_manager = ServiceManager::start(health_check(options, &layout))?;
    let names = nodes.ensure(&layout.node_name, options.nodes)?;
    let pki = Pki::open(&layout.pki())?;
    certificates(&pki, &layout)?;
    steps.done("certificates");
    let (mut running, in_process, gate) = (JoinSet::new(), InProcessServer::new(), Arc::default());
    if options.static_pods {
        static_pods::write(options, &layout, &pki)?;
    }
    let rows = plan::of(plan::placements(&options.store), options, &layout, &pki).into_iter();
    let rows: Vec<_> = rows.filter(|(row, _)| !options.static_pods || !static_pods::has(row.name)).collect();
    let parts: Vec<&str> = rows.iter().map(|(row, _)| row.name).collect();
    component::expect_policies(&gate, &parts);
    let trace = instance.trace()?;
    let mut gateway_api = None;
    // The component that starts the API server comes first: all others need the API server.
    let bringer = if options.static_pods { "kubelet" } else { "kube-apiserver" };
    for (row, flags) in rows {
        let user = layout.user(row.kubeconfig).context("every component has a user")?;
        let own_server = (!options.static_pods).then(|| in_process.with_user(user));
        start(
            row,
            flags,
            ProcessContext {
                in_process: own_server,
                gate: Arc::clone(&gate),
                trace: Some(Arc::clone(&trace)),
                node_records: Some(nodes::records_source(&options.data_dir)),
            },
            &mut running,
        )?;
        if row.role == Placement::Store {
            until(&mut running, ready::member(options, &layout)).await?;
            steps.done("store");
        }
        if row.name == bringer {
            until(&mut running, ready::server(&layout)).await?;
            if !options.static_pods {
                let data_dir = options.data_dir.clone();
                in_process.add_metrics(move || last_backup::metric(&data_dir))?;
            }
            steps.done(if options.store == plan::Store::Embedded { "API server and store" } else { "API server" });
            addons::apply(options, &layout).await?;
            let applying = addons::apply_gateway_api(options.clone(), layout.clone());
            gateway_api = Some(tokio::spawn(applying.in_current_span()));
        }
    }
    running.spawn(nodes.keep(options.clone(), layout.clone()).in_current_span());
    for (what, wait) in ready::rest(options, &layout, &names) {
        until(&mut running, wait).await?;
        steps.done(what);
    }
    if let Some(applied) = gateway_api {
        until(&mut running, async { applied.await.context("the installation of the Gateway API panicked")? }).await?;
    }
    let hangup = renewal::install_hangup_handler()?;
    steps.finish(&layout);
    let backups = backups(options.backup.clone(), options.data_dir.clone());
    running.spawn(async move { ("backups", backups.await) }.in_current_span());
    instance.ready(&parts)?;
    service_manager.ready();
    tokio::select! {
        // The components receive the signal too. Their exit is then not an error.
        biased;
        signal = crate::etcd::signal() => signal,
        result = first_end(&mut running) => result,
        renewal = renewal::keep(&pki, &layout, hangup) => renewal,
        moved = address::changed(options, &layout.addresses) => moved.and_then(|()| address::re_execute()),
    }
}

/// Returns the health check of this process for the service manager. The kubelet checks an API server in a static pod.
fn health_check(options: &Options, layout: &Layout) -> HealthCheck {
    let (is_own_server, layout) = (!options.static_pods, layout.clone());
    Box::new(move || {
        let layout = layout.clone();
        Box::pin(async move { if is_own_server { ready::is_alive(&layout).await } else { Ok(()) } })
    })
}

/// Creates every certificate and kubeconfig that is missing or about to expire.
fn certificates(pki: &Pki, layout: &Layout) -> Result<()> {
    let now = SystemTime::now();
    pki::at_once(layout.certificates().into_iter(), |subject| {
        pki.certificate(&subject, now)
            .map(drop)
            .with_context(|| format!("failed to create the certificate {}", subject.name))
    })?;
    pki::at_once(layout.kubeconfigs().into_iter(), |(file, user, group)| {
        let name = file.file_stem().and_then(|name| name.to_str()).context("a kubeconfig has a name")?;
        let pair = pki.certificate(&Subject::client(name, &user, &group), now)?;
        // The admin kubeconfig embeds its certificate, because users copy it. Components reload the files that theirs
        // name.
        let write = if name == "admin" { pki::kubeconfig } else { pki::kubeconfig_of_files };
        Ok(write(pki, &file, &layout.cluster_name, &layout.server(), &user, &pair)?)
    })
}

/// Starts a component. It is restarted when it loses its leader lease.
pub(crate) fn start(row: &'static Row, flags: Vec<String>, shared: ProcessContext, running: &mut Parts) -> Result<()> {
    let command = (row.arguments)(clap::Command::new(row.name).no_binary_name(true));
    let matches = command.try_get_matches_from(flags).with_context(|| format!("invalid flags of {}", row.name))?;
    let task = async move {
        loop {
            let result = (row.run)(matches.clone(), shared.clone()).await;
            match &result {
                Err(error) if error.is::<component::LeadershipLost>() => {
                    tracing::warn!(component = row.name, "lost its leader lease; restarting as a candidate");
                }
                _ => return (row.name, result),
            }
        }
    };
    running.spawn(task.instrument(spans::component(row.name)));
    Ok(())
}

/// Waits for `wait`. Fails if a component exits or a signal arrives first.
pub(crate) async fn until(running: &mut Parts, wait: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::select! {
        biased;
        signal = crate::etcd::signal() => {
            signal?;
            bail!("stopped before the cluster was ready")
        }
        done = wait => done,
        result = first_end(running) => result,
    }
}

/// Waits for the first component that exits, and fails: a cluster without one of its components must not keep running.
pub(crate) async fn first_end(running: &mut Parts) -> Result<()> {
    match running.join_next().await {
        Some(Ok((name, Ok(())))) => bail!("{name} exited unexpectedly"),
        Some(Ok((name, Err(error)))) => Err(error.context(format!("{name} failed"))),
        Some(Err(panic)) => Err(anyhow::Error::new(panic).context("a component panicked")),
        None => std::future::pending().await,
    }
}
