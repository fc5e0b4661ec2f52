//! Listening: gRPC and HTTP on the same ports, with or without TLS.

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

use super::authority::Mended;
use super::caller::PeerName;
use super::calls::Counting;
use super::gate::Gate;
use super::proto::{etcdserverpb as pb, v3electionpb, v3lockpb};
use super::tls::{self, ServerTls};
use super::{Config, Server, http as endpoints};
use crate::backend::Backend;
use crate::peer::Stream;

/// Requests larger than the limit by less than this still get etcd's own answer instead of a closed stream.
const REQUEST_OVERHEAD_BYTES: usize = 512 * 1024;
/// Streams one client may have open.
const STREAMS_MAX: u32 = 1_000_000;
/// How long open requests may go on when the server stops.
const DRAIN: Duration = Duration::from_secs(2);

/// An address that is listened on.
#[derive(Debug)]
pub struct Endpoint {
    socket: Socket,
    /// How clients are met; none is in the clear.
    pub tls: Option<ServerTls>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// An address that could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ServeError {
    address: String,
    source: io::Error,
}

impl Endpoint {
    /// Opens an address such as `127.0.0.1:2379`.
    pub async fn open(address: &str, tls: Option<ServerTls>) -> Result<Self, ServeError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| ServeError { address: address.to_owned(), source })?;
        Ok(Self { socket: Socket::Tcp(listener), tls })
    }

    /// Opens a socket of this machine that only its owner may connect to. One that a process left there that died is replaced.
    pub fn open_own(path: &Path) -> Result<Self, ServeError> {
        let failed = |source| ServeError { address: path.display().to_string(), source };
        let listener = sys::listen_own(path).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { socket: Socket::Unix(UnixListener::from_std(listener).map_err(failed)?), tls: None })
    }

    /// The address, with the port that was given for port 0.
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

/// What is asked of a store for the sake of its keeping alone: how it is, and all that it has.
pub fn maintenance<B: Backend>(backend: B, config: Config) -> Router {
    let server = Server { trusted: true, ..Server::new(backend, config) };
    Routes::new(pb::maintenance_server::MaintenanceServer::new(server)).into_axum_router()
}

/// What is served to clients, and what to those who only look how the member is.
pub struct Routers {
    /// All services and end points.
    pub clients: Router,
    /// Health and metrics, and nothing of what the store holds.
    pub observers: Router,
}

/// All services and end points.
pub fn router<B: Backend>(backend: B, config: Config) -> Router {
    routers(backend, config).clients
}

/// Services and end points for each kind of listener.
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
    // Outside the gate: what it refuses was called, too.
    let grpc = grpc.layer(Counting(server.calls.clone()));
    let observers = endpoints::observation(server);
    Routers { clients: grpc.merge(observers.clone()).merge(endpoints::version()), observers }
}

/// Serves until `stop` completes, then lets open requests finish for a moment.
pub async fn serve(endpoint: Endpoint, router: Router, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = endpoint.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok(stream) = accepted else {
            // Out of descriptors, most likely: connections that close will free some.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (router, watcher, tls) = (router.clone(), graceful.watcher(), endpoint.tls.clone());
        tokio::spawn(async move {
            let served = match tls {
                None => connection(stream, Named { router, name: None }, watcher).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => {
                        let name = tls::common_name(&stream).map(PeerName);
                        connection(stream, Named { router, name }, watcher).await
                    }
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended badly");
            }
        });
    }
    drop(endpoint);
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

/// The services as one connection reaches them: each request knows the name on the client's certificate.
#[derive(Clone)]
struct Named {
    router: Router,
    name: Option<PeerName>,
}

impl Service<Request<Incoming>> for Named {
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
    router: Named,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        // A watch of a busy prefix must not stall on the default window of 64 KiB.
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(Some(Duration::from_secs(7200)))
        .keep_alive_timeout(Duration::from_secs(20));
    let served =
        builder.serve_connection(TokioIo::new(Mended::new(stream)), TowerToHyperService::new(router)).into_owned();
    watcher.watch(served).await
}
