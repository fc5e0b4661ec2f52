//! Incoming peer connections: accepts streams and forwards their frames.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use consensus::{Group, Message};
use mvcc::State;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tracing::Instrument;

use super::Tls;
use super::frame::{Frame, Greeting, Purpose, REJECTED, WELCOME, invalid, put_frame, read_frame};
use super::links::Stream;
use super::traffic::Traffic;
use crate::value_file::ValueFile;

/// An event from a peer.
pub(crate) enum Inbound {
    Frame(u64, Frame),
    /// A complete snapshot; the response reports whether it was accepted.
    Snapshot(u64, Box<Message>, Box<State>, oneshot::Sender<bool>),
    /// The peer closed its connection, or the connection broke.
    PeerDisconnected(u64),
}

/// Properties of the member that the listener needs.
#[derive(Clone)]
pub(crate) struct Listener {
    pub cluster: u64,
    pub id: u64,
    pub tls: Option<Tls>,
    /// Storage for the values of a snapshot.
    pub value_file: ValueFile,
    pub group: watch::Receiver<Group>,
    pub inbound: mpsc::Sender<Inbound>,
    /// Counters of received data.
    pub traffic: Traffic,
}

/// Connections that have not sent a valid greeting by then are closed.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a silent connection. A live peer sends heartbeats; the chunks of a snapshot are more frequent.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum number of established connections: seven members with two streams each, and some membership queries.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of connections before their greeting. One more closes the oldest. A member's greeting takes
/// milliseconds, so silent connections cannot keep members out.
const PENDING_MAX: usize = 128;

/// Accepts connections until the member stops.
pub(crate) async fn listen(socket: TcpListener, listener: Listener) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut pending = Pending::default();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = listener.inbound.closed() => return,
        };
        match accepted {
            Ok((tcp, _)) => {
                let handshake = tokio::spawn(establish(tcp, listener.clone(), Arc::clone(&slots)).in_current_span());
                pending.push(handshake.abort_handle());
            }
            Err(error) => {
                // Probably out of file descriptors: waits until others are closed.
                tracing::warn!(%error, "failed to accept a peer connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Handshakes in progress, in order of their start.
#[derive(Default)]
struct Pending(VecDeque<AbortHandle>);

impl Pending {
    fn push(&mut self, handshake: AbortHandle) {
        self.0.retain(|handshake| !handshake.is_finished());
        if self.0.len() >= PENDING_MAX
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(handshake);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Waits for TLS handshake and greeting, then serves the connection in a separate task.
async fn establish(tcp: TcpStream, listener: Listener, slots: Arc<Semaphore>) {
    let greeted = tokio::time::timeout(GREETING_TIMEOUT, greet(tcp, &listener)).await;
    let (stream, greeting) = match greeted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(greeted) => greeted,
        Err(error) => {
            tracing::debug!(%error, "a peer connection failed before its greeting");
            return;
        }
    };
    let Ok(slot) = slots.try_acquire_owned() else {
        tracing::warn!(from = greeting.from, max = CONNECTIONS_MAX, "closing a peer connection: too many connections");
        return;
    };
    let task = async move {
        if let Err(error) = serve(stream, &greeting, &listener).await {
            tracing::debug!(%error, "a peer connection closed");
        }
        drop(slot);
    };
    tokio::spawn(task.in_current_span());
}

/// Performs the TLS handshake, with the peer's certificate, and reads the greeting.
async fn greet(tcp: TcpStream, listener: &Listener) -> io::Result<(Box<dyn Stream>, Greeting)> {
    tcp.set_nodelay(true)?;
    let mut stream: Box<dyn Stream> = match &listener.tls {
        Some(tls) => Box::new(TlsAcceptor::from(tls.server()).accept(tcp).await?),
        None => Box::new(tcp),
    };
    let greeting = Greeting::read(&mut stream).await?;
    Ok((stream, greeting))
}

async fn serve(mut stream: Box<dyn Stream>, greeting: &Greeting, listener: &Listener) -> io::Result<()> {
    let welcome = listener.welcomes(greeting);
    stream.write_u8(if welcome { WELCOME } else { REJECTED }).await?;
    stream.flush().await?;
    if !welcome {
        return Ok(());
    }
    match greeting.purpose {
        Purpose::Messages => {
            let result = messages(stream, greeting.from, listener).await;
            let _ = listener.inbound.send(Inbound::PeerDisconnected(greeting.from)).await;
            result
        }
        Purpose::Snapshot => snapshot(stream, greeting.from, listener).await,
        Purpose::Members => members(stream, listener).await,
    }
}

impl Listener {
    /// Whether the greeting is accepted. Messages and snapshots are accepted from every sender of the cluster that was
    /// not removed, so that a new member can learn the membership.
    fn welcomes(&self, greeting: &Greeting) -> bool {
        let group = self.group.borrow();
        let knows = group.members().next().is_some();
        match greeting.purpose {
            Purpose::Members => knows,
            Purpose::Messages | Purpose::Snapshot => {
                let member = !group.is_removed(greeting.from);
                (greeting.cluster, greeting.to) == (self.cluster, self.id) && greeting.from != 0 && member
            }
        }
    }
}

async fn messages(stream: Box<dyn Stream>, from: u64, listener: &Listener) -> io::Result<()> {
    let traffic = listener.traffic.of(from);
    let mut stream = tokio::io::BufReader::with_capacity(64 << 10, stream);
    loop {
        let bytes = next_frame(&mut stream).await?;
        traffic.received(bytes.len());
        let frame = Frame::decode(&bytes, from, listener.id).map_err(invalid)?;
        if listener.inbound.send(Inbound::Frame(from, frame)).await.is_err() {
            return Ok(());
        }
    }
}

async fn snapshot(mut stream: Box<dyn Stream>, from: u64, listener: &Listener) -> io::Result<()> {
    let traffic = listener.traffic.of(from);
    let (chunks, received) = mpsc::channel::<Bytes>(4);
    let value_file = listener.value_file.clone();
    let reader = tokio::task::spawn_blocking(move || {
        let mut chunks = Chunks { received, chunk: Bytes::new() };
        State::read_to(&mut chunks, &mut |value| value_file.store(value)).map_err(io::Error::other)
    });
    loop {
        let chunk = next_frame(&mut stream).await?;
        traffic.received(chunk.len());
        // The reader's error is returned below.
        if chunk.is_empty() || chunks.send(chunk).await.is_err() {
            break;
        }
    }
    drop(chunks);
    let state = reader.await.map_err(io::Error::other)??;
    let message = Message::decode(next_frame(&mut stream).await?, from, listener.id).map_err(invalid)?;
    let Message::Snapshot(announced, _) = &message else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a snapshot does not end with its message"));
    };
    if announced.snapshot_position().0 != state.applied_index() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a snapshot is not of the entry it claims"));
    }
    let (reply, response) = oneshot::channel();
    let taken = listener.inbound.send(Inbound::Snapshot(from, Box::new(message), Box::new(state), reply)).await.is_ok();
    let taken = taken && response.await.unwrap_or(false);
    stream.write_u8(if taken { WELCOME } else { REJECTED }).await?;
    stream.flush().await
}

async fn members(mut stream: Box<dyn Stream>, listener: &Listener) -> io::Result<()> {
    let mut response = BytesMut::new();
    response.put_u64_le(listener.cluster);
    response.put_slice(&listener.group.borrow().encode());
    let mut out = BytesMut::new();
    put_frame(&mut out, &response);
    stream.write_all(&out).await?;
    stream.flush().await
}

async fn next_frame(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<Bytes> {
    let frame = tokio::time::timeout(SILENCE_TIMEOUT, read_frame(stream)).await;
    frame.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Lets a thread read data received by a task.
struct Chunks {
    received: mpsc::Receiver<Bytes>,
    chunk: Bytes,
}

impl io::Read for Chunks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            self.chunk = self.received.blocking_recv().unwrap_or_default();
        }
        let count = out.len().min(self.chunk.len());
        out[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use consensus::Peer;

    use super::super::members_of;
    use super::*;

    /// Starts a listener of a member that knows its membership. Returns its URL.
    async fn member() -> (String, mpsc::Receiver<Inbound>) {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let (inbound, received) = mpsc::channel(1);
        let peer_urls = vec![url.clone()];
        let peer = Peer { id: 1, name: "one".into(), peer_urls, client_urls: Vec::new(), learner: false };
        let listener = Listener {
            cluster: 7,
            id: 1,
            tls: None,
            value_file: ValueFile::memory(),
            group: watch::channel(Group::new([peer])).1,
            inbound,
            traffic: Traffic::default(),
        };
        tokio::spawn(listen(socket, listener));
        (url, received)
    }

    #[tokio::test]
    async fn silent_connections_do_not_keep_members_out() {
        let (url, _received) = member().await;
        let address = url.trim_start_matches("http://");
        let mut silent = Vec::new();
        for _ in 0..4 * (CONNECTIONS_MAX + PENDING_MAX) {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let result = tokio::time::timeout(GREETING_TIMEOUT, members_of(std::slice::from_ref(&url), None)).await;
        let (cluster, members) = result.expect("the member responds in time").unwrap();
        assert_eq!((cluster, members.len()), (7, 1));
    }

    #[tokio::test]
    async fn pending_handshakes_are_bounded_and_the_oldest_is_closed() {
        let mut pending = Pending::default();
        let mut handshakes: Vec<_> = (0..PENDING_MAX + 3).map(|_| tokio::spawn(std::future::pending::<()>())).collect();
        handshakes.iter().for_each(|handshake| pending.push(handshake.abort_handle()));
        assert_eq!(pending.0.len(), PENDING_MAX);
        for oldest in handshakes.drain(..3) {
            assert!(oldest.await.unwrap_err().is_cancelled());
        }
        assert!(handshakes.iter().all(|handshake| !handshake.is_finished()));
        drop(pending);
        for handshake in handshakes {
            assert!(handshake.await.unwrap_err().is_cancelled(), "no task outlives the listener");
        }
    }
}
