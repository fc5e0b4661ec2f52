//! Port-forward: connections inside the network namespace of a sandbox.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use container_shim::protocol::NETNS;
use futures_util::{SinkExt, StreamExt};
use streaming::spdy::{Session, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::state::Runtime;

/// Maximum number of streams that wait for the other stream of their pair. A session that exceeds it is closed.
const WAITING_MAX: usize = 64;

/// Serves a SPDY session: each pair of a data stream and an error stream is a connection.
pub(super) async fn session(mut session: Session, runtime: &Arc<Runtime>, sandbox: &str) {
    let mut waiting: BTreeMap<String, Stream> = BTreeMap::new();
    while let Some(stream) = session.accept().await {
        let key = match (stream.headers.get("requestid"), stream.headers.get("port")) {
            (Some(request), Some(port)) => format!("{request} {port}"),
            // Older clients omit the request ID; they open the error stream first and the data stream right after it.
            (None, Some(port)) => format!("port {port}"),
            _ => return,
        };
        match waiting.remove(&key) {
            Some(first) => {
                let is_data = |stream: &Stream| stream.headers.get("streamtype").is_some_and(|kind| kind == "data");
                let (data, error) = if is_data(&first) { (first, stream) } else { (stream, first) };
                tokio::spawn(pair(Arc::clone(runtime), sandbox.to_owned(), data, error).in_current_span());
            }
            None if waiting.len() < WAITING_MAX => {
                waiting.insert(key, stream);
            }
            None => return,
        }
    }
}

async fn pair(runtime: Arc<Runtime>, sandbox: String, mut data: Stream, error: Stream) {
    let port = data.headers.get("port").and_then(|port| port.parse().ok());
    let connected = match port {
        Some(port) => connect(&runtime, &sandbox, port).await.map_err(|error| failure(port, &error)),
        None => Err("the stream names no port".to_owned()),
    };
    match connected {
        Err(message) => {
            let _ = error.sender.send(message.as_bytes()).await;
        }
        Ok(socket) => {
            let (mut from, mut to) = socket.into_split();
            let sender = data.sender.clone();
            let outward = async {
                let mut buffer = vec![0; 32 << 10];
                while let Ok(count @ 1..) = from.read(&mut buffer).await {
                    if sender.send(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
                let _ = sender.finish().await;
            };
            let inward = async {
                while let Some(piece) = data.data.recv().await {
                    if to.write_all(&piece).await.is_err() {
                        return;
                    }
                }
                let _ = to.shutdown().await;
            };
            tokio::join!(outward, inward);
        }
    }
    let _ = data.sender.finish().await;
    let _ = error.sender.finish().await;
}

/// Serves WebSocket channels: per port one for data and one for errors, each of which starts with the port number.
pub(super) async fn channels(socket: WebSocket, runtime: &Runtime, sandbox: &str, ports: &[u16]) {
    let (mut to, mut from) = socket.split();
    let (send, mut outgoing) = mpsc::channel::<Vec<u8>>(super::wire::PIECES);
    let mut writers: BTreeMap<u8, OwnedWriteHalf> = BTreeMap::new();
    // A channel number is one byte.
    for (n, port) in (0u8..=126).zip(ports) {
        let (data, error) = (2 * n, 2 * n + 1);
        for channel in [data, error] {
            let [low, high] = port.to_le_bytes();
            if to.send(Message::Binary(vec![channel, low, high].into())).await.is_err() {
                return;
            }
        }
        match connect(runtime, sandbox, *port).await {
            Ok(connected) => {
                let (reader, writer) = connected.into_split();
                writers.insert(data, writer);
                tokio::spawn(read_into(reader, data, send.clone()).in_current_span());
            }
            Err(failed) => {
                let mut message = vec![error];
                message.extend(failure(*port, &failed).into_bytes());
                let _ = to.send(Message::Binary(message.into())).await;
            }
        }
    }
    drop(send);
    loop {
        tokio::select! {
            out = outgoing.recv() => match out {
                Some(message) => {
                    if to.send(Message::Binary(Bytes::from(message))).await.is_err() {
                        return;
                    }
                }
                None => break,
            },
            message = from.next() => match message {
                Some(Ok(message @ (Message::Binary(_) | Message::Text(_)))) => {
                    let bytes = message.into_data();
                    if let Some((channel, rest)) = bytes.split_first()
                        && let Some(writer) = writers.get_mut(channel)
                        && writer.write_all(rest).await.is_err()
                    {
                        writers.remove(channel);
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
    let _ = to.send(Message::Close(None)).await;
}

async fn read_into(mut from: OwnedReadHalf, channel: u8, to: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; 32 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let mut message = vec![channel];
        message.extend(&buffer[..count]);
        if to.send(message).await.is_err() {
            return;
        }
    }
}

/// Connects to a port inside a sandbox's network namespace.
async fn connect(runtime: &Runtime, sandbox: &str, port: u16) -> io::Result<TcpStream> {
    let sandbox = runtime.sandbox(sandbox).map_err(io::Error::other)?;
    if !crate::sandboxes::has_network(&sandbox.record().config) {
        return connect_to_loopback(port).await;
    }
    let netns = sandbox.dir.join(NETNS);
    let socket =
        tokio::task::spawn_blocking(move || connect_in_netns(&netns, port)).await.map_err(io::Error::other)??;
    socket.set_nonblocking(true)?;
    TcpStream::from_std(socket)
}

async fn connect_to_loopback(port: u16) -> io::Result<TcpStream> {
    match TcpStream::connect(("127.0.0.1", port)).await {
        Ok(socket) => Ok(socket),
        Err(_) => TcpStream::connect(("::1", port)).await,
    }
}

/// Connects in a dedicated thread that enters the namespace and exits there, so that no thread has to switch back.
fn connect_in_netns(netns: &Path, port: u16) -> io::Result<std::net::TcpStream> {
    let netns = std::fs::File::open(netns)?;
    let thread = std::thread::spawn(move || {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&netns), Some(LinkNameSpaceType::Network))?;
        std::net::TcpStream::connect(("127.0.0.1", port)).or_else(|_| std::net::TcpStream::connect(("::1", port)))
    });
    thread.join().map_err(|_| io::Error::other("the connecting thread panicked"))?
}

fn failure(port: u16, error: &io::Error) -> String {
    format!("an error occurred forwarding {port}: failed to connect to localhost:{port} inside the sandbox: {error}")
}
