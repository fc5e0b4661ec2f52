//! The HTTP proxy: serves a routing table, and decides nothing about API objects.
//!
//! ```text
//! accept ─> connection (PROXY protocol, TLS, HTTP) ─> handler ─> decision ─> dispatch ─> upstream (pool) ─> endpoint
//! ```
//!
//! Tables are replaced atomically. Requests in flight keep the table that they started with; connections outlive it.

mod access;
mod balance;
mod body;
mod certificate_names;
mod connect;
mod connection;
mod cors;
mod decision;
mod dispatch;
mod handler;
mod headers;
mod hosts;
mod http1;
mod matching;
mod metrics;
mod mirror;
mod proxy_protocol;
mod request_id;
mod request_limit;
mod rewrite;
mod state;
mod tls;
mod tunnel;
mod upstream;
mod woken;
mod workers;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

pub use self::headers::ForwardingTrust;
pub use self::http1::fuzz as http1_fuzz;
use self::state::{Port, Served, Shared};
use self::tls::ServerTls;
use self::upstream::{PoolLimits, Upstreams};
use self::workers::Workers;
use crate::routing::{ListenAddress, Listener, RoutingTable};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Attempts to bind an address that a removed listener may still hold.
const BIND_ATTEMPTS: usize = 5;
const BIND_RETRY: Duration = Duration::from_millis(20);

/// Settings of the proxy, fixed when it starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Addresses on which listeners without a specific address are opened.
    pub bind: Vec<IpAddr>,
    /// Lets other processes of this user listen on the same ports, so that a new instance can start before the old one
    /// stops.
    pub reuse_port: bool,
    /// Logs each request as JSON with the target `ingress::access`.
    pub access_log: bool,
    /// Open connections per bound address; further clients wait.
    pub connections_max: usize,
    /// Requests in flight of all connections; further ones are answered with 503.
    pub requests_max: usize,
    pub forwarding: ForwardingTrust,
    /// Time for the headers of a request, and for an idle HTTP/1 connection.
    pub header_timeout: Duration,
    pub handshake_timeout: Duration,
    /// Time after which a connection without requests is closed.
    pub keep_alive_timeout: Duration,
    /// Time without any byte in either direction, also in a tunnel.
    pub idle_timeout: Duration,
    /// Time without progress of a request body.
    pub body_timeout: Duration,
    pub headers_max: usize,
    pub header_bytes_max: u32,
    /// Concurrent HTTP/2 streams per connection.
    pub streams_max: u32,
    /// HTTP/2 streams that a client may reset before they are served, until its connection is closed.
    pub reset_streams_max: usize,
    pub connect_timeout: Duration,
    /// Idle connections kept per endpoint and CPU. A lower number than that of concurrent requests makes each burst open new
    /// connections, which costs more than the requests.
    pub pool_idle_max: usize,
    /// Longest time of an idle connection in the pool. It may be closed after half of it.
    pub pool_idle_timeout: Duration,
    /// Mirrored requests in flight.
    pub mirrors_max: usize,
    pub mirror_timeout: Duration,
    /// Time limit for the requests of a removed listener.
    pub drain_timeout: Duration,
}

/// A listener of the table that could not be opened. The others are served.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on port {}", address.port)]
pub struct BindError {
    pub address: ListenAddress,
    #[source]
    pub error: io::Error,
}

/// Owns the listeners and the current table.
pub struct Proxy {
    shared: Arc<Shared>,
    /// Held while a table is replaced.
    replacing: tokio::sync::Mutex<()>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    ports: BTreeMap<ListenAddress, OpenPort>,
    upstreams: Arc<Upstreams>,
    /// Closes idle connections to endpoints. Started with the first listener.
    sweeper: Option<JoinHandle<()>>,
    /// Serve the connections. Started with the first listener.
    workers: Option<Arc<Workers>>,
}

struct OpenPort {
    port: Arc<Port>,
    listeners: Vec<OpenListener>,
}

struct OpenListener {
    requested: IpAddr,
    bound: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            bind: vec![Ipv4Addr::UNSPECIFIED.into()],
            reuse_port: false,
            access_log: false,
            connections_max: 16_384,
            requests_max: 32_768,
            forwarding: ForwardingTrust::Replace,
            header_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(75),
            idle_timeout: Duration::from_secs(600),
            body_timeout: Duration::from_secs(60),
            headers_max: 100,
            header_bytes_max: 64 << 10,
            streams_max: 128,
            reset_streams_max: 20,
            connect_timeout: Duration::from_secs(5),
            pool_idle_max: 4096,
            pool_idle_timeout: Duration::from_secs(60),
            mirrors_max: 256,
            mirror_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Settings {
    fn pool_limits(&self) -> PoolLimits {
        PoolLimits { idle_connections_max: self.pool_idle_max, connect_timeout: self.connect_timeout }
    }
}

impl Proxy {
    /// Creates a proxy without listeners.
    pub fn new(settings: Settings) -> Proxy {
        Proxy {
            shared: Arc::new(Shared::new(settings)),
            replacing: tokio::sync::Mutex::default(),
            state: Arc::default(),
        }
    }

    /// Replaces the table. Opens new listeners, closes removed ones after their requests have ended, and keeps the
    /// connections of the others. Returns the ports that could not be opened; they are tried again with the next table.
    pub async fn replace(&self, table: RoutingTable) -> Vec<BindError> {
        let _only_one = self.replacing.lock().await;
        let previous = Arc::clone(&self.lock().upstreams);
        let upstreams = Arc::new(Upstreams::build(&table, &previous));
        self.close_removed(&table);
        let mut errors = Vec::new();
        for (address, listener) in table.listeners {
            let port = self.serve(address, listener, &upstreams);
            errors.extend(self.open_missing(&port).await);
        }
        previous.retire_missing(&upstreams);
        let mut state = self.lock();
        state.upstreams = upstreams;
        if !state.ports.is_empty() && state.sweeper.is_none() {
            let sweeping = sweep(Arc::clone(&self.state), self.shared.settings.pool_idle_timeout);
            state.sweeper = Some(tokio::spawn(sweeping.in_current_span()));
        }
        errors
    }

    /// Returns the bound addresses with the port of their listener in the table. Port 0 stands for any free port.
    pub fn addresses(&self) -> Vec<(u16, SocketAddr)> {
        let state = self.lock();
        let of_port = |(address, open): (&ListenAddress, &OpenPort)| {
            open.listeners.iter().map(|listener| (address.port, listener.bound)).collect::<Vec<_>>()
        };
        state.ports.iter().flat_map(of_port).collect()
    }

    /// Returns all metrics in the Prometheus text format.
    pub fn metrics(&self) -> String {
        self.shared.metrics.text(self.shared.requests.in_flight())
    }

    /// Stops accepting connections, waits for the requests in flight until the deadline, then closes all connections.
    pub async fn shutdown(&self, deadline: Duration) {
        let _only_one = self.replacing.lock().await;
        let (ports, sweeper) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.ports), state.sweeper.take())
        };
        if let Some(sweeper) = sweeper {
            sweeper.abort();
        }
        let end = Instant::now() + deadline;
        for open in ports.values() {
            open.port.drain.cancel();
        }
        for open in ports.into_values() {
            open.close(end).await;
        }
        let mut state = self.lock();
        state.upstreams.retire_missing(&Upstreams::default());
        state.upstreams = Arc::default();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn close_removed(&self, table: &RoutingTable) {
        let mut state = self.lock();
        let removed: Vec<ListenAddress> =
            state.ports.keys().filter(|address| !table.listeners.contains_key(address)).copied().collect();
        for open in removed.iter().filter_map(|address| state.ports.remove(address)) {
            open.port.drain.cancel();
            let end = Instant::now() + self.shared.settings.drain_timeout;
            tokio::spawn(open.close(end).in_current_span());
        }
    }

    /// Makes a port serve a listener.
    fn serve(&self, address: ListenAddress, listener: Listener, upstreams: &Arc<Upstreams>) -> Arc<Port> {
        let mut state = self.lock();
        let current = state.ports.get(&address).map(|open| open.port.served());
        let current = current.as_ref().and_then(|served| served.tls.as_ref());
        let tls = listener.tls.as_ref().and_then(|tls| {
            let built = ServerTls::build(tls, current);
            built.inspect_err(|error| tracing::error!(port = address.port, %error, "TLS cannot be configured")).ok()
        });
        let served = Served { listener, tls, upstreams: Arc::clone(upstreams) };
        if let Some(open) = state.ports.get(&address) {
            open.port.replace(served);
            return Arc::clone(&open.port);
        }
        let port = Arc::new(Port::new(address, served));
        state.ports.insert(address, OpenPort { port: Arc::clone(&port), listeners: Vec::new() });
        port
    }

    /// Opens the addresses of a port that are not open yet.
    async fn open_missing(&self, port: &Arc<Port>) -> Vec<BindError> {
        let mut errors = Vec::new();
        let own = port.address.ip.as_ref().map(std::slice::from_ref);
        for address in own.unwrap_or(&self.shared.settings.bind) {
            let is_open = |open: &OpenPort| open.listeners.iter().any(|listener| listener.requested == *address);
            if self.lock().ports.get(&port.address).is_some_and(is_open) {
                continue;
            }
            let socket = SocketAddr::new(*address, port.address.port);
            let bound = bind(socket, self.shared.settings.reuse_port).await;
            match bound.and_then(|(listener, bound)| Ok((listener, bound, self.workers()?))) {
                Ok((listener, bound, workers)) => {
                    let accepting = tokio::spawn(self.accept(listener, port, workers).in_current_span());
                    let opened = OpenListener { requested: *address, bound, accepting };
                    if let Some(open) = self.lock().ports.get_mut(&port.address) {
                        open.listeners.push(opened);
                    }
                    tracing::info!(address = %bound, "the ingress proxy listens");
                }
                Err(error) => errors.push(BindError { address: port.address, error }),
            }
        }
        errors
    }

    /// Returns the workers, which are started if there are none.
    fn workers(&self) -> io::Result<Arc<Workers>> {
        let mut state = self.lock();
        let workers = match state.workers.take() {
            Some(workers) => workers,
            None => Arc::new(Workers::start()?),
        };
        Ok(Arc::clone(state.workers.insert(workers)))
    }

    fn accept(
        &self,
        listener: TcpListener,
        port: &Arc<Port>,
        workers: Arc<Workers>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (shared, port) = (Arc::clone(&self.shared), Arc::clone(port));
        let ending = port.drain.clone().cancelled_owned();
        async move {
            let connections_max = shared.settings.connections_max;
            component_base::accept(listener, connections_max, ending, |stream, from, slot| {
                let (shared, port, workers) = (Arc::clone(&shared), Arc::clone(&port), Arc::clone(&workers));
                async move {
                    // The stream moves to the runtime of the worker.
                    let Ok(stream) = stream.into_std() else { return };
                    let serving = async move {
                        let Ok(stream) = TcpStream::from_std(stream) else { return };
                        connection::serve(stream, from, slot, shared, port).await;
                    };
                    let _ = workers.spawn(serving).await;
                }
            })
            .await;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.lock();
        if let Some(sweeper) = state.sweeper.take() {
            sweeper.abort();
        }
        for open in state.ports.values() {
            open.port.drain.cancel();
            open.port.close.cancel();
        }
    }
}

impl OpenPort {
    /// Waits for the connections of a drained port until `end`, then closes them.
    async fn close(self, end: Instant) {
        for mut listener in self.listeners {
            if tokio::time::timeout_at(end, &mut listener.accepting).await.is_err() {
                listener.accepting.abort();
                let _ = listener.accepting.await;
            }
        }
        self.port.tunnels.close();
        let _ = tokio::time::timeout_at(end, self.port.tunnels.wait()).await;
        self.port.close.cancel();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<(TcpListener, SocketAddr)> {
    let mut attempt = 1;
    loop {
        match listen(address, reuse_port) {
            Ok(listener) => {
                let bound = listener.local_addr()?;
                return Ok((listener, bound));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < BIND_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(BIND_RETRY).await;
    }
}

fn listen(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(reuse_port)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Closes connections to endpoints that are idle for too long.
async fn sweep(state: Arc<Mutex<State>>, idle_timeout: Duration) {
    loop {
        // A connection is closed by the second call after its last request.
        tokio::time::sleep(idle_timeout / 2).await;
        let upstreams = Arc::clone(&lock(&state).upstreams);
        upstreams.close_idle();
    }
}
