//! Test backend: a small server with or without TLS that can upgrade connections.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A received request: head and body.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub method: String,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A handler of upgrade requests, whose extensions contain the connection.
pub(crate) type UpgradeHandler = Arc<dyn Fn(Request<Incoming>) -> Option<Response<Full<Bytes>>> + Send + Sync>;

/// A handler of plain HTTP requests.
type Plain = dyn Fn(&ReceivedRequest) -> Response<Full<Bytes>> + Send + Sync;

/// A running server; it stops when dropped.
pub(crate) struct Backend {
    pub address: SocketAddr,
    pub certificate: String,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    _tasks: JoinSet<()>,
}

impl Backend {
    /// Listens with a certificate for these names, or without TLS if there are none. `switch` handles upgrade requests,
    /// `plain` all others.
    pub(crate) async fn start(
        ip: IpAddr,
        names: &[&str],
        switch: UpgradeHandler,
        plain: impl Fn(&ReceivedRequest) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let made = rcgen::generate_simple_self_signed(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let made = made.unwrap();
        let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let tls = (!names.is_empty()).then(|| TlsAcceptor::from(Arc::new(config)));
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let serving = Serving { switch, plain: Arc::new(plain), seen: Arc::clone(&seen) };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, serving) = (tls.clone(), serving.clone());
                open.spawn(async move {
                    match tls {
                        None => serving.connection(stream).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serving.connection(stream).await,
                            Err(error) => println!("a handshake failed: {error}"),
                        },
                    }
                });
            }
        });
        Self { address, certificate: made.cert.pem(), seen, _tasks: tasks }
    }

    /// Returns all requests so far.
    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct Serving {
    switch: UpgradeHandler,
    plain: Arc<Plain>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Serving {
    async fn connection(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(move |request: Request<Incoming>| {
            let serving = self.clone();
            async move { Ok::<_, Infallible>(serving.respond(request).await) }
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let mut seen = ReceivedRequest {
            method: request.method().to_string(),
            path: request.uri().path_and_query().unwrap().to_string(),
            headers: request.headers().clone(),
            body: Bytes::new(),
        };
        if request.headers().contains_key("upgrade") {
            self.seen.lock().unwrap().push(seen);
            return (self.switch)(request)
                .unwrap_or_else(|| Response::builder().status(400).body(Full::default()).unwrap());
        }
        seen.body = request.into_body().collect().await.unwrap().to_bytes();
        self.seen.lock().unwrap().push(seen.clone());
        (self.plain)(&seen)
    }
}

/// Returns a handler that never upgrades.
pub(crate) fn never() -> UpgradeHandler {
    Arc::new(|_| None)
}
