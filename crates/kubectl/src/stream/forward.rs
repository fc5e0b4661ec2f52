//! Forwarded ports: each local connection becomes a pair of SPDY streams to the pod.

use std::time::Duration;

use bytes::Bytes;
use client::Client;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use streaming::spdy::{Headers, Opener, Session, Side, SpdyError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_tungstenite::tungstenite::Message;

use super::listen::Listener;
use super::ports::ForwardedPort;
use super::upgrade::{self, WebSocket};
use super::{StreamError, is_enabled};

const PROTOCOL: &str = "portforward.k8s.io";
const TUNNEL_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
/// The variable that turns WebSocket off.
const WEBSOCKET_VARIABLE: &str = "KUBECTL_PORT_FORWARD_WEBSOCKETS";
/// Interval of pings, which keep idle connections alive.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const BLOCK_BYTES: usize = 32 << 10;
/// Maximum size of an error message.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// An event of a connection.
pub enum Notice {
    /// A connection to a local port was accepted.
    Handling { local: u16 },
    /// A connection failed.
    Failed(String),
}

/// Opens the connection to a pod: SPDY tunnelled in WebSocket, or SPDY if the server rejects that.
pub async fn open(client: &Client, path: &str) -> Result<Session, StreamError> {
    if is_enabled(std::env::var(WEBSOCKET_VARIABLE).ok().as_deref())
        && let Some(socket) = upgrade::websocket(client, path, TUNNEL_PROTOCOL).await?
    {
        let (near, far) = tokio::io::duplex(2 * BLOCK_BYTES);
        tokio::spawn(tunnel(socket, far));
        return Ok(Session::new(near, Side::Client));
    }
    let (session, protocol) = upgrade::spdy(client, path, &[PROTOCOL]).await?;
    if protocol != PROTOCOL {
        let reason =
            format!("unable to negotiate protocol: client supports {PROTOCOL:?}, server returned {protocol:?}");
        return Err(StreamError::Remote(reason));
    }
    Ok(session)
}

/// Copies bytes between the messages of a WebSocket and a byte stream, until either ends.
async fn tunnel(socket: WebSocket, far: DuplexStream) {
    let (mut to, mut from) = socket.split();
    let (mut reader, mut writer) = tokio::io::split(far);
    let outward = async {
        let mut buffer = vec![0; BLOCK_BYTES];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            if to.send(Message::Binary(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                return;
            }
        }
        let _ = to.close().await;
    };
    let inward = async {
        while let Some(Ok(message)) = from.next().await {
            match message {
                Message::Binary(bytes) if writer.write_all(&bytes).await.is_ok() => {}
                Message::Ping(_) | Message::Pong(_) => {}
                _ => return,
            }
        }
    };
    tokio::select! {
        () = outward => {}
        () = inward => {}
    }
}

/// Forwards connections until the connection to the pod is lost, which is the returned error.
pub async fn run(mut session: Session, listeners: Vec<Listener>, mut notify: impl FnMut(Notice)) -> StreamError {
    let opener = session.opener();
    let mut accepting: FuturesUnordered<_> = listeners.into_iter().map(accept).collect();
    let mut connections = FuturesUnordered::new();
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_request = 0_u32;
    let lost = || StreamError::Remote("lost connection to pod".to_owned());
    loop {
        tokio::select! {
            Some((listener, accepted)) = accepting.next() => {
                if let Ok(connection) = accepted {
                    notify(Notice::Handling { local: listener.port.local });
                    connections.push(carry(opener.clone(), connection, listener.port, next_request));
                    next_request += 1;
                }
                accepting.push(accept(listener));
            }
            Some(outcome) = connections.next() => {
                // As upstream, an error that the server reports ends the connection to the pod.
                if let Err(reason) = outcome {
                    notify(Notice::Failed(reason));
                    return lost();
                }
            }
            stream = session.accept() => {
                if stream.is_none() {
                    return lost();
                }
            }
            _ = pings.tick() => {
                if opener.ping().await.is_err() {
                    return lost();
                }
            }
        }
    }
}

async fn accept(listener: Listener) -> (Listener, std::io::Result<TcpStream>) {
    let accepted = listener.socket.accept().await;
    if accepted.is_err() {
        // Without free file descriptors, accept fails immediately. The delay prevents a busy loop.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    (listener, accepted.map(|(connection, _)| connection))
}

/// Forwards one connection, and returns the error that the server reports.
async fn carry(opener: Opener, mut connection: TcpStream, port: ForwardedPort, request: u32) -> Result<(), String> {
    let ForwardedPort { local, remote } = port;
    let failed =
        |what: &str, error: &SpdyError| format!("error creating {what} stream for port {local} -> {remote}: {error}");
    let mut error = opener.open(headers("error", remote, request)).await.map_err(|error| failed("error", &error))?;
    let _ = error.sender.finish().await;
    let mut data = opener.open(headers("data", remote, request)).await.map_err(|error| failed("forwarding", &error))?;
    let (mut reader, mut writer) = connection.split();
    let outward = async {
        let mut buffer = vec![0; BLOCK_BYTES];
        loop {
            match reader.read(&mut buffer).await {
                Ok(0) => break,
                Ok(count) if data.sender.send(&buffer[..count]).await.is_ok() => {}
                _ => return,
            }
        }
        let _ = data.sender.finish().await;
        // The pod may still respond.
        std::future::pending::<()>().await;
    };
    let inward = async {
        while let Some(bytes) = data.data.recv().await {
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    };
    tokio::select! {
        () = outward => {}
        () = inward => {}
    }
    // Unread data would block the error stream.
    let _ = data.sender.reset().await;
    drop(data);
    let message = collect(&mut error.data).await;
    let _ = error.sender.reset().await;
    if message.is_empty() {
        return Ok(());
    }
    Err(format!("an error occurred forwarding {local} -> {remote}: {}", String::from_utf8_lossy(&message)))
}

async fn collect(from: &mut mpsc::Receiver<Bytes>) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = from.recv().await {
        if all.len() + bytes.len() <= ERROR_BYTES_MAX {
            all.extend_from_slice(&bytes);
        }
    }
    all
}

fn headers(kind: &str, port: u16, request: u32) -> Headers {
    Headers::from([
        ("streamtype".to_owned(), kind.to_owned()),
        ("port".to_owned(), port.to_string()),
        ("requestid".to_owned(), request.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::listen::listen;
    use super::super::ports::parse_addresses;
    use super::*;

    fn listeners() -> (Vec<Listener>, u16) {
        let addresses = parse_addresses(&["127.0.0.1".to_owned()]).unwrap();
        let (found, outcome) = listen(&[ForwardedPort { local: 0, remote: 80 }], &addresses);
        outcome.unwrap();
        let local = found.all[0].port.local;
        (found.all, local)
    }

    fn sessions() -> (Session, Session) {
        let (near, far) = tokio::io::duplex(1 << 16);
        (Session::new(near, Side::Client), Session::new(far, Side::Server))
    }

    #[tokio::test]
    async fn each_connection_is_a_pair_of_streams_and_an_error_ends_the_session() {
        let (client, mut server) = sessions();
        let (listeners, local) = listeners();
        let mut notices = Vec::new();
        let script = async {
            for request in ["0", "1"] {
                let mut connection = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
                connection.write_all(b"ping").await.unwrap();
                let error = server.accept().await.unwrap();
                let mut data = server.accept().await.unwrap();
                let expect = |kind: &str| headers(kind, 80, request.parse().unwrap());
                assert_eq!((&error.headers, &data.headers), (&expect("error"), &expect("data")));
                assert_eq!(data.data.recv().await.unwrap(), "ping");
                data.sender.send(b"pong").await.unwrap();
                let mut answer = [0; 4];
                connection.read_exact(&mut answer).await.unwrap();
                assert_eq!(&answer, b"pong");
                data.sender.finish().await.unwrap();
                assert_eq!(connection.read(&mut answer).await.unwrap(), 0, "the end of the answer arrives");
                if request == "1" {
                    error.sender.send(b"connection refused").await.unwrap();
                }
                error.sender.finish().await.unwrap();
            }
            server
        };
        let running = run(client, listeners, |notice| {
            notices.push(match notice {
                Notice::Handling { local: port } => format!("handling {}", port == local),
                Notice::Failed(reason) => reason,
            });
        });
        let (outcome, _server) = tokio::join!(running, script);
        assert_eq!(outcome.to_string(), "lost connection to pod");
        let failed = format!("an error occurred forwarding {local} -> 80: connection refused");
        assert_eq!(notices, ["handling true", "handling true", failed.as_str()]);
    }

    #[tokio::test]
    async fn closed_session_is_a_lost_connection() {
        let (client, server) = sessions();
        drop(server);
        assert_eq!(run(client, listeners().0, |_| ()).await.to_string(), "lost connection to pod");
    }
}
