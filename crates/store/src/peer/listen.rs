//! The listening side: accepts streams of other members and hands on what they say.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use consensus::{Group, Message};
use mvcc::State;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;

use super::Tls;
use super::frame::{Frame, Greeting, Purpose, REFUSED, WELCOME, invalid, put_frame, read_frame};
use super::links::Stream;
use super::traffic::Traffic;
use crate::shelf::Shelf;

/// What came from a peer.
pub(crate) enum Inbound {
    /// A frame.
    Frame(u64, Frame),
    /// A whole snapshot; the answer says whether it was taken.
    Snapshot(u64, Box<Message>, Box<State>, oneshot::Sender<bool>),
    /// It has closed its connection, or broken it.
    HungUp(u64),
}

/// What the listening side must know of its member.
#[derive(Clone)]
pub(crate) struct Listener {
    pub cluster: u64,
    pub id: u64,
    pub tls: Option<Tls>,
    /// Where the values of a snapshot go.
    pub shelf: Shelf,
    pub group: watch::Receiver<Group>,
    pub inbound: mpsc::Sender<Inbound>,
    /// Where what is heard is counted.
    pub traffic: Traffic,
}

const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// A live peer sends heartbeats; a snapshot's chunks come faster still.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// Seven members with two streams each, and some that ask who we are.
const CONNECTIONS_MAX: usize = 64;

/// Accepts until the member is gone.
pub(crate) async fn listen(socket: TcpListener, listener: Listener) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = listener.inbound.closed() => return,
        };
        match accepted {
            Ok((tcp, _)) => {
                let listener = listener.clone();
                tokio::spawn(async move {
                    if let Err(error) = serve(tcp, listener).await {
                        tracing::debug!(%error, "a peer's connection ended");
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely: others must be given time to close theirs.
                tracing::warn!(%error, "a peer's connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(tcp: TcpStream, listener: Listener) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let greeted = async {
        let mut stream: Box<dyn Stream> = match &listener.tls {
            Some(tls) => Box::new(TlsAcceptor::from(tls.server()).accept(tcp).await?),
            None => Box::new(tcp),
        };
        let greeting = Greeting::read(&mut stream).await?;
        Ok::<_, io::Error>((stream, greeting))
    };
    let (mut stream, greeting) = tokio::time::timeout(GREETING_TIMEOUT, greeted)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let welcome = listener.welcomes(&greeting);
    stream.write_u8(if welcome { WELCOME } else { REFUSED }).await?;
    stream.flush().await?;
    if !welcome {
        return Ok(());
    }
    match greeting.purpose {
        Purpose::Messages => {
            let ended = messages(stream, greeting.from, &listener).await;
            let _ = listener.inbound.send(Inbound::HungUp(greeting.from)).await;
            ended
        }
        Purpose::Snapshot => snapshot(stream, greeting.from, &listener).await,
        Purpose::Members => members(stream, &listener).await,
    }
}

impl Listener {
    /// A member that does not know its group yet hears everybody of its cluster: that is how it learns of it.
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
    let shelf = listener.shelf.clone();
    let reader = tokio::task::spawn_blocking(move || {
        let mut chunks = Chunks { received, chunk: Bytes::new() };
        State::read_to(&mut chunks, &mut |value| shelf.place(value)).map_err(io::Error::other)
    });
    loop {
        let chunk = next_frame(&mut stream).await?;
        traffic.received(chunk.len());
        // A reader that has given up says why below.
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
    let (answer, answered) = oneshot::channel();
    let taken =
        listener.inbound.send(Inbound::Snapshot(from, Box::new(message), Box::new(state), answer)).await.is_ok();
    let taken = taken && answered.await.unwrap_or(false);
    stream.write_u8(if taken { WELCOME } else { REFUSED }).await?;
    stream.flush().await
}

async fn members(mut stream: Box<dyn Stream>, listener: &Listener) -> io::Result<()> {
    let mut answer = BytesMut::new();
    answer.put_u64_le(listener.cluster);
    answer.put_slice(&listener.group.borrow().encode());
    let mut out = BytesMut::new();
    put_frame(&mut out, &answer);
    stream.write_all(&out).await?;
    stream.flush().await
}

async fn next_frame(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<Bytes> {
    let frame = tokio::time::timeout(SILENCE_TIMEOUT, read_frame(stream)).await;
    frame.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Lets a thread read what a task receives.
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
