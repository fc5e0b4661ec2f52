//! Listens, and hands questions to whoever knows.

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

use crate::clients::{ANSWER_COST, Clients, FORWARD_COST};
use crate::forward::Forwarder;
use crate::message::{Next, Transport, Unfinished, encode, respond};
use crate::metrics::Metrics;
use crate::zone::Zone;

/// A client that says nothing for so long has gone.
const IDLE: Duration = Duration::from_secs(10);
/// How many connections there are at once.
const CONNECTIONS_MAX: usize = 512;
/// How many questions that came in packets wait for others at once.
const WAITING_MAX: usize = 1024;

/// What answers share.
pub struct Knowledge {
    /// The cluster.
    pub zone: RwLock<Zone>,
    /// The rest of the world.
    pub forwarder: Forwarder,
    /// Who may ask.
    pub clients: Clients,
    /// What was asked and answered.
    pub metrics: Metrics,
    turn: AtomicUsize,
}

/// Sockets that questions come to.
pub struct Listeners(Vec<(UdpSocket, TcpListener)>);

impl Knowledge {
    /// The cluster, whom to ask about the rest, and who may ask.
    pub fn new(zone: Zone, forwarder: Forwarder, clients: Clients) -> Self {
        Self { zone: RwLock::new(zone), forwarder, clients, metrics: Metrics::default(), turn: AtomicUsize::new(0) }
    }

    /// Whether a client belongs to the cluster and keeps to its rate.
    fn admits(&self, from: SocketAddr, cost: u32) -> bool {
        let now = Instant::now();
        let admitted = self.clients.includes(from.ip(), now) && self.clients.spend(from.ip(), cost, now);
        if !admitted {
            self.metrics.refused();
        }
        admitted
    }

    fn respond(&self, bytes: &[u8], transport: Transport) -> Next {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        respond(&self.zone.read().unwrap_or_else(PoisonError::into_inner), bytes, transport, turn)
    }

    /// Finds the rest of an answer.
    async fn complete(&self, unfinished: Unfinished, transport: Transport) -> Vec<u8> {
        let Unfinished { request, mut reply, question } = unfinished;
        reply.answers.extend(self.forwarder.ask(&question, &self.metrics).await.answers);
        encode(&reply, &request, transport)
    }

    async fn forward(&self, request: &Message, transport: Transport) -> Vec<u8> {
        encode(&self.forwarder.ask(request, &self.metrics).await, request, transport)
    }
}

impl Listeners {
    /// Takes these addresses, for packets and connections. Each is one of the machine's, not all of them, so that answers
    /// come from where questions went.
    pub async fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let mut listeners = Vec::with_capacity(addresses.len());
        for address in addresses {
            let udp = UdpSocket::bind(address).await?;
            let tcp = TcpListener::bind(udp.local_addr()?).await?;
            listeners.push((udp, tcp));
        }
        Ok(Self(listeners))
    }

    /// Where they are.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.0.iter().map(|(udp, _)| udp.local_addr()).collect()
    }

    /// Answers for as long as it is polled.
    pub async fn serve(self, knowledge: Arc<Knowledge>) {
        let mut tasks = JoinSet::new();
        for (udp, tcp) in self.0 {
            tasks.spawn(packets(Arc::new(udp), Arc::clone(&knowledge)));
            tasks.spawn(connections(tcp, Arc::clone(&knowledge)));
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
                // Somebody whom we answered is no longer there: nothing that concerns the next.
                tracing::debug!(%error, "a packet was lost");
                continue;
            }
        };
        // Not even a refusal: an answer to a sender who is not who they claim to be would hit somebody else.
        if !knowledge.admits(from, ANSWER_COST) {
            continue;
        }
        let begun = Instant::now();
        match knowledge.respond(&buffer[..length], Transport::Udp) {
            Next::Ignore => {}
            Next::Reply(bytes) => {
                send(&socket, &bytes, from).await;
                knowledge.metrics.answered(&buffer[..length], &bytes, Transport::Udp, begun.elapsed());
            }
            next @ (Next::Forward(_) | Next::Complete(_)) => {
                if !knowledge.admits(from, FORWARD_COST) {
                    continue;
                }
                let Ok(permit) = Arc::clone(&waiting).try_acquire_owned() else { continue };
                let (socket, knowledge) = (Arc::clone(&socket), Arc::clone(&knowledge));
                let asked = buffer[..length].to_vec();
                tokio::spawn(async move {
                    let reply = match next {
                        Next::Complete(unfinished) => knowledge.complete(*unfinished, Transport::Udp).await,
                        Next::Forward(request) => knowledge.forward(&request, Transport::Udp).await,
                        Next::Reply(_) | Next::Ignore => return,
                    };
                    send(&socket, &reply, from).await;
                    knowledge.metrics.answered(&asked, &reply, Transport::Udp, begun.elapsed());
                    drop(permit);
                });
            }
        }
    }
}

async fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send_to(bytes, to).await {
        tracing::debug!(%error, %to, "an answer was lost");
    }
}

async fn connections(listener: TcpListener, knowledge: Arc<Knowledge>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, from)) => {
                let knowledge = Arc::clone(&knowledge);
                tokio::spawn(async move {
                    if !knowledge.admits(from, ANSWER_COST) {
                        return;
                    }
                    if let Some(_place) = knowledge.clients.connect(from.ip(), Instant::now()) {
                        // A connection that breaks is the client's business.
                        let _ = converse(stream, from, &knowledge).await;
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection");
                // Out of descriptors, mostly: others must go first.
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
        let begun = Instant::now();
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
        knowledge.metrics.answered(&bytes, &reply, Transport::Tcp, begun.elapsed());
        let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
        timeout(IDLE, stream.write_all(&[&length.to_be_bytes(), reply.as_slice()].concat())).await??;
    }
}
