//! A running API server: a listener, its connections, and the tasks behind them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use api::kind::Kind;
use registry::admission;
use store::client::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::aggregation::{self, Aggregation};
use crate::audit::Audit;
use crate::authentication::Authenticators;
use crate::authorization::{self, Authorization};
use crate::backend::{Pools, Routing};
use crate::cache::{self, Cache};
use crate::documents::Kept;
use crate::fairness::Fairness;
use crate::followers::Followers;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::proxy::Kubelets;
use crate::sealed::Store;
use crate::startup::Startup;
use crate::state::State;
use crate::storage::Layout;
use crate::table::Table;
use crate::tls::Tls;
use crate::vault::{self, Vault};
use crate::webhooks::{self, Webhooks};
use crate::{audit, bootstrap, claims, compaction, custom, fairness, listen, presence, tls};

/// How a server runs; given at start.
pub struct Config {
    /// Where it listens; port 0 chooses one.
    pub address: SocketAddr,
    /// Where its keys are in the store: `/registry`.
    pub etcd_prefix: String,
    /// Certificates.
    pub tls: tls::Files,
    /// Names and addresses for a certificate that the server makes itself.
    pub names: Vec<String>,
    /// See [`Self::names`].
    pub addresses: Vec<IpAddr>,
    /// Who asks.
    pub authenticators: Authenticators,
    /// `--authorization-mode`.
    pub modes: Vec<Mode>,
    /// What services can take.
    pub ranges: api::core::service::allocation::Config,
    /// Which admission plug-ins are on.
    pub admission: admission::Flags,
    /// `--enable-aggregator-routing`: services are reached at their endpoints, not at their own address.
    pub aggregator_routing: bool,
    /// How kubelets are reached.
    pub kubelets: Kubelets,
    /// How servers behind this one know it.
    pub aggregation: aggregation::Config,
    /// Where others reach this server, if not where it listens.
    pub external_address: Option<String>,
    /// The address by which other machines reach this server, if they do: it is among the endpoints of the `kubernetes` service.
    pub advertised: Option<IpAddr>,
    /// Where it is said how values are encrypted at rest, if they are.
    pub encryption: Option<vault::File>,
    /// How long events are kept.
    pub event_life: Duration,
    /// How much history the store keeps; none if somebody else compacts it.
    pub compaction_interval: Option<Duration>,
    /// The built-in kinds, with the versions that are served.
    pub kinds: Vec<Arc<Kind>>,
    /// What every request passes.
    pub filters: Filters,
}

/// What every request passes besides authentication and authorization.
pub struct Filters {
    /// `--request-timeout`: how long a request may take that does not stay open.
    pub request_timeout: Duration,
    /// `--min-request-timeout`: how long a watch goes on at least whose client does not say.
    pub watch_time: Duration,
    /// How many are served at a time.
    pub fairness: fairness::Config,
    /// What is written down.
    pub audit: audit::Config,
}

impl Default for Filters {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(60),
            watch_time: Duration::from_secs(1800),
            fairness: fairness::Config::default(),
            audit: audit::Config::default(),
        }
    }
}

impl Config {
    /// A server on loopback, at a port that is free, with certificates that it makes in a folder: what differs is set after.
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
            admission: admission::Flags::default(),
            aggregator_routing: false,
            kubelets: Kubelets::default(),
            aggregation: aggregation::Config::default(),
            external_address: None,
            advertised: None,
            encryption: None,
            event_life: Duration::from_secs(3600),
            compaction_interval: Some(Duration::from_secs(300)),
            kinds: api::kinds::all(),
            filters: Filters::default(),
        }
    }
}

/// The authorizers that a flag can name, and those that an embedding program brings.
#[derive(Debug)]
pub enum Mode {
    /// Everything is allowed.
    AlwaysAllow,
    /// Nothing is.
    AlwaysDeny,
    /// Roles and bindings.
    Rbac,
    /// What kubelets may do.
    Node,
    /// A file of policies.
    Abac(auth::abac::Policies),
    /// Another server.
    Webhook(Box<authorization::Webhook>),
    /// Whatever decides in this process.
    Custom(Custom),
}

/// An authorizer that an embedding program brings.
pub struct Custom(pub Box<dyn auth::Authorizer>);

impl std::fmt::Debug for Custom {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Custom")
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken or not ours.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// Values cannot be encrypted as configured.
    #[error("values cannot be encrypted at rest")]
    Vault(#[from] vault::Error),
    /// A plug-in that asks another server has no way to it.
    #[error(transparent)]
    Webhooks(#[from] webhooks::ConfigError),
    /// A flag names a plug-in that does not exist.
    #[error(transparent)]
    Admission(#[from] admission::Unknown),
}

/// A running server; it stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    tasks: JoinSet<()>,
    connections: JoinHandle<()>,
    audits: audit::Carriers,
}

impl Server {
    /// Starts to listen, to fill the cache, and to make what a cluster starts with.
    pub async fn start(config: Config, store: Client) -> Result<Self, StartError> {
        let tls = Tls::new(&config.tls, &config.names, &config.addresses)?;
        let admission = admission::Chain::of(&config.admission)?;
        let webhooks = Webhooks::of(&admission, &config.admission)?;
        let listener = TcpListener::bind(config.address).await;
        let listener = listener.map_err(|error| StartError::Listen(config.address, error))?;
        let address = listener.local_addr().map_err(|error| StartError::Listen(config.address, error))?;
        let cache = Arc::new(Cache::new(&config.kinds, &[claims::port_kind()]));
        let layout = Layout { root: config.etcd_prefix };
        let mut tasks = JoinSet::new();
        let authorization = authorize(config.modes, &config.kinds, &cache, &mut tasks);
        let vault = match config.encryption {
            Some(file) => Some(Arc::new(Vault::open_file(file, layout.clone(), &config.kinds).await?)),
            None => None,
        };
        tasks.extend(vault.iter().map(|vault| vault.clone().run()));
        if let Some(interval) = config.compaction_interval {
            tasks.spawn(compaction::run(store.clone(), interval));
        }
        let store = Arc::new(Store::new(store, vault, config.event_life));
        tasks.spawn(cache::run(cache.clone(), store.clone(), layout.clone()));
        let metrics = Arc::new(Metrics::default());
        let (audit, audits) = Audit::start(config.filters.audit, metrics.clone());
        let state = Arc::new(State {
            table: RwLock::new(Arc::new(Table::new(config.kinds))),
            store,
            layout,
            cache,
            authenticators: config.authenticators,
            ranges: config.ranges,
            ports: claims::port_kind(),
            authorization: Arc::new(authorization),
            backends: Pools::new(Routing { to_endpoints: config.aggregator_routing, own: Some(own(address)) }),
            webhooks,
            aggregation: Aggregation::new(config.aggregation),
            followers: Followers::default(),
            kubelets: config.kubelets,
            admission,
            written: AtomicI64::new(0),
            advertised: config.advertised.map(|ip| SocketAddr::new(ip, address.port())),
            ending: watch::Sender::new(false),
            external_address: config.external_address.unwrap_or_else(|| address.to_string()),
            documents: Kept::default(),
            request_timeout: config.filters.request_timeout,
            watch_time: config.filters.watch_time,
            fairness: Fairness::new(config.filters.fairness),
            audit,
            metrics,
            startup: Startup::default(),
            health: Health::default(),
        });
        let starting = state.clone();
        tasks.spawn(async move {
            bootstrap::run(&starting).await;
            if let Some(own) = starting.advertised {
                presence::run(&starting, own).await;
            }
        });
        tasks.spawn(custom::run(state.clone()));
        tasks.spawn(aggregation::run(state.clone()));
        tasks.spawn(state.fairness.clone().run());
        tasks.spawn(fairness::settings::run(state.clone()));
        let connections = tokio::spawn(listen::accept(listener, Arc::new(tls), state.clone()));
        Ok(Self { address, state, tasks, connections, audits })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What its requests work with.
    pub const fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Stops everything: what was asked is answered first, as far as that takes no longer than a request may.
    pub async fn stop(mut self) {
        let drained = tokio::time::timeout(self.state.request_timeout, async {
            if let Some(own) = self.state.advertised
                && let Err(status) = presence::end(&self.state, own).await
            {
                tracing::warn!(message = %status.message, "the endpoints of the kubernetes service still show this server");
            }
            self.state.ending.send_replace(true);
            let _ = (&mut self.connections).await;
            std::mem::take(&mut self.audits).finish().await;
        });
        if drained.await.is_err() {
            tracing::warn!("not everything that was asked is answered; it is dropped");
        }
        self.tasks.shutdown().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.connections.abort();
    }
}

/// The authorizers in their order; those that follow objects do it in tasks.
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
                tasks.spawn(authorization::follow(cache.clone(), followed, node.clone()));
                authorization.add_node(node);
            }
            Mode::Rbac => {
                let policy = Arc::new(RwLock::<auth::rbac::Policy>::default());
                let followed = rows(kinds, |kind| kind.group == "rbac.authorization.k8s.io");
                tasks.spawn(authorization::follow(cache.clone(), followed, policy.clone()));
                authorization.add_rbac(policy);
            }
        }
    }
    authorization
}

/// Where the server reaches itself.
fn own(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn rows(kinds: &[Arc<Kind>], wanted: impl Fn(&Kind) -> bool) -> Vec<Arc<Kind>> {
    kinds.iter().filter(|kind| wanted(kind)).cloned().collect()
}
