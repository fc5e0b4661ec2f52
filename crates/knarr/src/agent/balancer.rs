//! Local load balancer for the API servers: forwards TCP connections to a server that accepts them.
//!
//! Components on the node connect to this address on the loopback interface only. When a server fails, its connections
//! are closed and new ones go to another server. TLS is end to end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tracing::Instrument;

/// Connect timeout per server.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of concurrent connections. A node needs a few dozen.
const CONNECTIONS_MAX: usize = 1024;
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The known servers as `host:port`. The list is stored in a file, so that a restart does not depend on one particular
/// server.
pub(super) struct Servers {
    file: PathBuf,
    /// The server of `--server`, tried last. Its name is resolved again.
    given: String,
    known: watch::Sender<Vec<String>>,
    /// Index of the server that accepted the last connection.
    last_used: AtomicUsize,
}

impl Servers {
    /// Reads the servers from the file. Without a file the list contains only `first`.
    pub(super) fn open(file: &Path, first: &str) -> Self {
        let mut known: Vec<String> =
            std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect();
        if !known.iter().any(|server| server == first) {
            known.push(first.to_owned());
        }
        Self {
            file: file.to_owned(),
            given: first.to_owned(),
            known: watch::Sender::new(known),
            last_used: AtomicUsize::new(0),
        }
    }

    /// Replaces the list of servers. An empty list is ignored and the previous one is kept.
    pub(super) fn set(&self, servers: Vec<String>) {
        if servers.is_empty() || *self.known.borrow() == servers {
            return;
        }
        if let Err(error) = std::fs::write(&self.file, servers.join("\n")) {
            tracing::warn!(%error, file = %self.file.display(), "failed to save the list of servers");
        }
        tracing::info!(servers = servers.join(","), "the list of servers changed");
        self.known.send_replace(servers);
    }

    /// Forwards connections. At [`CONNECTIONS_MAX`] connections, accepting pauses until one is closed.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) -> Result<()> {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let permit = Arc::clone(&permits).acquire_owned().await?;
            let Ok((incoming, _)) = listener.accept().await else {
                // The usual reason is EMFILE, which needs time until other connections are closed.
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            };
            let servers = Arc::clone(&self);
            let task = async move {
                if let Err(error) = servers.forward(incoming).await {
                    tracing::debug!(%error, "a connection to a server was closed");
                }
                drop(permit);
            };
            tokio::spawn(task.in_current_span());
        }
    }

    async fn forward(&self, mut incoming: TcpStream) -> Result<()> {
        let mut known = self.known.subscribe();
        let then = known.borrow().clone();
        let (server, mut outgoing) = self.connect().await.context("no server is reachable")?;
        incoming.set_nodelay(true)?;
        outgoing.set_nodelay(true)?;
        let left = async {
            // Waiting cannot fail: the sender exists as long as the process.
            let _ = known.wait_for(|servers| !servers.contains(&server) && *servers != then).await;
        };
        tokio::select! {
            copied = copy_bidirectional(&mut incoming, &mut outgoing) => copied.map(drop)?,
            () = left => {}
        }
        Ok(())
    }

    /// Connects to a known server, starting with the last one that accepted. If all fail, tries the server of
    /// `--server`.
    async fn connect(&self) -> Option<(String, TcpStream)> {
        let known = self.known.borrow().clone();
        let first = self.last_used.load(Ordering::Relaxed);
        for step in 0..known.len() {
            let at = (first + step) % known.len();
            if let Ok(Ok(stream)) = tokio::time::timeout(TIMEOUT, TcpStream::connect(&known[at])).await {
                self.last_used.store(at, Ordering::Relaxed);
                return Some((known[at].clone(), stream));
            }
        }
        let stream = tokio::time::timeout(TIMEOUT, TcpStream::connect(&self.given)).await.ok()?.ok()?;
        Some((self.given.clone(), stream))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A server that sends its name on every connection and keeps the connection open.
    async fn server(name: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let mut streams = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(name.as_bytes()).await.unwrap();
                streams.push(stream);
            }
        });
        address
    }

    async fn read_reply(stream: &mut TcpStream) -> String {
        let mut buffer = [0; 1];
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[tokio::test]
    async fn connections_go_to_a_reachable_server_and_close_when_it_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("servers");
        let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let (one, two) = (server("1").await, server("2").await);
        let servers = Arc::new(Servers::open(&file, &dead));
        servers.set(vec![dead, one.clone(), two.clone()]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(Arc::clone(&servers).serve(listener));
        let mut first = TcpStream::connect(address).await.unwrap();
        assert_eq!(read_reply(&mut first).await, "1", "the unreachable server is skipped");
        servers.set(vec![two.clone()]);
        assert_eq!(read_reply(&mut first).await, "", "the connection to the stopped server is closed");
        let mut second = TcpStream::connect(address).await.unwrap();
        assert_eq!(read_reply(&mut second).await, "2");
        servers.set(Vec::new());
        let closed_address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let named = Servers::open(&dir.path().join("others"), &one);
        named.set(vec![closed_address]);
        assert_eq!(
            named.connect().await.unwrap().0,
            one,
            "the server of --server is tried when no known server responds"
        );
        assert_eq!(Servers::open(&file, &one).known.borrow().clone(), [two, one], "the stored servers are read again");
    }
}
