//! Forwards TCP connections and UDP datagrams between clients and endpoints.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Instrument;

use crate::endpoints::EndpointAddr;
use crate::service_state::{Backend, Forwarding, Frontend, FrontendKind};
use crate::settings::Settings;

use super::balance::Balance;

/// Connect timeouts of successive endpoints, as in upstream's userspace proxy.
const TIMEOUT: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// Maximum concurrent connections per frontend; others wait in the listen queue.
const CONNECTIONS_MAX: usize = 4_096;
/// Maximum UDP clients per frontend; idle ones expire after `CLIENT_IDLE`, as in conntrack.
const CLIENTS_MAX: usize = 4_096;
const CLIENT_IDLE: Duration = Duration::from_secs(120);
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// A frontend with its backend.
#[derive(Debug)]
pub(super) struct Front {
    frontend: Frontend,
    backend: RwLock<Backend>,
    balance: Mutex<Balance>,
    pub settings: RwLock<Arc<Settings>>,
}

impl Front {
    pub(super) fn new(frontend: Frontend, backend: Backend, settings: Arc<Settings>) -> Self {
        Self { frontend, backend: RwLock::new(backend), balance: Mutex::default(), settings: RwLock::new(settings) }
    }

    pub(super) fn set(&self, backend: Backend) {
        *self.backend.write().unwrap_or_else(PoisonError::into_inner) = backend;
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.backend.read().unwrap_or_else(PoisonError::into_inner).name)
    }

    pub(super) fn entrance(&self) -> FrontendKind {
        self.backend.read().unwrap_or_else(PoisonError::into_inner).entrance
    }

    /// Whether some client can reach an endpoint.
    pub(super) fn leads_somewhere(&self) -> bool {
        let backend = self.backend.read().unwrap_or_else(PoisonError::into_inner);
        !backend.places().is_empty()
    }

    /// Selects an endpoint for a client; `None` if the client is not allowed or no endpoint is available.
    fn pick(&self, client: IpAddr) -> Option<EndpointAddr> {
        let backend = self.backend.read().unwrap_or_else(PoisonError::into_inner);
        if !backend.allowed.is_empty() && !backend.allowed.iter().any(|range| range.contains(client)) {
            return None;
        }
        let way = backend.internal.as_ref().filter(|_| self.is_internal(client)).unwrap_or(&backend.outside);
        let Forwarding::Endpoints { places, affinity_seconds, .. } = way else { return None };
        let mut balance = self.balance.lock().unwrap_or_else(PoisonError::into_inner);
        balance.pick(places, *affinity_seconds, client, Instant::now())
    }

    /// Whether a client is this node or a pod. Local connections to an address of the node have that address as source.
    fn is_internal(&self, client: IpAddr) -> bool {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        client == self.frontend.address
            || client.is_loopback()
            || settings.node_addresses.contains(&client)
            || settings.pods.iter().any(|pods| pods.contains(client))
    }

    fn is_endpoint(&self, endpoint: EndpointAddr) -> bool {
        self.backend.read().unwrap_or_else(PoisonError::into_inner).places().contains(&endpoint)
    }

    fn remove_affinity(&self, client: IpAddr) {
        self.balance.lock().unwrap_or_else(PoisonError::into_inner).remove_affinity(client);
    }
}

/// Forwards the connections of a listening socket.
pub(super) async fn streams(listener: TcpListener, front: Arc<Front>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, from)) => {
                let front = Arc::clone(&front);
                // An established connection continues after its frontend is removed.
                let task = async move {
                    if let Err(error) = carry(stream, from.ip(), &front).await {
                        tracing::debug!(%error, %from, service = %front.name(), "connection failed");
                    }
                    drop(permit);
                };
                tokio::spawn(task.in_current_span());
            }
            Err(error) => {
                tracing::warn!(%error, service = %front.name(), "failed to accept a connection");
                // Usually out of file descriptors: wait until other connections close.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn carry(mut client: TcpStream, from: IpAddr, front: &Front) -> io::Result<()> {
    let Some(mut endpoint) = reach(front, from).await else { return Ok(()) };
    client.set_nodelay(true)?;
    endpoint.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut endpoint).await.map(drop)
}

/// Connects to an endpoint; tries another if one does not respond.
async fn reach(front: &Front, client: IpAddr) -> Option<TcpStream> {
    for time_limit in TIMEOUT {
        let endpoint = front.pick(client)?;
        match timeout(time_limit, TcpStream::connect(SocketAddr::from(endpoint))).await {
            Ok(Ok(stream)) => return Some(stream),
            failed => {
                tracing::debug!(?failed, ?endpoint, service = %front.name(), "failed to connect to the endpoint");
                front.remove_affinity(client);
            }
        }
    }
    None
}

/// A UDP client with its endpoint.
struct Client {
    endpoint: EndpointAddr,
    socket: Arc<UdpSocket>,
}

type Clients = Arc<Mutex<BTreeMap<SocketAddr, Client>>>;

/// Forwards the datagrams of a socket.
pub(super) async fn packets(socket: Arc<UdpSocket>, front: Arc<Front>) {
    let clients = Clients::default();
    let mut replies = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        while replies.try_join_next().is_some() {}
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let known = clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&from)
            .map(|it| (it.endpoint, Arc::clone(&it.socket)));
        let endpoint = match known.filter(|(address, _)| front.is_endpoint(*address)) {
            Some((_, endpoint)) => endpoint,
            None => match introduce(&front, &clients, from).await {
                Some(endpoint) => {
                    let reply_task =
                        forward_replies(Arc::clone(&socket), Arc::clone(&endpoint), from, Arc::clone(&clients));
                    replies.spawn(reply_task.in_current_span());
                    endpoint
                }
                None => continue,
            },
        };
        // An error is ignored: if the endpoint was removed, the next change selects another.
        let _ = endpoint.send(&buffer[..length]).await;
    }
}

async fn introduce(front: &Front, clients: &Clients, from: SocketAddr) -> Option<Arc<UdpSocket>> {
    let endpoint = front.pick(from.ip())?;
    let any: SocketAddr = if from.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let socket = Arc::new(UdpSocket::bind(any).await.ok()?);
    socket.connect(SocketAddr::from(endpoint)).await.ok()?;
    let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
    if clients.len() >= CLIENTS_MAX && !clients.contains_key(&from) {
        return None;
    }
    clients.insert(from, Client { endpoint, socket: Arc::clone(&socket) });
    Some(socket)
}

/// Forwards replies until the client is idle or got another endpoint.
async fn forward_replies(socket: Arc<UdpSocket>, endpoint: Arc<UdpSocket>, to: SocketAddr, clients: Clients) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        match timeout(CLIENT_IDLE, endpoint.recv(&mut buffer)).await {
            Ok(Ok(length)) => drop(socket.send_to(&buffer[..length], to).await),
            // The endpoint was temporarily not listening.
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Ok(Err(_)) | Err(_) => break,
        }
        if !is_current(&clients, to, &endpoint) {
            return;
        }
    }
    let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
    if clients.get(&to).is_some_and(|client| Arc::ptr_eq(&client.socket, &endpoint)) {
        clients.remove(&to);
    }
}

fn is_current(clients: &Clients, of: SocketAddr, endpoint: &Arc<UdpSocket>) -> bool {
    let clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
    clients.get(&of).is_some_and(|client| Arc::ptr_eq(&client.socket, endpoint))
}
