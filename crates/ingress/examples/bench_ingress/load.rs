//! Clients that send one request after the other over connections that stay open.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio_rustls::TlsConnector;

use crate::backend::BODY_BYTES;

const STATUS: &[u8] = b"HTTP/1.1 200 ";

/// A listener of a proxy, and the requests to send to it in turn.
pub(crate) struct Target {
    pub address: SocketAddr,
    pub tls: Option<(TlsConnector, ServerName<'static>)>,
    pub requests: Rc<Vec<Vec<u8>>>,
}

pub(crate) struct Measured {
    pub requests: usize,
    pub elapsed: Duration,
    pub requests_per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
}

/// Opens the connections, then sends requests over all of them for this time.
pub(crate) fn run(target: &Target, connections: usize, time: Duration) -> Result<Measured> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let latencies = Rc::new(RefCell::new(Vec::with_capacity(1 << 20)));
    let elapsed = LocalSet::new().block_on(&runtime, async {
        let mut open = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(target.address).await.context("failed to connect")?;
            stream.set_nodelay(true)?;
            open.push(match &target.tls {
                Some((connector, name)) => Stream::Tls(Box::new(connector.connect(name.clone(), stream).await?)),
                None => Stream::Plain(stream),
            });
        }
        let (start, mut clients) = (Instant::now(), JoinSet::new());
        for (number, stream) in open.into_iter().enumerate() {
            let client = Client {
                requests: Rc::clone(&target.requests),
                next: number,
                end: start + time,
                latencies: Rc::clone(&latencies),
            };
            match stream {
                Stream::Plain(stream) => clients.spawn_local(client.run(stream)),
                Stream::Tls(stream) => clients.spawn_local(client.run(*stream)),
            };
        }
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        anyhow::Ok(start.elapsed())
    })?;
    let mut latencies = latencies.take();
    latencies.sort_unstable();
    ensure!(!latencies.is_empty(), "no request was answered");
    let percentile = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    Ok(Measured {
        requests: latencies.len(),
        elapsed,
        requests_per_second: latencies.len() as f64 / elapsed.as_secs_f64(),
        p50: percentile(50),
        p99: percentile(99),
    })
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

struct Client {
    requests: Rc<Vec<Vec<u8>>>,
    next: usize,
    end: Instant,
    latencies: Rc<RefCell<Vec<Duration>>>,
}

impl Client {
    async fn run<S: AsyncRead + AsyncWrite + Unpin>(mut self, mut stream: S) -> Result<()> {
        let mut response = Vec::with_capacity(4 * BODY_BYTES);
        let mut start = Instant::now();
        while start < self.end {
            let request = &self.requests[self.next % self.requests.len()];
            self.next += 1;
            stream.write_all(request).await?;
            stream.flush().await?;
            read_response(&mut stream, &mut response).await?;
            let end = Instant::now();
            self.latencies.borrow_mut().push(end - start);
            start = end;
        }
        Ok(())
    }
}

/// Reads a response whose body has [`BODY_BYTES`].
async fn read_response<S: AsyncRead + Unpin>(stream: &mut S, response: &mut Vec<u8>) -> Result<()> {
    response.clear();
    let mut length = usize::MAX;
    while response.len() < length {
        ensure!(stream.read_buf(response).await? > 0, "the proxy closed a connection");
        if length == usize::MAX
            && let Some(head) = response.windows(4).position(|bytes| bytes == b"\r\n\r\n")
        {
            length = head + 4 + BODY_BYTES;
        }
    }
    let head = || String::from_utf8_lossy(&response[..response.len().min(512)]).into_owned();
    ensure!(response.starts_with(STATUS) && response.len() == length, "unexpected response: {}", head());
    Ok(())
}
