//! Outgoing peer connections: one link per member, and streams for snapshots.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use consensus::{Group, Message, Peer};
use mvcc::State;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tracing::Instrument;

use super::frame::{Frame, Greeting, Purpose, WELCOME, put_frame, read_frame};
use super::traffic::{Counts, Traffic};
use super::{Address, AddressError, Tls};

/// A connection to a peer failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The URL requires TLS and this member has no certificates.
    #[error("{0} requires TLS: configure a peer certificate, key and CA for this member")]
    NoTls(String),
    #[error("failed to connect to the peer")]
    Io(#[from] io::Error),
    #[error("the peer did not respond in time")]
    Timeout,
    #[error(
        "the peer rejected the connection: it belongs to another cluster, or this member is not or no longer in it"
    )]
    Rejected,
    #[error("the peer sent an invalid response")]
    Response(#[from] consensus::DecodeError),
    #[error("no peer URL was given")]
    NoPeerUrl,
}

/// Queue size per peer; further frames are dropped, which consensus tolerates.
const QUEUE_FRAMES: usize = 1024;
/// Maximum size of a write.
const WRITE_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 1 << 20;
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// A peer that accepts no data for this long is considered dead.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const REDIAL_MIN: Duration = Duration::from_millis(50);
const REDIAL_MAX: Duration = Duration::from_secs(1);

/// Identity and TLS of this member.
#[derive(Clone)]
pub(crate) struct Identity {
    pub cluster: u64,
    pub id: u64,
    pub tls: Option<Tls>,
    /// Counters of sent data.
    pub traffic: Traffic,
}

/// Links to all other members; dropping a link ends its task.
pub(crate) struct Links {
    identity: Identity,
    links: BTreeMap<u64, Link>,
    lost: mpsc::Sender<u64>,
}

struct Link {
    urls: Vec<String>,
    queue: mpsc::Sender<Bytes>,
}

impl Links {
    /// `lost` receives the peers to which frames could not be delivered.
    pub(crate) fn new(identity: Identity, lost: mpsc::Sender<u64>) -> Self {
        Self { identity, links: BTreeMap::new(), lost }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Adds and removes links according to the membership.
    pub(crate) fn follow(&mut self, group: &Group) {
        let own = self.identity.id;
        self.identity.traffic.keep(|peer| group.member(peer).is_some());
        self.links.retain(|id, link| group.member(*id).is_some_and(|peer| peer.peer_urls == link.urls));
        for peer in group.members().filter(|peer| peer.id != own) {
            if !self.links.contains_key(&peer.id) {
                self.links.insert(peer.id, self.open(peer));
            }
        }
    }

    /// Queues a frame. Returns false and drops the frame if the queue is full.
    pub(crate) fn send(&self, to: u64, frame: &Frame) -> bool {
        self.links.get(&to).is_some_and(|link| link.queue.try_send(frame.encode()).is_ok())
    }

    pub(crate) fn urls(&self, to: u64) -> Vec<String> {
        self.links.get(&to).map(|link| link.urls.clone()).unwrap_or_default()
    }

    fn open(&self, peer: &Peer) -> Link {
        let (queue, frames) = mpsc::channel(QUEUE_FRAMES);
        let urls = peer.peer_urls.clone();
        tokio::spawn(run(self.identity.clone(), peer.id, urls.clone(), frames, self.lost.clone()).in_current_span());
        Link { urls, queue }
    }
}

/// Dials, writes queued frames, and dials again after a failure. An idle connection is kept, so that members detect
/// each other's failures.
async fn run(
    identity: Identity,
    to: u64,
    urls: Vec<String>,
    mut frames: mpsc::Receiver<Bytes>,
    lost: mpsc::Sender<u64>,
) {
    let mut wait = REDIAL_MIN;
    let traffic = identity.traffic.of(to);
    while !frames.is_closed() {
        match dial(&identity, to, &urls, Purpose::Messages).await {
            Ok(mut stream) => {
                wait = REDIAL_MIN;
                let connection = traffic.clone().connected();
                let result = write_frames(&mut stream, &mut frames, &traffic).await;
                drop(connection);
                if let Err(error) = result {
                    tracing::debug!(peer = format!("{to:x}"), %error, "the connection to a peer closed");
                }
            }
            Err(error) => {
                tracing::debug!(peer = format!("{to:x}"), %error, "failed to connect to a peer");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(REDIAL_MAX);
            }
        }
        // Frames queued in the meantime are outdated; consensus sends again as needed.
        while frames.try_recv().is_ok() {}
        let _ = lost.try_send(to);
    }
}

async fn write_frames(
    stream: &mut Box<dyn Stream>,
    frames: &mut mpsc::Receiver<Bytes>,
    traffic: &Counts,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        let next = tokio::select! {
            frame = frames.recv() => frame,
            // The peer never sends on this connection. A close must be detected before the next frame: the first frame
            // written to a closed connection is lost without an error, and may be a vote.
            _ = stream.read_u8() => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        let Some(frame) = next else { return Ok(()) };
        put_frame(&mut buffer, &frame);
        while buffer.len() < WRITE_BYTES
            && let Ok(frame) = frames.try_recv()
        {
            put_frame(&mut buffer, &frame);
        }
        let written = async {
            stream.write_all(&buffer).await?;
            stream.flush().await
        };
        tokio::time::timeout(WRITE_TIMEOUT, written).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        traffic.sent(buffer.len());
        buffer.clear();
    }
}

/// Streams a state to a peer and waits for its confirmation.
pub(crate) async fn stream_snapshot(
    identity: Identity,
    to: u64,
    urls: Vec<String>,
    state: State,
    message: Message,
) -> Result<(), DialError> {
    let mut stream = dial(&identity, to, &urls, Purpose::Snapshot).await?;
    let traffic = identity.traffic.of(to);
    let (chunks, mut received) = mpsc::channel::<Bytes>(4);
    let writer = tokio::task::spawn_blocking(move || {
        use std::io::Write as _;
        let mut chunks = io::BufWriter::with_capacity(CHUNK_BYTES, Chunks(chunks));
        state.write_to(&mut chunks).and_then(|()| chunks.flush())
    });
    while let Some(chunk) = received.recv().await {
        write_one(&mut stream, &chunk).await?;
        traffic.sent(chunk.len());
    }
    writer.await.map_err(io::Error::other)??;
    write_one(&mut stream, &[]).await?;
    write_one(&mut stream, &message.encode()).await?;
    let response =
        tokio::time::timeout(Duration::from_mins(5), stream.read_u8()).await.map_err(|_| DialError::Timeout)??;
    if response == WELCOME { Ok(()) } else { Err(DialError::Rejected) }
}

/// Queries the membership from the members at these URLs; the first response counts.
pub async fn members_of(urls: &[String], tls: Option<&Tls>) -> Result<(u64, Vec<Peer>), DialError> {
    let identity = Identity { cluster: 0, id: 0, tls: tls.cloned(), traffic: Traffic::default() };
    let mut last = DialError::NoPeerUrl;
    for url in urls {
        match fetch_members(&identity, url).await {
            Ok((cluster, group)) => return Ok((cluster, group.members().cloned().collect())),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn fetch_members(identity: &Identity, url: &str) -> Result<(u64, Group), DialError> {
    let mut stream = dial(identity, 0, std::slice::from_ref(&url.to_owned()), Purpose::Members).await?;
    let response =
        tokio::time::timeout(DIAL_TIMEOUT, read_frame(&mut stream)).await.map_err(|_| DialError::Timeout)??;
    let mut reader = consensus::codec::Reader::new(response.clone());
    let cluster = reader.u64("members.cluster")?;
    Ok((cluster, Group::decode(response.slice(8..))?))
}

async fn write_one(stream: &mut Box<dyn Stream>, bytes: &[u8]) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(bytes.len() + 8);
    put_frame(&mut buffer, bytes);
    let written = async {
        stream.write_all(&buffer).await?;
        stream.flush().await
    };
    tokio::time::timeout(WRITE_TIMEOUT, written).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// A bidirectional byte stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn dial(identity: &Identity, to: u64, urls: &[String], purpose: Purpose) -> Result<Box<dyn Stream>, DialError> {
    let mut last = DialError::NoPeerUrl;
    for url in urls {
        match tokio::time::timeout(DIAL_TIMEOUT, dial_one(identity, to, url, purpose)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = DialError::Timeout,
        }
    }
    Err(last)
}

async fn dial_one(identity: &Identity, to: u64, url: &str, purpose: Purpose) -> Result<Box<dyn Stream>, DialError> {
    let address = Address::parse(url)?;
    let tcp = TcpStream::connect(address.resolve().await?).await?;
    tcp.set_nodelay(true)?;
    let mut stream: Box<dyn Stream> = if address.secure {
        let tls = identity.tls.as_ref().ok_or_else(|| DialError::NoTls(url.to_owned()))?;
        let name = rustls::pki_types::ServerName::try_from(address.host).map_err(io::Error::other)?;
        Box::new(TlsConnector::from(tls.client()).connect(name, tcp).await?)
    } else {
        Box::new(tcp)
    };
    let greeting = Greeting { purpose, cluster: identity.cluster, from: identity.id, to };
    greeting.write(&mut stream).await?;
    stream.flush().await?;
    if stream.read_u8().await? == WELCOME { Ok(stream) } else { Err(DialError::Rejected) }
}

/// Passes data written by a thread to a task, in chunks.
struct Chunks(mpsc::Sender<Bytes>);

impl io::Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
