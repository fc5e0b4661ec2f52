//! The kubelet: starts and owns all of its tasks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apimachinery::quantity::{Format, Quantity};
use apimachinery::{Resource, Value};
use cgroups::systemd::SystemdError;
use cgroups::{Controller, Controllers};
use client::Client;
use client::cache::{self, ChangeQueue, Reader, Source};
use component_base::events::Recorder;
use controller::{EventType, kinds};
use node_api::cri::v1;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::cgroups::{Cgroups, MissingControllers, needed_controllers};
use crate::config::Config;
use crate::context::{Context, Gate};
use crate::counters::Probes;
use crate::cpus::Cpus;
use crate::devices::{self, Devices};
use crate::dns::{Names, Resolver};
use crate::housekeeping::{self, Housekeeping};
use crate::images::Images;
use crate::kernel;
use crate::logs::Logs;
use crate::memory::Memory;
use crate::memory::allocator::MemoryAllocator;
use crate::node::machine::{self, Machine};
use crate::node::{self, NodeConditions, NodeEvents};
use crate::numa;
use crate::plugins::claims::Claims;
use crate::plugins::csi::Csi;
use crate::plugins::{self, Drivers, Registry};
use crate::pod_resources;
use crate::pods::{self, Feeds, PodTable};
use crate::referenced_objects::Objects;
use crate::runtime::Runtime;
use crate::server::{self, ServeError};
use crate::shutdown::{self, Shutdown};
use crate::static_pods::{self, Manifests, StaticPods};
use crate::status::Facts;
use crate::swap::Swap;
use crate::topology::{Nodes, Topology};
use crate::user_namespaces::Users;
use crate::volumes::Volumes;
use api::amounts::Amounts;

/// Interval at which static pod manifests are read, in addition to every change of their directory.
const MANIFESTS_EVERY: std::time::Duration = std::time::Duration::from_secs(20);
/// Capacity of the channel of pods whose referenced objects changed.
const NOTICES_MAX: usize = 4096;

/// The kubelet could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the container runtime does not respond")]
    Runtime(#[source] tonic::Status),
    #[error("failed to create {path}")]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The sum of `reservedMemory` differs from the memory reserved by Node Allocatable.
    #[error(
        "the total amount \"{given}\" of type \"memory\" is not equal to the value \"{required}\" determined by Node Allocatable feature"
    )]
    ReservedMemory {
        /// The sum of `reservedMemory`.
        given: Quantity,
        /// The sum of `kubeReserved`, `systemReserved` and `evictionHard`.
        required: Quantity,
    },
    /// The systemd cgroup driver is configured and systemd is unavailable.
    #[error("cgroupDriver: systemd is not available")]
    Groups(#[from] SystemdError),
    /// The host lacks cgroup controllers, and the configuration does not allow that.
    #[error(transparent)]
    Controllers(#[from] MissingControllers),
    /// `protectKernelDefaults` is set and kernel parameters differ.
    #[error("protectKernelDefaults: {0}")]
    Kernel(String),
    #[error("failed to detect the node's address: set --node-ip")]
    Address,
}

/// A running kubelet. Dropping it stops the kubelet; its pods keep running.
pub struct Kubelet {
    tasks: JoinSet<()>,
    registered: Arc<Notify>,
    address: SocketAddr,
    shutdown: Option<(Shutdown, Config)>,
}

impl Kubelet {
    /// Starts all tasks. Containers start after the gate has passed, if there is one.
    pub async fn start(
        mut config: Config,
        client: Client,
        runtime: Runtime,
        gate: Option<Gate>,
    ) -> Result<Self, StartError> {
        check_kernel(&config, Path::new("/proc/sys"))?;
        config.root_dir = root_directory(&config.root_dir)?;
        let sockets = make_directories(&config)?;
        check_reserved_memory(&config)?;
        let (groups, are_enforced) = groups(&config)?;
        let facts = Facts { host_ips: addresses(&config)?, runtime_name: runtime_name(&runtime).await? };
        let mut tasks = JoinSet::new();
        let (recorder, events) = record_events(&mut tasks, &client, &config, are_enforced, groups.unenforced());
        let services = watched(&mut tasks, &client, &kinds::SERVICES, String::new(), |value| value);
        let of_node = format!("spec.nodeName={}", config.node_name);
        let pods = watched(&mut tasks, &client, &kinds::PODS, of_node, Arc::new);
        let itself = format!("metadata.name={}", config.node_name);
        let own_node = watched(&mut tasks, &client, &kinds::NODES, itself, |value| value);
        let notices = ChangeQueue::new(NOTICES_MAX);
        let (node_conditions, situated) = watch::channel(initial_conditions(&groups));
        let node_conditions = Arc::new(node_conditions);
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
            node_conditions: Arc::clone(&node_conditions),
            groups,
            gate,
        };
        let context = Arc::new(parts.assemble());
        let statics = statics(&mut tasks, &config);
        let known = PodTable::default();
        let (evict, evictions) = pods::evictions();
        let shutdown = Shutdown {
            known: known.clone(),
            pods: pods.clone(),
            evictions: evict.clone(),
            node_conditions: Arc::clone(&node_conditions),
        };
        let feeds = Feeds {
            pods,
            objects: notices,
            statics,
            evictions,
            node_conditions: situated.clone(),
            node: own_node.clone(),
        };
        let (address, serving, sync_loop) = server::open(Arc::clone(&context), known.clone()).await?;
        tasks.spawn(serving.in_current_span());
        if config.healthz_port > 0 {
            tasks.spawn(server::healthz(config.healthz_port).in_current_span());
        }
        open_sockets(&mut tasks, &context, &known)?;
        let registry =
            Registry { drivers: found, dir: sockets, client: client.clone(), node_name: config.node_name.clone() };
        tasks.spawn(plugins::run(registry).in_current_span());
        let pod_loop = tasks.spawn(pods::run(Arc::clone(&context), feeds, known.clone()).in_current_span());
        sync_loop.set(pod_loop).expect("the sync loop is set once");
        let registered = Arc::new(Notify::new());
        let addresses = context.facts.host_ips.clone();
        let housekeeping = Housekeeping { context, known, evictions: evict, node_conditions };
        tasks.spawn(housekeeping::run(housekeeping).in_current_span());
        let registration = node::Registration {
            port: address.port(),
            client,
            node: own_node,
            runtime,
            addresses,
            node_conditions: situated,
            events,
            connected: Arc::new(Notify::new()),
            registered: Arc::clone(&registered),
            config: config.clone(),
        };
        register_node(&mut tasks, registration);
        let shutdown = shutdown::is_enabled(&config).then_some((shutdown, config));
        Ok(Self { tasks, registered, address, shutdown })
    }

    /// Waits for the first registration of the node.
    pub async fn registered(&self) {
        self.registered.notified().await;
    }

    /// Returns the listen address of the server.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Terminates all pods if a shutdown grace period is configured; otherwise they keep running.
    // DEVIATION: without a system service that announces shutdowns, stopping the kubelet counts as node shutdown if a
    // shutdown grace period is configured.
    pub async fn shut_down(&mut self) {
        if let Some((shutdown, config)) = self.shutdown.take() {
            shutdown.run(&config).await;
        }
    }

    /// Runs until a task panics, or until all tasks have exited.
    pub async fn run(&mut self) {
        while let Some(result) = self.tasks.join_next().await {
            if let Err(error) = result {
                tracing::error!(%error, "a task of the kubelet failed");
                return;
            }
        }
    }
}

async fn runtime_name(runtime: &Runtime) -> Result<String, StartError> {
    let version = runtime.runtime.clone().version(v1::VersionRequest::default()).await;
    Ok(version.map_err(StartError::Runtime)?.into_inner().runtime_name)
}

/// Configures the pod network, registers the node and renews its Lease. A standalone kubelet does not register.
fn register_node(tasks: &mut JoinSet<()>, registration: node::Registration) {
    let (node, runtime) = (registration.node.clone(), registration.runtime.clone());
    tasks.spawn(node::keep_network(node, runtime, Arc::clone(&registration.connected)).in_current_span());
    if registration.config.standalone {
        registration.registered.notify_one();
        return;
    }
    let node_name = registration.config.node_name.clone();
    let lease = node::keep_lease(registration.client.clone(), node_name, registration.config.lease_seconds);
    tasks.spawn(lease.in_current_span());
    tasks.spawn(node::keep_registered(registration).in_current_span());
}

/// Starts the event recorder; the node's own events are sent first.
fn record_events(
    tasks: &mut JoinSet<()>,
    client: &Client,
    config: &Config,
    are_enforced: bool,
    unenforced: Controllers,
) -> (Recorder, NodeEvents) {
    let (recorder, sending) = Recorder::new(client.clone(), "kubelet");
    tasks.spawn(sending.in_current_span());
    let events = NodeEvents::new(recorder.clone(), &config.node_name);
    events.record(EventType::Normal, "Starting", "Starting kubelet.");
    if are_enforced {
        let message = "Updated Node Allocatable limit across pods";
        events.record(EventType::Normal, "NodeAllocatableEnforced", message);
    }
    if !unenforced.is_empty() {
        events.record(EventType::Warning, node::UNENFORCED, &node::unenforced_message(unenforced));
    }
    tasks.spawn(node::watch_oom(events.clone()).in_current_span());
    (recorder, events)
}

/// Creates the cgroups of the QoS classes. Returns them and whether Node Allocatable is enforced. If creation fails,
/// the pods that need a cgroup report the error. Fails if controllers are missing, unless the configuration allows it.
fn groups(config: &Config) -> Result<(Cgroups, bool), StartError> {
    let mut groups = Cgroups::new(config)?;
    let has_huge_pages = Machine::read(&config.root_dir).hugepages.iter().any(|(_, bytes)| *bytes > 0);
    groups.check_controllers(config, needed_controllers(config, has_huge_pages))?;
    let unenforced = groups.unenforced();
    if !unenforced.is_empty() {
        tracing::warn!(missing_controllers = %unenforced, "limits of pods that need these cgroup controllers are not enforced");
    }
    let mut are_enforced = config.cgroups_per_qos && config.enforce_allocatable && unenforced.is_empty();
    if config.cgroups_per_qos
        && let Err(error) = groups.prepare(&available(config))
    {
        tracing::error!(%error, "failed to create the cgroups of the QoS classes");
        are_enforced = false;
    }
    Ok((groups, are_enforced))
}

/// Returns the node conditions that are known before the first check.
fn initial_conditions(groups: &Cgroups) -> NodeConditions {
    NodeConditions { unenforced: groups.unenforced(), ..NodeConditions::default() }
}

/// Returns the limit of all pods together: the capacity without reserved resources. Eviction thresholds are not
/// subtracted.
fn available(config: &Config) -> Amounts {
    let mut all = node::capacity(config, &Machine::read(&config.root_dir));
    for (name, amount) in &mut all {
        let left = amount.sub(config.reserved.get(name).copied().unwrap_or(Quantity::ZERO));
        *amount = if left.is_negative() { Quantity::ZERO.with_format(amount.format()) } else { left };
    }
    all
}

/// The inputs of [`Context`].
struct Parts {
    config: Config,
    client: Client,
    runtime: Runtime,
    recorder: Recorder,
    services: Reader<Value>,
    facts: Facts,
    notices: ChangeQueue,
    drivers: Drivers,
    node_conditions: Arc<watch::Sender<NodeConditions>>,
    groups: Cgroups,
    gate: Option<Gate>,
}

impl Parts {
    fn assemble(self) -> Context {
        let (config, client) = (self.config, self.client);
        let machine = Machine::read(&config.root_dir);
        let node_conditions = Arc::clone(&self.node_conditions);
        let csi = Csi::new(client.clone(), self.drivers.clone(), &config.root_dir, &config.node_name, node_conditions);
        Context {
            images: Images::new(self.runtime.clone(), client.clone(), &config),
            logs: Logs::new(&config.pod_logs_dir),
            probes: Probes::default(),
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
            devices: Devices::new(&config.root_dir, self.node_conditions),
            cpus: cpus(&config),
            memory: memory(&config, &machine),
            topology: Topology { nodes: Nodes::of(numa::memory(0).into_keys()), ..config.topology },
            groups: self.groups,
            users: Users::new(&config.root_dir),
            swap: Swap::read(config.limited_swap, machine.memory_bytes, machine.swap_bytes),
            allocatable: node::allocatable(&config, &machine),
            client,
            runtime: self.runtime,
            gate: self.gate,
            config,
        }
    }
}

/// Opens the sockets for device plugins and the PodResources API, and starts the task that updates cpusets.
fn open_sockets(tasks: &mut JoinSet<()>, context: &Arc<Context>, known: &PodTable) -> Result<(), StartError> {
    let root = &context.config.root_dir;
    let failed = |source| StartError::Directory { path: root.clone(), source };
    tasks.spawn(devices::open(context.devices.clone()).map_err(failed)?.in_current_span());
    tasks.spawn(pod_resources::open(root, Arc::clone(context), known.clone()).map_err(failed)?.in_current_span());
    if !context.groups.unenforced().contains(Controller::Cpuset) {
        tasks.spawn(context.cpus.clone().keep_moved(context.runtime.clone()).in_current_span());
    }
    Ok(())
}

/// Starts the sources of static pods: files and a URL.
fn statics(tasks: &mut JoinSet<()>, config: &Config) -> StaticPods {
    let mut all = StaticPods::default();
    if let Some(path) = &config.static_pod_path {
        let (pods, watching) = StaticPods::watch(path.clone(), config.node_name.clone(), MANIFESTS_EVERY);
        tasks.spawn(watching.in_current_span());
        all = all.and(pods);
    }
    if let Some(url) = &config.static_pod_url {
        let (headers, every) = (config.static_pod_headers.clone(), config.static_pod_url_every);
        let manifests = Manifests { url: url.clone(), headers, every };
        let (pods, following) = static_pods::follow(manifests, config.node_name.clone());
        tasks.spawn(following.in_current_span());
        all = all.and(pods);
    }
    all
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

fn check_kernel(config: &Config, sys: &Path) -> Result<(), StartError> {
    let wrong = match config.protect_kernel_defaults {
        true => kernel::unexpected(sys),
        false => Vec::new(),
    };
    if wrong.is_empty() { Ok(()) } else { Err(StartError::Kernel(wrong.join("; "))) }
}

/// Creates the kubelet's directory and resolves symlinks in its path: the kernel lists mounts by the resolved path.
fn root_directory(path: &Path) -> Result<PathBuf, StartError> {
    make_directory(path, 0o750)?;
    std::fs::canonicalize(path).map_err(|source| StartError::Directory { path: path.to_owned(), source })
}

/// Creates the kubelet's directories. Returns the directory of plugin registration sockets.
fn make_directories(config: &Config) -> Result<PathBuf, StartError> {
    let sockets = config.root_dir.join("plugins_registry");
    make_directory(&config.root_dir.join("pods"), 0o750)?;
    make_directory(&sockets, 0o750)?;
    make_directory(&config.pod_logs_dir, 0o755)?;
    Ok(sockets)
}

fn make_directory(path: &Path, mode: u32) -> Result<(), StartError> {
    sys::create_dirs(path, mode).map_err(|source| StartError::Directory { path: path.to_owned(), source })
}

/// Checks that the memory reserved per NUMA node equals the node's reserved memory.
fn check_reserved_memory(config: &Config) -> Result<(), StartError> {
    if !config.memory_by_nodes {
        return Ok(());
    }
    let machine = Machine::read(&config.root_dir);
    let of = |amounts: Amounts| amounts.get("memory").copied().unwrap_or(Quantity::ZERO);
    let required = of(node::capacity(config, &machine)).sub(of(node::allocatable(config, &machine)));
    let reserved_bytes = config.reserved_memory.values().filter_map(|kinds| kinds.get("memory")).sum::<u64>();
    let given = Quantity::new(i64::try_from(reserved_bytes).unwrap_or(i64::MAX), Format::BinarySI);
    if given == required { Ok(()) } else { Err(StartError::ReservedMemory { given, required }) }
}

fn memory(config: &Config, machine: &Machine) -> Memory {
    if !config.memory_by_nodes {
        return Memory::shared_by_all();
    }
    let bytes = u64::try_from(machine.memory_bytes).unwrap_or(0);
    Memory::given_away(&config.root_dir, MemoryAllocator::new(numa::memory(bytes), &config.reserved_memory))
}

/// Starts a watch of a resource. Its cache keeps the result of `keep` for each object.
fn watched<T: Send + Sync + 'static>(
    tasks: &mut JoinSet<()>,
    client: &Client,
    resource: &Resource,
    field_selector: String,
    keep: impl Fn(Value) -> T + Send + Sync + 'static,
) -> Reader<T> {
    let source = Source { field_selector, ..Source::all(client.clone(), resource.clone()) };
    let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), keep);
    tasks.spawn(reflector.run().in_current_span());
    reader
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protect_kernel_defaults_fails_start_with_other_kernel_settings() {
        let sys = tempfile::tempdir().unwrap();
        std::fs::create_dir(sys.path().join("vm")).unwrap();
        std::fs::write(sys.path().join("vm/overcommit_memory"), "0\n").unwrap();
        let check = |protect_kernel_defaults: bool| {
            check_kernel(&Config { protect_kernel_defaults, ..Config::new("n") }, sys.path())
        };
        check(false).unwrap();
        let error = check(true).unwrap_err().to_string();
        assert!(error.contains("overcommit_memory"), "{error}");
    }
}
