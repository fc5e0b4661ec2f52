//! Upstreams: the endpoints of backends with their connection pools, which outlive the table that named them.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2;

use super::balance;
use super::body::Body;
use super::connect::{self, ClientTls, ConnectError, Connection, Wire};
use super::http1;
use super::workers;
use crate::routing::{Action, Backend, BackendProtocol, BackendTarget, Filter, RoutingTable};

/// Limits of the connection pool of each endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolLimits {
    pub idle_connections_max: usize,
    pub connect_timeout: Duration,
}

/// All upstreams of a table.
#[derive(Default)]
pub(super) struct Upstreams {
    /// By the memory address of the backend in the table. It stays unique because each upstream holds its backend.
    by_backend: HashMap<usize, Arc<Upstream>>,
    endpoints: Registry,
}

/// Endpoints by backend name and address; several differ in protocol.
type Registry = BTreeMap<(String, SocketAddr), Vec<Arc<Endpoint>>>;

/// One backend.
pub(super) struct Upstream {
    backend: Arc<Backend>,
    endpoints: Vec<Arc<Endpoint>>,
    turn: AtomicUsize,
}

/// One endpoint of a backend.
pub(super) struct Endpoint {
    address: SocketAddr,
    protocol: BackendProtocol,
    /// `None` for plain HTTP; an error for settings that cannot be used.
    tls: Option<Result<Arc<ClientTls>, ()>>,
    active: AtomicUsize,
    retired: AtomicBool,
    /// One pool per worker, whose runtime drives its connections.
    idle: Vec<Mutex<Vec<IdleConnection>>>,
    /// Number of calls that closed idle connections: a clock that costs nothing to read.
    sweeps: AtomicUsize,
    multiplexed: Mutex<Option<http2::SendRequest<Body>>>,
    connecting: tokio::sync::Mutex<()>,
}

struct IdleConnection {
    stream: http1::Stream,
    /// The sweeps of the endpoint when it became idle.
    since: usize,
}

/// The pool of an endpoint, which takes an HTTP/1 connection when its response has ended.
pub(super) struct Pool {
    endpoint: Arc<Endpoint>,
    limits: PoolLimits,
}

/// A request in flight, counted as load of its endpoint.
pub(super) struct Load(Arc<Endpoint>);

impl Upstreams {
    /// Creates the upstreams of a table. Endpoints of the current upstreams keep their connections.
    pub(super) fn build(table: &RoutingTable, current: &Upstreams) -> Upstreams {
        let mut made = Upstreams::default();
        for backend in backends(table) {
            let key = Arc::as_ptr(backend).addr();
            if !made.by_backend.contains_key(&key) {
                let upstream = made.upstream(backend, current);
                made.by_backend.insert(key, Arc::new(upstream));
            }
        }
        made
    }

    pub(super) fn find(&self, backend: &Arc<Backend>) -> Option<&Arc<Upstream>> {
        self.by_backend.get(&Arc::as_ptr(backend).addr())
    }

    /// Retires the endpoints that `next` no longer has.
    pub(super) fn retire_missing(&self, next: &Upstreams) {
        for (key, endpoints) in &self.endpoints {
            let kept = next.endpoints.get(key).map(Vec::as_slice).unwrap_or_default();
            for endpoint in endpoints.iter().filter(|one| !kept.iter().any(|other| Arc::ptr_eq(one, other))) {
                endpoint.retire();
            }
        }
    }

    /// Closes connections that were idle since the last but one call, or that the endpoint closed.
    pub(super) fn close_idle(&self) {
        for endpoint in self.endpoints.values().flatten() {
            let sweep = endpoint.sweeps.fetch_add(1, Ordering::Relaxed);
            for pool in &endpoint.idle {
                lock(pool).retain_mut(|idle| idle.since == sweep && idle.stream.is_idle());
            }
        }
    }

    fn upstream(&mut self, backend: &Arc<Backend>, current: &Upstreams) -> Upstream {
        let mut tls = None;
        let endpoints = backend.endpoints.iter().map(|address| {
            let key = (backend.name.clone(), *address);
            let known = |registry: &Registry| {
                let all = registry.get(&key).map(Vec::as_slice).unwrap_or_default();
                all.iter().find(|endpoint| endpoint.protocol == backend.protocol).cloned()
            };
            if let Some(endpoint) = known(&self.endpoints) {
                return endpoint;
            }
            let endpoint = known(&current.endpoints).unwrap_or_else(|| {
                let tls = tls.get_or_insert_with(|| client_tls(backend)).clone();
                Arc::new(Endpoint::new(*address, backend.protocol.clone(), tls))
            });
            self.endpoints.entry(key).or_default().push(Arc::clone(&endpoint));
            endpoint
        });
        let endpoints = endpoints.collect();
        let turn = current.find(backend).map_or(0, |upstream| upstream.turn.load(Ordering::Relaxed));
        Upstream { backend: Arc::clone(backend), endpoints, turn: AtomicUsize::new(turn) }
    }
}

impl Upstream {
    pub(super) fn name(&self) -> &str {
        &self.backend.name
    }

    pub(super) fn protocol(&self) -> &BackendProtocol {
        &self.backend.protocol
    }

    /// Chooses an endpoint that was not tried yet.
    pub(super) fn choose(&self, tried: &[usize]) -> Option<(usize, &Arc<Endpoint>)> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let load = |index: usize| self.endpoints[index].active.load(Ordering::Relaxed);
        let index = balance::choose_endpoint(self.endpoints.len(), load, turn, tried)?;
        Some((index, &self.endpoints[index]))
    }
}

impl Endpoint {
    fn new(address: SocketAddr, protocol: BackendProtocol, tls: Option<Result<Arc<ClientTls>, ()>>) -> Endpoint {
        Endpoint {
            address,
            protocol,
            tls,
            active: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            idle: (0..workers::count()).map(|_| Mutex::default()).collect(),
            sweeps: AtomicUsize::new(0),
            multiplexed: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counts a request until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Load {
        self.active.fetch_add(1, Ordering::Relaxed);
        Load(Arc::clone(self))
    }

    /// Returns an idle connection of the pool, if there is one.
    pub(super) fn pooled(&self, wire: Wire) -> Option<Connection> {
        match wire {
            Wire::Http1 => {
                let mut idle = lock(self.own_pool());
                // The most recent connection is the least likely to be closed by the endpoint.
                while let Some(mut last) = idle.pop() {
                    if last.stream.is_idle() {
                        return Some(Connection::Http1(last.stream));
                    }
                }
                None
            }
            Wire::Http2 => {
                let mut multiplexed = lock(&self.multiplexed);
                multiplexed.take_if(|sender| sender.is_closed());
                multiplexed.clone().map(Connection::Http2)
            }
        }
    }

    /// Opens a connection.
    pub(super) async fn connect(&self, wire: Wire, limits: &PoolLimits) -> Result<Connection, ConnectError> {
        let tls = match &self.tls {
            None => None,
            Some(Ok(tls)) => Some(&**tls),
            Some(Err(())) => return Err(ConnectError::TlsSettings),
        };
        let connecting = async {
            let _only_one = match wire {
                Wire::Http1 => None,
                Wire::Http2 => Some(self.connecting.lock().await),
            };
            if let Some(opened) = self.pooled(wire).filter(|_| wire == Wire::Http2) {
                return Ok(opened);
            }
            let opened = connect::connect(self.address, tls, wire).await?;
            if let Connection::Http2(sender) = &opened {
                self.share(sender);
            }
            Ok(opened)
        };
        let opened = tokio::time::timeout(limits.connect_timeout, connecting).await;
        opened.unwrap_or(Err(ConnectError::Timeout(self.address)))
    }

    fn own_pool(&self) -> &Mutex<Vec<IdleConnection>> {
        &self.idle[workers::current()]
    }

    pub(super) fn pool(self: &Arc<Self>, limits: PoolLimits) -> Pool {
        Pool { endpoint: Arc::clone(self), limits }
    }

    fn share(&self, sender: &http2::SendRequest<Body>) {
        let mut multiplexed = lock(&self.multiplexed);
        if !self.retired.load(Ordering::Acquire) {
            *multiplexed = Some(sender.clone());
        }
    }

    /// Closes idle connections. Those in use close after their requests.
    fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        for pool in &self.idle {
            lock(pool).clear();
        }
        lock(&self.multiplexed).take();
    }
}

impl http1::Recycle for Pool {
    fn put(&self, stream: http1::Stream) {
        let mut idle = lock(self.endpoint.own_pool());
        // Checked under the lock, which `retire` takes after it sets the flag.
        let is_retired = self.endpoint.retired.load(Ordering::Acquire);
        if !is_retired && idle.len() < self.limits.idle_connections_max {
            let since = self.endpoint.sweeps.load(Ordering::Relaxed);
            idle.push(IdleConnection { stream, since });
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Locks a value that stays valid when a holder panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn client_tls(backend: &Backend) -> Option<Result<Arc<ClientTls>, ()>> {
    let BackendProtocol::Https(settings) = &backend.protocol else { return None };
    let built = ClientTls::build(settings).map(Arc::new).map_err(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(backend = backend.name, error, "the TLS settings of a backend cannot be used");
    });
    Some(built)
}

/// Returns all backends of a table.
fn backends(table: &RoutingTable) -> impl Iterator<Item = &Arc<Backend>> {
    let routes = table.listeners.values().flat_map(|listener| listener.hosts.values()).flat_map(|host| &host.routes);
    routes.flat_map(|route| {
        let forwards = match &route.action {
            Action::Forward(backends) => backends.as_slice(),
            Action::Redirect(_) | Action::Respond(_) | Action::Answer(_) => &[],
        };
        let filters = route.filters.iter().chain(forwards.iter().flat_map(|backend| &backend.filters));
        let mirrors = filters.filter_map(|filter| match filter {
            Filter::Mirror(mirror) => Some(&mirror.target),
            Filter::ModifyRequestHeaders(_) | Filter::ModifyResponseHeaders(_) | Filter::RewriteUrl { .. } => None,
        });
        forwards.iter().map(|backend| &backend.target).chain(mirrors).filter_map(|target| match target {
            BackendTarget::Endpoints(backend) => Some(backend),
            BackendTarget::Status(_) => None,
        })
    })
}
