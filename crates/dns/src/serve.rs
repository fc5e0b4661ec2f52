//! DNS server sockets: receives queries over UDP and TCP and dispatches them.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hickory_proto::op::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Instrument;

use crate::clients::{ANSWER_COST, Clients, FORWARD_COST};
use crate::forward::Forwarder;
use crate::message::{Next, PartialAnswer, Transport, encode, respond};
use crate::metrics::Metrics;
use crate::zone::Zone;

/// Idle timeout of a connection.
const IDLE: Duration = Duration::from_secs(10);
/// Maximum concurrent connections.
const CONNECTIONS_MAX: usize = 512;
/// Maximum concurrent UDP queries that wait for other resolvers.
const WAITING_MAX: usize = 1024;

/// State shared by all queries.
pub struct Knowledge {
    pub zone: RwLock<Zone>,
    /// Resolves external names.
    pub forwarder: Forwarder,
    pub clients: Clients,
    pub metrics: Metrics,
    turn: AtomicUsize,
}

/// Bound UDP and TCP sockets.
pub struct Listeners(Vec<(UdpSocket, TcpListener)>);

impl Knowledge {
    pub fn new(zone: Zone, forwarder: Forwarder, clients: Clients) -> Self {
        Self { zone: RwLock::new(zone), forwarder, clients, metrics: Metrics::default(), turn: AtomicUsize::new(0) }
    }

    /// Whether a client belongs to the cluster and is within its rate limit.
    fn admits(&self, from: SocketAddr, cost: u32) -> bool {
        let now = Instant::now();
        let admitted = self.clients.includes(from.ip(), now) && self.clients.spend(from.ip(), cost, now);
        if !admitted {
            self.metrics.count_dropped();
        }
        admitted
    }

    fn respond(&self, bytes: &[u8], transport: Transport) -> Next {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        respond(&self.zone.read().unwrap_or_else(PoisonError::into_inner), bytes, transport, turn)
    }

    /// Completes an answer that leads to an external name.
    async fn complete(&self, unfinished: PartialAnswer, transport: Transport) -> Vec<u8> {
        let PartialAnswer { request, mut reply, question } = unfinished;
        reply.answers.extend(self.forwarder.resolve(&question, &self.metrics).await.answers);
        encode(&reply, &request, transport)
    }

    async fn forward(&self, request: &Message, transport: Transport) -> Vec<u8> {
        encode(&self.forwarder.resolve(request, &self.metrics).await, request, transport)
    }
}

impl Listeners {
    /// Binds these addresses for UDP and TCP. Each must be a specific address, so that replies have the destination of
    /// the query as source.
    pub async fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let mut listeners = Vec::with_capacity(addresses.len());
        for address in addresses {
            let udp = UdpSocket::bind(address).await?;
            let tcp = TcpListener::bind(udp.local_addr()?).await?;
            listeners.push((udp, tcp));
        }
        Ok(Self(listeners))
    }

    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.0.iter().map(|(udp, _)| udp.local_addr()).collect()
    }

    /// Serves for as long as the future is polled.
    pub async fn serve(self, knowledge: Arc<Knowledge>) {
        let mut tasks = JoinSet::new();
        for (udp, tcp) in self.0 {
            tasks.spawn(packets(Arc::new(udp), Arc::clone(&knowledge)).in_current_span());
            tasks.spawn(connections(tcp, Arc::clone(&knowledge)).in_current_span());
        }
        while tasks.join_next().await.is_some() {}
    }
}

async fn packets(socket: Arc<UdpSocket>, knowledge: Arc<Knowledge>) {
    let waiting = Arc::new(Semaphore::new(WAITING_MAX));
    let mut buffer = vec![0; 65_535];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                // An ICMP error of an earlier reply; the next packet is not affected.
                tracing::debug!(%error, "failed to receive a packet");
                continue;
            }
        };
        // No reply, not even REFUSED: a spoofed source would direct it to a third party.
        if !knowledge.admits(from, ANSWER_COST) {
            continue;
        }
        let started = Instant::now();
        match knowledge.respond(&buffer[..length], Transport::Udp) {
            Next::Ignore => {}
            Next::Reply(bytes) => {
                send(&socket, &bytes, from).await;
                knowledge.metrics.count_response(&buffer[..length], &bytes, Transport::Udp, started.elapsed());
            }
            next @ (Next::Forward(_) | Next::Complete(_)) => {
                if !knowledge.admits(from, FORWARD_COST) {
                    continue;
                }
                let Ok(permit) = Arc::clone(&waiting).try_acquire_owned() else { continue };
                let (socket, knowledge) = (Arc::clone(&socket), Arc::clone(&knowledge));
                let query_bytes = buffer[..length].to_vec();
                let task = async move {
                    let reply = match next {
                        Next::Complete(unfinished) => knowledge.complete(*unfinished, Transport::Udp).await,
                        Next::Forward(request) => knowledge.forward(&request, Transport::Udp).await,
                        Next::Reply(_) | Next::Ignore => return,
                    };
                    send(&socket, &reply, from).await;
                    knowledge.metrics.count_response(&query_bytes, &reply, Transport::Udp, started.elapsed());
                    drop(permit);
                };
                tokio::spawn(task.in_current_span());
            }
        }
    }
}

async fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send_to(bytes, to).await {
        tracing::debug!(%error, %to, "failed to send a reply");
    }
}

async fn connections(listener: TcpListener, knowledge: Arc<Knowledge>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, from)) => {
                let knowledge = Arc::clone(&knowledge);
                let task = async move {
                    if !knowledge.admits(from, ANSWER_COST) {
                        return;
                    }
                    if let Some(_slot) = knowledge.clients.connect(from.ip(), Instant::now()) {
                        // A broken connection only affects its client.
                        let _ = converse(stream, from, &knowledge).await;
                    }
                    drop(permit);
                };
                tokio::spawn(task.in_current_span());
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                // Usually out of file descriptors: wait until other connections close.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(mut stream: TcpStream, from: SocketAddr, knowledge: &Knowledge) -> io::Result<()> {
    loop {
        let length = timeout(IDLE, stream.read_u16()).await??;
        let mut bytes = vec![0; usize::from(length)];
        timeout(IDLE, stream.read_exact(&mut bytes)).await??;
        let started = Instant::now();
        let reply = match knowledge.respond(&bytes, Transport::Tcp) {
            Next::Ignore => return Ok(()),
            Next::Reply(reply) => {
                if !knowledge.admits(from, ANSWER_COST) {
                    return Ok(());
                }
                reply
            }
            _ if !knowledge.admits(from, FORWARD_COST) => return Ok(()),
            Next::Forward(request) => knowledge.forward(&request, Transport::Tcp).await,
            Next::Complete(unfinished) => knowledge.complete(*unfinished, Transport::Tcp).await,
        };
        knowledge.metrics.count_response(&bytes, &reply, Transport::Tcp, started.elapsed());
        let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
        timeout(IDLE, stream.write_all(&[&length.to_be_bytes(), reply.as_slice()].concat())).await??;
    }
}
