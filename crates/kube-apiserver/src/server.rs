//! API server lifecycle: the listener and the background tasks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use api::kind::Kind;
use store::client::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::Instrument;

use crate::admission::{self, Admission, Webhooks};
use crate::aggregation::{self, Aggregation};
use crate::audit::Audit;
use crate::authentication::Authenticators;
use crate::authorization::{self, Authorization};
use crate::backend::{Pools, Routing};
use crate::bootstrap::ServerAddress;
use crate::encrypted_store::Store;
use crate::encryptor::{self, Encryptor};
use crate::flow_control::Fairness;
use crate::health::Health;
use crate::kind_table::Table;
use crate::metrics::Metrics;
use crate::openapi_cache::OpenApiCache;
use crate::post_write::FollowerProgress;
use crate::proxy::Kubelets;
use crate::startup::Startup;
use crate::state::{Filters, State};
use crate::storage::Storage;
use crate::storage_format::Layout;
use crate::tls::Tls;
use crate::watch_cache::{self, Cache};
use crate::{allocations, audit, bootstrap, compaction, crd, endpoint_lease, flow_control, flow_schemas, serve, tls};

/// The configuration of an API server.
pub struct Config {
    /// Listen address; port 0 selects a free port.
    pub address: SocketAddr,
    /// `--etcd-prefix`, normally `/registry`.
    pub etcd_prefix: String,
    pub tls: tls::Files,
    /// DNS names of the self-signed serving certificate.
    pub names: Vec<String>,
    /// IP addresses of the self-signed serving certificate.
    pub addresses: Vec<IpAddr>,
    pub authenticators: Authenticators,
    /// `--authorization-mode`.
    pub modes: Vec<Mode>,
    /// Cluster IP and node port ranges.
    pub ranges: api::core::service::allocation::Config,
    /// Enabled and disabled admission plugins, and their configurations.
    pub admission: ::admission::Flags,
    /// `--enable-aggregator-routing`: Services are dialed at their endpoints instead of their cluster IP.
    pub aggregator_routing: bool,
    /// Kubelet connection settings.
    pub kubelets: Kubelets,
    pub aggregation: aggregation::Config,
    /// `--external-hostname`; the listen address if absent.
    pub external_address: Option<String>,
    /// `--advertise-address`: the address in the endpoints of the Service `kubernetes`.
    pub advertised: Option<IpAddr>,
    /// The encryption configuration, if values are encrypted at rest.
    pub encryption: Option<encryptor::File>,
    /// `--event-ttl`.
    pub event_life: Duration,
    /// Interval of store compaction; `None` if this server does not compact the store.
    pub compaction_interval: Option<Duration>,
    /// The built-in kinds with the enabled versions.
    pub kinds: Vec<Arc<Kind>>,
    /// Timeouts, concurrency limits and audit.
    pub filters: FilterConfig,
}

/// Settings of the handler chain other than authentication and authorization.
pub struct FilterConfig {
    /// `--request-timeout`: timeout of requests that are not long-running.
    pub request_timeout: Duration,
    /// `--min-request-timeout`: minimum duration of a watch without a `timeoutSeconds` parameter.
    pub watch_time: Duration,
    pub fairness: flow_control::Config,
    pub audit: audit::Config,
}

impl Default for FilterConfig {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(60),
            watch_time: Duration::from_secs(1800),
            fairness: flow_control::Config::default(),
            audit: audit::Config::default(),
        }
    }
}

impl Config {
    /// Returns the configuration of a server on a free loopback port, with self-signed certificates in `cert_dir`.
    /// Callers change the fields that differ.
    pub fn local(cert_dir: PathBuf) -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            etcd_prefix: "/registry".to_owned(),
            tls: tls::Files { cert_dir, ..tls::Files::default() },
            names: vec!["localhost".to_owned()],
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            authenticators: Authenticators::default(),
            modes: vec![Mode::Rbac],
            ranges: api::core::service::allocation::Config {
                ranges: vec![(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 0)), 16)],
                node_ports: 30_000..=32_767,
            },
            admission: ::admission::Flags::default(),
            aggregator_routing: false,
            kubelets: Kubelets::default(),
            aggregation: aggregation::Config::default(),
            external_address: None,
            advertised: None,
            encryption: None,
            event_life: Duration::from_secs(3600),
            compaction_interval: Some(Duration::from_secs(300)),
            kinds: api::kinds::all(),
            filters: FilterConfig::default(),
        }
    }
}

/// Authorization modes of `--authorization-mode`, and custom authorizers of an embedding binary.
#[derive(Debug)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    Rbac,
    Node,
    Abac(auth::abac::Policies),
    Webhook(Box<authorization::Webhook>),
    /// An authorizer of the embedding binary.
    Custom(Custom),
}

/// An authorizer of the embedding binary.
pub struct Custom(pub Box<dyn auth::Authorizer>);

impl std::fmt::Debug for Custom {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Custom")
    }
}

/// Reasons why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// The encryption configuration cannot be used.
    #[error("failed to set up encryption at rest")]
    Encryptor(#[from] encryptor::Error),
    /// A webhook-based plugin is misconfigured.
    #[error(transparent)]
    Webhooks(#[from] admission::ConfigError),
    /// The flags of the admission plugins are invalid.
    #[error(transparent)]
    Admission(#[from] ::admission::PluginFlagError),
}

/// A running server; it stops when dropped.
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    tasks: JoinSet<()>,
    connections: JoinHandle<()>,
    audits: audit::Carriers,
}

impl Server {
    /// Starts the listener, the watch cache and the background tasks, which create the bootstrap objects.
    pub async fn start(config: Config, store: Client) -> Result<Self, StartError> {
        let tls = Tls::new(&config.tls, &config.names, &config.addresses)?;
        let admission = ::admission::Chain::of(&config.admission)?;
        let webhooks = Webhooks::of(&admission, &config.admission)?;
        let listener = TcpListener::bind(config.address).await;
        let listener = listener.map_err(|error| StartError::Listen(config.address, error))?;
        let address = listener.local_addr().map_err(|error| StartError::Listen(config.address, error))?;
        let cache = Arc::new(Cache::new(&config.kinds, &[allocations::port_kind()]));
        let layout = Layout { root: config.etcd_prefix };
        let mut tasks = JoinSet::new();
        let authorization = authorize(config.modes, &config.kinds, &cache, &mut tasks);
        let encryptor = match config.encryption {
            Some(file) => Some(Arc::new(Encryptor::open_file(file, layout.clone(), &config.kinds).await?)),
            None => None,
        };
        tasks.extend(encryptor.iter().map(|encryptor| encryptor.clone().run()));
        if let Some(interval) = config.compaction_interval {
            tasks.spawn(compaction::run(store.clone(), interval).in_current_span());
        }
        let store = Arc::new(Store::new(store, encryptor, config.event_life));
        tasks.spawn(watch_cache::run(cache.clone(), store.clone(), layout.clone()).in_current_span());
        let metrics = Arc::new(Metrics::default());
        let (audit, audits) = Audit::start(config.filters.audit, metrics.clone());
        let storage = Arc::new(Storage {
            table: RwLock::new(Arc::new(Table::new(config.kinds))),
            store,
            layout,
            cache,
            ranges: config.ranges,
            ports: allocations::port_kind(),
            written: AtomicI64::new(0),
            followers: FollowerProgress::default(),
            backends: Pools::new(Routing { to_endpoints: config.aggregator_routing, own: Some(own(address)) }),
            metrics: metrics.clone(),
        });
        let (authorization, startup) = (Arc::new(authorization), Arc::new(Startup::default()));
        let ending = watch::Sender::new(false);
        let server = ServerAddress {
            external: config.external_address.unwrap_or_else(|| address.to_string()),
            advertised: config.advertised.map(|ip| SocketAddr::new(ip, address.port())),
        };
        let aggregation = Aggregation::new(config.aggregation, config.authenticators.request_header.clone());
        let state = Arc::new(State {
            filters: Filters {
                authenticators: config.authenticators,
                authorization: authorization.clone(),
                fairness: Fairness::new(config.filters.fairness),
                audit,
                request_timeout: config.filters.request_timeout,
            },
            admission: Admission {
                chain: admission,
                webhooks,
                storage: storage.clone(),
                authorization,
                metrics: metrics.clone(),
            },
            aggregation: Arc::new(aggregation),
            kubelets: config.kubelets,
            advertised: server.advertised,
            external_address: server.external.clone(),
            documents: OpenApiCache::default(),
            watch_time: config.filters.watch_time,
            health: Health::new(storage.clone(), startup.clone(), ending.subscribe()),
            ending,
            metrics,
            startup: startup.clone(),
            mount: OnceLock::new(),
            span: tracing::Span::current(),
            storage: storage.clone(),
        });
        tasks.spawn(bootstrap_objects(storage.clone(), startup.clone(), server).in_current_span());
        tasks.spawn(crd::run(storage.clone(), startup.clone()).in_current_span());
        tasks.spawn(aggregation::run(state.aggregation.clone(), storage, startup).in_current_span());
        tasks.spawn(state.filters.fairness.clone().run().in_current_span());
        tasks.spawn(flow_schemas::run(state.clone()).in_current_span());
        let connections = tokio::spawn(serve::accept(listener, Arc::new(tls), state.clone()).in_current_span());
        Ok(Self { address, state, tasks, connections, audits })
    }

    /// Returns the listen address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub const fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Shuts down gracefully: requests in flight are finished, within the request timeout.
    pub async fn stop(mut self) {
        let drained = tokio::time::timeout(self.state.filters.request_timeout, async {
            if let Some(own) = self.state.advertised
                && let Err(status) = endpoint_lease::end(&self.state.storage, own).await
            {
                tracing::warn!(
                    message = %status.message,
                    "failed to remove this server from the endpoints of the kubernetes Service"
                );
            }
            self.state.ending.send_replace(true);
            let _ = (&mut self.connections).await;
            std::mem::take(&mut self.audits).finish().await;
        });
        if drained.await.is_err() {
            tracing::warn!("requests did not finish before the shutdown timeout; closing their connections");
        }
        self.tasks.shutdown().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.connections.abort();
    }
}

/// Creates the bootstrap objects, and then keeps this server among the endpoints of the Service `kubernetes`.
async fn bootstrap_objects(storage: Arc<Storage>, startup: Arc<Startup>, server: ServerAddress) {
    bootstrap::run(&storage, &startup, &server).await;
    if let Some(own) = server.advertised {
        endpoint_lease::run(&storage, own).await;
    }
}

/// Creates the authorizers in order, and starts the tasks that feed them from the watch cache.
fn authorize(modes: Vec<Mode>, kinds: &[Arc<Kind>], cache: &Arc<Cache>, tasks: &mut JoinSet<()>) -> Authorization {
    let mut authorization = Authorization::new();
    for mode in modes {
        match mode {
            Mode::AlwaysAllow => authorization.add(Box::new(auth::AlwaysAllow)),
            Mode::AlwaysDeny => authorization.add(Box::new(auth::AlwaysDeny)),
            Mode::Abac(policies) => authorization.add(Box::new(policies)),
            Mode::Webhook(webhook) => authorization.add(webhook),
            Mode::Custom(Custom(authorizer)) => authorization.add(authorizer),
            Mode::Node => {
                let node = Arc::new(RwLock::new(auth::node::Node::new()));
                let followed = rows(kinds, |kind| authorization::NODE_KINDS.contains(&kind.kind.as_str()));
                tasks.spawn(authorization::follow(cache.clone(), followed, node.clone()).in_current_span());
                authorization.add_node(node);
            }
            Mode::Rbac => {
                let policy = Arc::new(RwLock::<auth::rbac::Policy>::default());
                let followed = rows(kinds, |kind| kind.group == "rbac.authorization.k8s.io");
                tasks.spawn(authorization::follow(cache.clone(), followed, policy.clone()).in_current_span());
                authorization.add_rbac(policy);
            }
        }
    }
    authorization
}

/// Returns the address at which the server reaches itself.
fn own(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn rows(kinds: &[Arc<Kind>], predicate: impl Fn(&Kind) -> bool) -> Vec<Arc<Kind>> {
    kinds.iter().filter(|kind| predicate(kind)).cloned().collect()
}
