//! A kubelet: everything it consists of, started together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use client::Client;
use client::cache::{self, Notices, Reader, Source};
use cri::v1;
use driver::events::Recorder;
use machinery::{Resource, Value};
use reconcile::kinds;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::config::Config;
use crate::context::Context;
use crate::cpus::Cpus;
use crate::devices::{self, Devices};
use crate::dns::{Names, Resolver};
use crate::drivers::claims::Claims;
use crate::drivers::csi::Csi;
use crate::drivers::{self, Drivers, Registry};
use crate::housekeeping::{self, Housekeeping};
use crate::images::Images;
use crate::node::machine::{self, Machine};
use crate::node::{self, Situation};
use crate::objects::Objects;
use crate::pod_resources;
use crate::pods::{self, Feeds, Known};
use crate::runtime::Runtime;
use crate::server::{self, ServeError};
use crate::shutdown::{self, Shutdown};
use crate::static_pods::StaticPods;
use crate::status::Facts;
use crate::swap::Swap;
use crate::users::Users;
use crate::volumes::Volumes;

/// How often manifests are looked at.
const MANIFESTS_EVERY: std::time::Duration = std::time::Duration::from_secs(20);
/// Pods whose objects changed, waiting to be looked at.
const NOTICES_MAX: usize = 4096;

/// Why a kubelet does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The runtime does not answer.
    #[error("the container runtime does not answer")]
    Runtime(#[source] tonic::Status),
    /// Its directory cannot be made.
    #[error("cannot make {path}")]
    Directory {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Its server does not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The machine has no address.
    #[error("the node's address cannot be found out: give --node-ip")]
    Address,
}

/// A running kubelet. Dropped, it stops; its pods go on.
pub struct Kubelet {
    tasks: JoinSet<()>,
    registered: Arc<Notify>,
    address: SocketAddr,
    shutdown: Option<(Shutdown, Config)>,
}

impl Kubelet {
    /// Starts everything.
    pub async fn start(config: Config, client: Client, runtime: Runtime) -> Result<Self, StartError> {
        let sockets = config.root_dir.join("plugins_registry");
        for path in [config.root_dir.join("pods"), config.pod_logs_dir.clone(), sockets.clone()] {
            std::fs::create_dir_all(&path).map_err(|source| StartError::Directory { path, source })?;
        }
        let version = runtime.runtime.clone().version(v1::VersionRequest::default()).await;
        let version = version.map_err(StartError::Runtime)?.into_inner();
        let facts = Facts { host_ips: addresses(&config)?, runtime_name: version.runtime_name };
        let mut tasks = JoinSet::new();
        let (recorder, events) = Recorder::new(client.clone(), "kubelet");
        tasks.spawn(events);
        let services = watched(&mut tasks, &client, &kinds::SERVICES, String::new(), |value| value);
        let of_node = format!("spec.nodeName={}", config.node_name);
        let pods = watched(&mut tasks, &client, &kinds::PODS, of_node, Arc::new);
        let itself = format!("metadata.name={}", config.node_name);
        let own_node = watched(&mut tasks, &client, &kinds::NODES, itself, |value| value);
        let notices = Notices::new(NOTICES_MAX);
        let (situation, situated) = watch::channel(Situation::default());
        let situation = Arc::new(situation);
        let found = Drivers::default();
        let parts = Parts {
            config: config.clone(),
            client: client.clone(),
            runtime: runtime.clone(),
            recorder,
            services,
            facts,
            notices: notices.clone(),
            drivers: found.clone(),
            situation: Arc::clone(&situation),
        };
        let context = Arc::new(parts.assemble());
        let statics = match &config.static_pod_path {
            Some(path) => {
                let (statics, watching) = StaticPods::watch(path.clone(), config.node_name.clone(), MANIFESTS_EVERY);
                tasks.spawn(watching);
                statics
            }
            None => StaticPods::none(),
        };
        let known = Known::default();
        let (evict, evictions) = pods::evictions();
        let shutdown = Shutdown {
            known: known.clone(),
            pods: pods.clone(),
            evictions: evict.clone(),
            situation: Arc::clone(&situation),
        };
        let feeds = Feeds { pods, objects: notices, statics, evictions, situation: situated.clone() };
        let (address, serving) = server::open(Arc::clone(&context), known.clone()).await?;
        tasks.spawn(serving);
        if config.healthz_port > 0 {
            tasks.spawn(server::healthz(config.healthz_port));
        }
        open_sockets(&mut tasks, &context, &known)?;
        let registry =
            Registry { drivers: found, dir: sockets, client: client.clone(), node_name: config.node_name.clone() };
        tasks.spawn(drivers::run(registry));
        tasks.spawn(pods::run(Arc::clone(&context), feeds, known.clone()));
        let registered = Arc::new(Notify::new());
        let addresses = context.facts.host_ips.clone();
        let keeping = Housekeeping { context, known, evictions: evict, situation };
        tasks.spawn(housekeeping::run(keeping));
        let connected = Arc::new(Notify::new());
        tasks.spawn(node::keep_network(own_node.clone(), runtime.clone(), Arc::clone(&connected)));
        tasks.spawn(node::keep_registered(node::Registration {
            port: address.port(),
            client: client.clone(),
            node: own_node,
            runtime,
            addresses,
            situation: situated,
            connected,
            registered: Arc::clone(&registered),
            config: config.clone(),
        }));
        tasks.spawn(node::keep_lease(client, config.node_name.clone(), config.lease_seconds));
        let shutdown = shutdown::is_wanted(&config).then_some((shutdown, config));
        Ok(Self { tasks, registered, address, shutdown })
    }

    /// Waits for the node to be registered for the first time.
    pub async fn registered(&self) {
        self.registered.notified().await;
    }

    /// Where its server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all pods if its configuration gives them time for that; otherwise they go on.
    // DEVIATION: without a system that announces its shutdown, a kubelet that is told to stop takes it for one, if it gives pods time.
    pub async fn shut_down(&mut self) {
        if let Some((shutdown, config)) = self.shutdown.take() {
            shutdown.run(&config).await;
        }
    }

    /// Runs until one of its parts fails, which none should.
    pub async fn run(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the kubelet failed");
                return;
            }
        }
    }
}

/// What workers share, before it is put together.
struct Parts {
    config: Config,
    client: Client,
    runtime: Runtime,
    recorder: Recorder,
    services: Reader<Value>,
    facts: Facts,
    notices: Notices,
    drivers: Drivers,
    situation: Arc<watch::Sender<Situation>>,
}

impl Parts {
    fn assemble(self) -> Context {
        let (config, client) = (self.config, self.client);
        let machine = Machine::read(&config.root_dir);
        let csi = Csi::new(client.clone(), self.drivers.clone(), &config.root_dir, &config.node_name);
        Context {
            images: Images::new(self.runtime.clone(), config.parallel_pulls),
            objects: Objects::new(client.clone(), self.notices),
            volumes: Volumes::new(client.clone(), &config.root_dir, csi),
            claims: Claims::new(client.clone(), self.drivers, &config.root_dir),
            recorder: self.recorder,
            services: self.services,
            facts: self.facts,
            names: Names {
                cluster_dns: config.cluster_dns.clone(),
                cluster_domain: config.cluster_domain.clone(),
                host: Resolver::read(&std::fs::read_to_string(&config.resolv_conf).unwrap_or_default()),
            },
            memory_capacity: machine.memory_bytes,
            devices: Devices::new(&config.root_dir, self.situation),
            cpus: cpus(&config),
            users: Users::new(&config.root_dir),
            swap: Swap::read(config.limited_swap, machine.memory_bytes, machine.swap_bytes),
            allocatable: node::allocatable(&config, &machine),
            client,
            runtime: self.runtime,
            config,
        }
    }
}

/// Opens the sockets for what else is on the node.
fn open_sockets(tasks: &mut JoinSet<()>, context: &Arc<Context>, known: &Known) -> Result<(), StartError> {
    let root = &context.config.root_dir;
    let failed = |source| StartError::Directory { path: root.clone(), source };
    tasks.spawn(devices::open(context.devices.clone()).map_err(failed)?);
    tasks.spawn(pod_resources::open(root, Arc::clone(context), known.clone()).map_err(failed)?);
    tasks.spawn(context.cpus.clone().keep_moved(context.runtime.clone()));
    Ok(())
}

fn addresses(config: &Config) -> Result<Vec<String>, StartError> {
    if !config.node_ips.is_empty() {
        return Ok(config.node_ips.iter().map(ToString::to_string).collect());
    }
    Ok(vec![machine::default_address().ok_or(StartError::Address)?.to_string()])
}

fn cpus(config: &Config) -> Cpus {
    if !config.exclusive_cpus {
        return Cpus::shared_by_all();
    }
    let milli = config.reserved.get("cpu").map_or(0, |amount| amount.milli_value());
    let count = usize::try_from(milli.max(0)).unwrap_or(0).div_ceil(1000);
    Cpus::given_away(&config.root_dir, &config.reserved_cpus, count)
}

/// Starts to watch objects of a kind and keeps what `keep` makes of each.
fn watched<T: Send + Sync + 'static>(
    tasks: &mut JoinSet<()>,
    client: &Client,
    resource: &Resource,
    field_selector: String,
    keep: impl Fn(Value) -> T + Send + Sync + 'static,
) -> Reader<T> {
    let source = Source { field_selector, ..Source::all(client.clone(), resource.clone()) };
    let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), keep);
    tasks.spawn(reflector.run());
    reader
}
