//! Listeners: gRPC and HTTP on the same ports, with or without TLS.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tonic::service::Routes;
use tower::Service;
use tracing::Instrument;

use super::authority::CorrectedConnection;
use super::caller::PeerName;
use super::calls::Counting;
use super::gate::Gate;
use super::proto::{etcdserverpb as pb, v3electionpb, v3lockpb};
use super::tls::{self, ServerTls};
use super::{Config, Server, http as endpoints};
use crate::backend::Backend;
use crate::peer::Stream;

/// Requests that exceed the limit by less than this get etcd's error instead of a closed stream.
const REQUEST_OVERHEAD_BYTES: usize = 512 * 1024;
/// Maximum number of concurrent streams per connection.
const STREAMS_MAX: u32 = 1_000_000;
/// Time for open requests to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(2);

/// A listening socket.
#[derive(Debug)]
pub struct Endpoint {
    socket: Socket,
    /// TLS settings; none means plain text.
    pub tls: Option<ServerTls>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ServeError {
    address: String,
    source: io::Error,
}

impl Endpoint {
    /// Listens on an address such as `127.0.0.1:2379`.
    pub async fn open(address: &str, tls: Option<ServerTls>) -> Result<Self, ServeError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| ServeError { address: address.to_owned(), source })?;
        Ok(Self { socket: Socket::Tcp(listener), tls })
    }

    /// Listens on a Unix socket that only its owner can connect to. A stale socket of a dead process is replaced.
    pub fn open_own(path: &Path) -> Result<Self, ServeError> {
        let failed = |source| ServeError { address: path.display().to_string(), source };
        let listener = sys::listen_own(path).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { socket: Socket::Unix(UnixListener::from_std(listener).map_err(failed)?), tls: None })
    }

    /// Returns the address, with the port that was assigned for port 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr(),
            Socket::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Box::new(stream)
            }
            Socket::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Returns the router of the maintenance API: status and snapshots.
pub fn maintenance<B: Backend>(backend: B, config: Config) -> Router {
    let server = Server { trusted: true, ..Server::new(backend, config) };
    Routes::new(pb::maintenance_server::MaintenanceServer::new(server)).into_axum_router()
}

/// Routers for the client listeners and for the metrics listeners.
pub struct Routers {
    /// All services and endpoints.
    pub clients: Router,
    /// Health and metrics only.
    pub observers: Router,
}

/// Returns all services and endpoints.
pub fn router<B: Backend>(backend: B, config: Config) -> Router {
    routers(backend, config).clients
}

/// Returns the routers for each type of listener.
pub fn routers<B: Backend>(backend: B, config: Config) -> Routers {
    let bytes_max = config.request_bytes_max + REQUEST_OVERHEAD_BYTES;
    let server = Server::new(backend, config);
    let grpc = Routes::builder()
        .routes()
        .add_service(pb::kv_server::KvServer::new(server.clone()).max_decoding_message_size(bytes_max))
        .add_service(pb::watch_server::WatchServer::new(server.clone()).max_decoding_message_size(bytes_max))
        .add_service(pb::lease_server::LeaseServer::new(server.clone()))
        .add_service(pb::cluster_server::ClusterServer::new(server.clone()))
        .add_service(pb::maintenance_server::MaintenanceServer::new(server.clone()))
        .add_service(pb::auth_server::AuthServer::new(server.clone()))
        .add_service(v3lockpb::lock_server::LockServer::new(server.clone()))
        .add_service(v3electionpb::election_server::ElectionServer::new(server.clone()));
    let grpc = grpc.into_axum_router().layer(Gate::new(server.clone()));
    // Outside of the gate, so that rejected calls are counted.
    let grpc = grpc.layer(Counting(server.calls.clone()));
    let observers = endpoints::observation(server);
    Routers { clients: grpc.merge(observers.clone()).merge(endpoints::version()), observers }
}

/// Serves until `stop` completes, then waits up to two seconds for open requests.
pub async fn serve(endpoint: Endpoint, router: Router, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = endpoint.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok(stream) = accepted else {
            // Probably out of file descriptors: closing connections will free some.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (router, watcher, tls) = (router.clone(), graceful.watcher(), endpoint.tls.clone());
        let task = async move {
            let served = match tls {
                None => connection(stream, ConnectionService { router, name: None }, watcher).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => {
                        let name = tls::common_name(&stream).map(PeerName);
                        connection(stream, ConnectionService { router, name }, watcher).await
                    }
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(error) = served {
                tracing::debug!(%error, "a connection failed");
            }
        };
        tokio::spawn(task.in_current_span());
    }
    drop(endpoint);
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

/// The services of one connection; adds the certificate's common name to each request.
#[derive(Clone)]
struct ConnectionService {
    router: Router,
    name: Option<PeerName>,
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Router as Service<Request<Incoming>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        if let Some(name) = &self.name {
            request.extensions_mut().insert(name.clone());
        }
        self.router.call(request)
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: ConnectionService,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        // The default window of 64 KiB would stall watches of busy prefixes.
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(Some(Duration::from_secs(7200)))
        .keep_alive_timeout(Duration::from_secs(20));
    let served = builder
        .serve_connection(TokioIo::new(CorrectedConnection::new(stream)), TowerToHyperService::new(router))
        .into_owned();
    watcher.watch(served).await
}
