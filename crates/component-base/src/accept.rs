//! The accept loop: limits the number of connections, and waits for open ones on shutdown.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::Instrument;

/// Delay after a failed accept, mostly because of exhausted file descriptors, until other connections close.
const RETRY: Duration = Duration::from_millis(50);

/// The permit of an open connection. A connection that outlives its server's task, such as an upgraded one, keeps
/// counting against the limit by keeping this.
#[derive(Debug)]
pub struct Slot(#[expect(dead_code, reason = "the permit is released on drop")] OwnedSemaphorePermit);

/// Accepts connections until `ending` completes, then waits for the open ones.
///
/// Each connection is served by a separate task. When `connections_max` are open, further clients wait in the kernel's
/// accept queue: a client that opens connections without limit uses no memory and no file descriptors.
pub async fn accept<S>(
    listener: TcpListener,
    connections_max: usize,
    ending: impl Future<Output = ()>,
    mut serve: impl FnMut(TcpStream, SocketAddr, Slot) -> S,
) where
    S: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    let mut connections = JoinSet::new();
    let mut ending = pin!(ending);
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await.expect("the semaphore is never closed");
            (permit, listener.accept().await)
        };
        tokio::select! {
            () = &mut ending => break,
            (permit, accepted) = next => match accepted {
                Ok((stream, from)) => drop(connections.spawn(serve(stream, from, Slot(permit)).in_current_span())),
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(RETRY).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Writes a greeting, then waits for the client to close.
    async fn greet(mut stream: TcpStream, _slot: Slot) {
        let _ = stream.write_all(b"hello").await;
        let _ = stream.read(&mut [0]).await;
    }

    #[tokio::test]
    async fn clients_above_the_limit_wait_until_others_close() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(accept(listener, 2, std::future::pending(), |stream, _, slot| greet(stream, slot)));
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let mut hello = [0; 5];
        for client in &mut clients[..2] {
            client.read_exact(&mut hello).await.unwrap();
        }
        let third = tokio::time::timeout(Duration::from_millis(200), clients[2].read_exact(&mut hello)).await;
        assert!(third.is_err(), "the third client was served although two are connected");
        drop(clients.remove(0));
        tokio::time::timeout(Duration::from_secs(30), clients[1].read_exact(&mut hello)).await.unwrap().unwrap();
        server.abort();
    }

    #[tokio::test]
    async fn shutdown_waits_for_open_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, closed) = tokio::sync::oneshot::channel::<()>();
        let ending = async {
            let _ = closed.await;
        };
        let server = tokio::spawn(accept(listener, 2, ending, |stream, _, slot| greet(stream, slot)));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.read_exact(&mut [0; 5]).await.unwrap();
        drop(end);
        tokio::task::yield_now().await;
        assert!(!server.is_finished());
        drop(client);
        tokio::time::timeout(Duration::from_secs(30), server).await.unwrap().unwrap();
    }
}
