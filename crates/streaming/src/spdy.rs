//! SPDY/3.1 as used by Kubernetes streaming (exec, attach, port-forward): many streams in one connection, opened by
//! either side.
//!
//! Like Kubernetes' implementation, this one has no flow-control windows: the only flow control is the back-pressure of
//! the transport.

mod frame;
#[doc(hidden)]
pub mod fuzz;
mod headers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use frame::{Frame, ReadError, ResetStatus};
use headers::Compressor;

/// Maximum number of streams waiting to be accepted, as protection against a flooding peer.
const BACKLOG: usize = 64;
/// Maximum number of unread data frames per stream.
const PIECES: usize = 16;
/// Maximum number of concurrent streams.
const STREAMS_MAX: usize = 1024;

/// Header fields of a stream, with lowercase names.
pub type Headers = BTreeMap<String, String>;

/// A session ended.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    #[error("the SPDY connection failed")]
    Io(#[from] std::io::Error),
    #[error("the peer violated the SPDY protocol: {0}")]
    Protocol(&'static str),
    #[error("the SPDY session is closed")]
    Closed,
}

/// The side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that connected; its streams have odd IDs.
    Client,
    Server,
}

impl Side {
    /// The first stream and ping of a side; the following ones are two apart.
    const fn first_id(self) -> u32 {
        match self {
            Side::Client => 1,
            Side::Server => 2,
        }
    }
}

/// A connection with multiplexed streams. Dropping the session closes the connection.
pub struct Session {
    incoming: mpsc::Receiver<Stream>,
    shared: Arc<Inner>,
    reader: JoinHandle<()>,
}

/// Opens streams of a session.
#[derive(Clone)]
pub struct Opener {
    shared: Arc<Inner>,
}

struct Inner {
    writer: Mutex<Writer>,
    streams: std::sync::Mutex<BTreeMap<u32, mpsc::Sender<Bytes>>>,
    next: AtomicU32,
    next_ping: AtomicU32,
}

struct Writer {
    to: Box<dyn AsyncWrite + Send + Unpin>,
    compressor: Compressor,
}

pub struct Stream {
    pub id: u32,
    /// The headers sent by the side that opened the stream.
    pub headers: Headers,
    /// Received data; closed when the peer has finished sending.
    pub data: mpsc::Receiver<Bytes>,
    pub sender: Sender,
}

/// The sending half of a stream.
#[derive(Clone)]
pub struct Sender {
    id: u32,
    shared: Arc<Inner>,
}

impl Session {
    /// Starts a session on a connection.
    pub fn new<C>(connection: C, side: Side) -> Session
    where
        C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (from, to) = tokio::io::split(connection);
        let shared = Arc::new(Inner {
            writer: Mutex::new(Writer { to: Box::new(to), compressor: Compressor::new() }),
            streams: std::sync::Mutex::new(BTreeMap::new()),
            next: AtomicU32::new(side.first_id()),
            next_ping: AtomicU32::new(side.first_id()),
        });
        let (opened, incoming) = mpsc::channel(BACKLOG);
        let reader = tokio::spawn(read(from, Arc::clone(&shared), opened));
        Session { incoming, shared, reader }
    }

    /// Returns the next stream that the peer opens; [`None`] when the session has ended.
    pub async fn accept(&mut self) -> Option<Stream> {
        self.incoming.recv().await
    }

    pub async fn open(&self, headers: Headers) -> Result<Stream, SpdyError> {
        self.opener().open(headers).await
    }

    /// Returns a handle that opens streams while another task accepts them. It does not keep the session open.
    pub fn opener(&self) -> Opener {
        Opener { shared: Arc::clone(&self.shared) }
    }
}

impl Opener {
    pub async fn open(&self, headers: Headers) -> Result<Stream, SpdyError> {
        let id = self.shared.next.fetch_add(2, Ordering::SeqCst);
        let (data_in, data) = mpsc::channel(PIECES);
        self.shared.streams().insert(id, data_in);
        let mut writer = self.shared.writer.lock().await;
        let block = writer.compressor.compress(&headers);
        writer.write(&frame::syn_stream(id, &block)).await?;
        drop(writer);
        Ok(Stream { id, headers, data, sender: Sender { id, shared: Arc::clone(&self.shared) } })
    }

    /// Sends a ping, which keeps an idle connection alive and fails on a broken one.
    pub async fn ping(&self) -> Result<(), SpdyError> {
        let id = self.shared.next_ping.fetch_add(2, Ordering::SeqCst);
        self.shared.write(&frame::ping(id)).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Sender {
    /// Sends data in frames of at most 32 KiB.
    pub async fn send(&self, data: &[u8]) -> Result<(), SpdyError> {
        for piece in data.chunks(frame::DATA_BYTES_MAX) {
            self.shared.write(&frame::data(self.id, piece, false)).await?;
        }
        Ok(())
    }

    /// Half-closes the stream: no more data follows.
    pub async fn finish(&self) -> Result<(), SpdyError> {
        self.shared.write(&frame::data(self.id, &[], true)).await
    }

    /// Closes the stream in both directions; unread data is discarded.
    pub async fn reset(&self) -> Result<(), SpdyError> {
        self.shared.streams().remove(&self.id);
        self.shared.write(&frame::reset(self.id, ResetStatus::Cancel)).await
    }
}

impl Inner {
    fn streams(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, mpsc::Sender<Bytes>>> {
        self.streams.lock().expect("the streams lock is never poisoned")
    }

    async fn write(&self, frame: &[u8]) -> Result<(), SpdyError> {
        self.writer.lock().await.write(frame).await
    }
}

impl Writer {
    async fn write(&mut self, frame: &[u8]) -> Result<(), SpdyError> {
        self.to.write_all(frame).await?;
        Ok(self.to.flush().await?)
    }
}

async fn read(mut from: impl AsyncRead + Unpin, shared: Arc<Inner>, opened: mpsc::Sender<Stream>) {
    let mut decompressor = headers::Decompressor::new();
    loop {
        match frame::read(&mut from).await {
            Ok(frame) => {
                if let Err(error) = handle(frame, &mut decompressor, &shared, &opened).await {
                    tracing::debug!(%error, "SPDY session ended with an error");
                    break;
                }
            }
            Err(ReadError::Eof) => break,
            Err(ReadError::Broken(error)) => {
                tracing::debug!(%error, "SPDY session ended with an error");
                break;
            }
        }
    }
    // Readers of open streams see their end.
    shared.streams().clear();
}

async fn handle(
    frame: Frame,
    decompressor: &mut headers::Decompressor,
    shared: &Arc<Inner>,
    opened: &mpsc::Sender<Stream>,
) -> Result<(), SpdyError> {
    match frame {
        Frame::SynStream { id, fin, block } => {
            let headers = decompressor.decompress(&block)?;
            if shared.streams().len() >= STREAMS_MAX {
                return shared.write(&frame::reset(id, ResetStatus::RefusedStream)).await;
            }
            let (data_in, data) = mpsc::channel(PIECES);
            if !fin {
                shared.streams().insert(id, data_in);
            }
            let mut writer = shared.writer.lock().await;
            let block = writer.compressor.compress(&Headers::new());
            writer.write(&frame::syn_reply(id, &block)).await?;
            drop(writer);
            let sender = Sender { id, shared: Arc::clone(shared) };
            opened.send(Stream { id, headers, data, sender }).await.map_err(|_| SpdyError::Closed)
        }
        Frame::SynReply { id, fin, block } | Frame::Headers { id, fin, block } => {
            // The compression is one stream over all blocks, so every block must be decompressed.
            decompressor.decompress(&block)?;
            if fin {
                shared.streams().remove(&id);
            }
            Ok(())
        }
        Frame::Data { id, fin, data } => {
            let to = shared.streams().get(&id).cloned();
            if let Some(to) = to.filter(|_| !data.is_empty()) {
                // If the reader of this stream was dropped, the data is discarded; other streams are not affected.
                let _ = to.send(data).await;
            }
            if fin {
                shared.streams().remove(&id);
            }
            Ok(())
        }
        Frame::Reset { id } => {
            shared.streams().remove(&id);
            Ok(())
        }
        // A ping with an ID of this side is the reply to its own.
        Frame::Ping { id } if id % 2 == shared.next_ping.load(Ordering::SeqCst) % 2 => Ok(()),
        Frame::Ping { id } => shared.write(&frame::ping(id)).await,
        Frame::GoAway => Err(SpdyError::Closed),
        Frame::Other => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Session, Session) {
        let (one, two) = tokio::io::duplex(1 << 16);
        (Session::new(one, Side::Client), Session::new(two, Side::Server))
    }

    fn named(kind: &str) -> Headers {
        Headers::from([("streamtype".to_owned(), kind.to_owned())])
    }

    #[tokio::test]
    async fn streams_carry_headers_and_data_both_ways() {
        let (client, mut server) = pair();
        let mut local = client.open(named("data")).await.unwrap();
        let mut remote = server.accept().await.unwrap();
        assert_eq!((remote.id, remote.headers["streamtype"].as_str()), (1, "data"));
        local.sender.send(b"ping").await.unwrap();
        local.sender.finish().await.unwrap();
        assert_eq!(remote.data.recv().await.unwrap(), "ping");
        assert!(remote.data.recv().await.is_none());
        remote.sender.send(b"pong").await.unwrap();
        remote.sender.finish().await.unwrap();
        assert_eq!(local.data.recv().await.unwrap(), "pong");
        assert!(local.data.recv().await.is_none());
    }

    #[tokio::test]
    async fn ping_is_answered_once_and_reset_closes_both_directions() {
        let (mut raw, end) = tokio::io::duplex(1 << 16);
        let client = Session::new(end, Side::Client);
        client.opener().ping().await.unwrap();
        let mut ping = [0; 12];
        tokio::io::AsyncReadExt::read_exact(&mut raw, &mut ping).await.unwrap();
        assert_eq!(ping, frame::ping(1)[..]);
        raw.write_all(&frame::ping(1)).await.unwrap();
        raw.write_all(&frame::ping(2)).await.unwrap();
        tokio::io::AsyncReadExt::read_exact(&mut raw, &mut ping).await.unwrap();
        assert_eq!(ping, frame::ping(2)[..], "the reply to ping 1 is not answered");

        let (client, mut server) = pair();
        let mut local = client.open(named("data")).await.unwrap();
        let mut remote = server.accept().await.unwrap();
        local.sender.reset().await.unwrap();
        assert!(local.data.recv().await.is_none());
        assert!(remote.data.recv().await.is_none());
    }

    #[tokio::test]
    async fn many_streams_share_one_compression() {
        let (client, mut server) = pair();
        for n in 0..50 {
            client.open(named(&format!("stream {n}"))).await.unwrap();
            assert_eq!(server.accept().await.unwrap().headers["streamtype"], format!("stream {n}"));
        }
    }

    #[tokio::test]
    async fn large_data_arrives_complete() {
        let (client, mut server) = pair();
        let local = client.open(named("data")).await.unwrap();
        let mut remote = server.accept().await.unwrap();
        let data: Vec<u8> = (0..300_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let sent = data.clone();
        let send = tokio::spawn(async move {
            local.sender.send(&sent).await.unwrap();
            local.sender.finish().await.unwrap();
            local
        });
        let mut got = Vec::new();
        while let Some(piece) = remote.data.recv().await {
            got.extend_from_slice(&piece);
        }
        assert!(got == data);
        send.await.unwrap();
    }

    #[tokio::test]
    async fn invalid_frames_end_the_session() {
        let (mut raw, end) = tokio::io::duplex(1 << 16);
        let mut server = Session::new(end, Side::Server);
        raw.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        raw.write_all(&[0x80, 3, 0, 1, 0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        drop(raw);
        assert!(server.accept().await.is_none());
    }
}
