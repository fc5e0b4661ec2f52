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
use crate::dns::{Names, Resolver};
use crate::housekeeping::{self, Housekeeping};
use crate::images::Images;
use crate::node::machine::{self, Machine};
use crate::node::{self, Pressure};
use crate::objects::Objects;
use crate::pods::{self, Feeds, Known};
use crate::runtime::Runtime;
use crate::server::{self, ServeError};
use crate::static_pods::StaticPods;
use crate::status::Facts;
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
}

impl Kubelet {
    /// Starts everything.
    pub async fn start(config: Config, client: Client, runtime: Runtime) -> Result<Self, StartError> {
        for path in [config.root_dir.join("pods"), config.pod_logs_dir.clone()] {
            std::fs::create_dir_all(&path).map_err(|source| StartError::Directory { path, source })?;
        }
        let version = runtime.runtime.clone().version(v1::VersionRequest::default()).await;
        let version = version.map_err(StartError::Runtime)?.into_inner();
        let mut addresses: Vec<String> = config.node_ips.iter().map(ToString::to_string).collect();
        if addresses.is_empty() {
            addresses.push(machine::default_address().ok_or(StartError::Address)?.to_string());
        }
        let mut tasks = JoinSet::new();
        let (recorder, events) = Recorder::new(client.clone(), "kubelet");
        tasks.spawn(events);
        let services = watched(&mut tasks, &client, &kinds::SERVICES, String::new(), |value| value);
        let of_node = format!("spec.nodeName={}", config.node_name);
        let pods = watched(&mut tasks, &client, &kinds::PODS, of_node, Arc::new);
        let itself = format!("metadata.name={}", config.node_name);
        let own_node = watched(&mut tasks, &client, &kinds::NODES, itself, |value| value);
        let notices = Notices::new(NOTICES_MAX);
        let machine = Machine::read(&config.root_dir);
        let context = Arc::new(Context {
            images: Images::new(runtime.clone(), config.parallel_pulls),
            objects: Objects::new(client.clone(), notices.clone()),
            volumes: Volumes::new(client.clone(), &config.root_dir),
            recorder,
            services,
            facts: Facts { host_ips: addresses.clone(), runtime_name: version.runtime_name },
            names: Names {
                cluster_dns: config.cluster_dns.clone(),
                cluster_domain: config.cluster_domain.clone(),
                host: Resolver::read(&std::fs::read_to_string(&config.resolv_conf).unwrap_or_default()),
            },
            memory_capacity: machine.memory_bytes,
            allocatable: node::allocatable(&config, &machine),
            client: client.clone(),
            runtime: runtime.clone(),
            config: config.clone(),
        });
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
        let feeds = Feeds { pods, objects: notices, statics, evictions };
        let (address, serving) = server::open(Arc::clone(&context), known.clone()).await?;
        tasks.spawn(serving);
        if config.healthz_port > 0 {
            tasks.spawn(server::healthz(config.healthz_port));
        }
        tasks.spawn(pods::run(Arc::clone(&context), feeds, known.clone()));
        let registered = Arc::new(Notify::new());
        let (pressing, pressure) = watch::channel(Pressure::default());
        let keeping = Housekeeping { context, known, evictions: evict, pressure: pressing };
        tasks.spawn(housekeeping::run(keeping));
        tasks.spawn(node::keep_network(own_node.clone(), runtime.clone()));
        tasks.spawn(node::keep_registered(node::Registration {
            port: address.port(),
            client: client.clone(),
            node: own_node,
            runtime,
            addresses,
            pressure,
            registered: Arc::clone(&registered),
            config: config.clone(),
        }));
        tasks.spawn(node::keep_lease(client, config.node_name.clone(), config.lease_seconds));
        Ok(Self { tasks, registered, address })
    }

    /// Waits for the node to be registered for the first time.
    pub async fn registered(&self) {
        self.registered.notified().await;
    }

    /// Where its server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
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
