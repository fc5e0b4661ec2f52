//! Scripted HTTP server over TLS for the wire tests.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use apimachinery::{Value, json};
use bytes::Bytes;
use client::backoff::Backoff;
use client::config::{Pem, Tls};
use client::{Client, Config, Settings};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

/// Timeout of all waits in tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A CA that issues the test certificates.
pub(crate) struct TestCa(CertifiedIssuer<'static, KeyPair>);

/// A running server, stopped on drop.
pub(crate) struct Server {
    pub address: SocketAddr,
    pub ca: TestCa,
    calls: mpsc::Receiver<Call>,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

/// A request that waits for its response.
pub(crate) struct Call {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub version: Version,
    /// The client certificate.
    pub peer: Option<CertificateDer<'static>>,
    reply: oneshot::Sender<Response<Feed>>,
}

/// The remaining response body, sent by a test.
pub(crate) struct Stream(mpsc::Sender<Result<Bytes, std::io::Error>>);

/// The response body fed by a test.
pub(crate) struct Feed(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl TestCa {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate and key for these names.
    pub(crate) fn issue(&self, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(&["h2", "http/1.1"]).await
    }

    /// Starts a server with these ALPN protocols.
    pub(crate) async fn start_with(protocols: &[&str]) -> Self {
        let ca = TestCa::new();
        let (certificate, key) = ca.issue(&["localhost", "127.0.0.1", "kubernetes"]);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, calls) = mpsc::channel(64);
        let connections = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), sender, Arc::clone(&connections)));
        Self { address, ca, calls, connections, task }
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns a configuration that trusts this server.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(format!("https://{}", self.address).parse().unwrap());
        config.tls = Tls { certificate_authority: Some(Pem::Inline(self.ca.pem().into())), ..Tls::default() };
        config
    }

    /// Returns a client of this server with short waits.
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.config(), impatient()).unwrap()
    }

    pub(crate) async fn next(&mut self) -> Call {
        let call = tokio::time::timeout(DEADLINE, self.calls.recv()).await;
        call.expect("no request came").expect("the server runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns settings with short waits.
pub(crate) fn impatient() -> Settings {
    let backoff = Backoff { first: Duration::from_millis(5), max: Duration::from_millis(20) };
    Settings { backoff, ..Settings::default() }
}

impl Call {
    /// Responds with an object.
    pub(crate) fn respond(self, value: &Value) {
        self.respond_with(StatusCode::OK, &[], &json::to_string(value));
    }

    pub(crate) fn respond_with(self, status: StatusCode, headers: &[(&str, &str)], body: &str) {
        let (sender, feed) = mpsc::channel(1);
        sender.try_send(Ok(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        self.reply(status, headers, feed);
    }

    /// Starts a response that the test continues.
    pub(crate) fn stream(self) -> Stream {
        let (sender, feed) = mpsc::channel(1);
        self.reply(StatusCode::OK, &[], feed);
        Stream(sender)
    }

    fn reply(self, status: StatusCode, headers: &[(&str, &str)], feed: mpsc::Receiver<Result<Bytes, std::io::Error>>) {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        // The client may have disconnected.
        drop(self.reply.send(response.body(Feed(feed)).unwrap()));
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Stream {
    /// Sends bytes. Panics if the client does not receive them in time.
    pub(crate) async fn send(&self, text: &str) {
        let sent = self.0.send(Ok(Bytes::copy_from_slice(text.as_bytes())));
        tokio::time::timeout(DEADLINE, sent).await.expect("the client reads").expect("the client is connected");
    }

    /// Sends a watch event.
    pub(crate) async fn event(&self, kind: &str, object: Value) {
        let event = apimachinery::value!({"type": kind, "object": object});
        self.send(&format!("{event}\n")).await;
    }

    /// Aborts the response with an error.
    pub(crate) async fn abort(self) {
        drop(self.0.send(Err(std::io::Error::other("broken off"))).await);
    }

    /// Waits until the client cancels the request.
    pub(crate) async fn abandoned(&self) {
        tokio::time::timeout(DEADLINE, self.0.closed()).await.expect("the client disconnects");
    }
}

impl http_body::Body for Feed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(task).map(|item| item.map(|item| item.map(Frame::data)))
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    calls: mpsc::Sender<Call>,
    connections: Arc<AtomicUsize>,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(serve(stream, acceptor.clone(), calls.clone()));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, calls: mpsc::Sender<Call>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let peer = stream.get_ref().1.peer_certificates().map(|chain| chain[0].clone().into_owned());
    let service = service_fn(move |request: Request<Incoming>| handle(request, peer.clone(), calls.clone()));
    // The client may disconnect at any time.
    drop(auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await);
}

async fn handle(
    request: Request<Incoming>,
    peer: Option<CertificateDer<'static>>,
    calls: mpsc::Sender<Call>,
) -> Result<Response<Feed>, Box<dyn std::error::Error + Send + Sync>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (reply, response) = oneshot::channel();
    let call = Call {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
        version: parts.version,
        peer,
        reply,
    };
    calls.send(call).await?;
    Ok(response.await?)
}
