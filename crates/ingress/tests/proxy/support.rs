//! Backends, tables and clients of the tests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use ingress::proxy::{Proxy, Settings};
use ingress::routing::{
    Action, Backend, BackendProtocol, BackendTarget, HostPattern, Listener, PathMatch, RequestMatch, Route,
    RouteOptions, RoutingTable, VirtualHost, WeightedBackend,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A deadline for everything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type TestBody = BoxBody<Bytes, Infallible>;

pub(crate) fn full(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).boxed()
}

/// Starts a backend that answers by `respond`.
pub(crate) async fn backend<F, R>(respond: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Response<TestBody>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let respond = respond.clone();
            let service = service_fn(move |request| {
                let response = respond(request);
                async move { Ok::<_, Infallible>(response.await) }
            });
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// Starts a backend that answers with its name, the request line, the headers and the body.
pub(crate) async fn echo(name: &'static str) -> SocketAddr {
    backend(move |request: Request<Incoming>| async move {
        let (parts, body) = request.into_parts();
        let mut text = format!("{name}\n{} {}\n", parts.method, parts.uri);
        for (name, value) in &parts.headers {
            text += &format!("{name}: {}\n", value.to_str().unwrap());
        }
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        text += &format!("\n{}", String::from_utf8_lossy(&body));
        Response::builder().header("keep-alive", "timeout=9").header("x-backend", name).body(full(text)).unwrap()
    })
    .await
}

pub(crate) fn endpoints(name: &str, endpoints: &[SocketAddr]) -> WeightedBackend {
    speaking(name, endpoints, BackendProtocol::Http1)
}

pub(crate) fn speaking(name: &str, endpoints: &[SocketAddr], protocol: BackendProtocol) -> WeightedBackend {
    let backend = Backend { name: name.to_owned(), protocol, endpoints: endpoints.to_vec() };
    WeightedBackend { weight: 1, target: BackendTarget::Endpoints(Arc::new(backend)), filters: Vec::new() }
}

/// A route for a path prefix.
pub(crate) fn route(prefix: &str, action: Action) -> Route {
    Route {
        source: "Ingress/default/test".to_owned(),
        matches: RequestMatch { path: PathMatch::Prefix(prefix.to_owned()), ..RequestMatch::default() },
        filters: Vec::new(),
        action,
        options: RouteOptions::default(),
    }
}

pub(crate) fn forward(prefix: &str, backend: WeightedBackend) -> Route {
    route(prefix, Action::Forward(vec![backend]))
}

pub(crate) fn exact(host: &str) -> HostPattern {
    HostPattern::Exact(host.to_owned())
}

pub(crate) fn listener(hosts: Vec<(HostPattern, Vec<Route>)>) -> Listener {
    let host = |(pattern, routes): (HostPattern, Vec<Route>)| {
        (pattern, VirtualHost { routes: routes.into_iter().map(Arc::new).collect() })
    };
    Listener { hosts: hosts.into_iter().map(host).collect(), ..Listener::default() }
}

pub(crate) fn table(listener: Listener) -> RoutingTable {
    RoutingTable { listeners: BTreeMap::from([(0.into(), listener)]) }
}

pub(crate) fn settings() -> Settings {
    Settings { bind: vec![Ipv4Addr::LOCALHOST.into()], ..Settings::default() }
}

/// Starts a proxy and returns its address.
pub(crate) async fn start(settings: Settings, table: RoutingTable) -> (Arc<Proxy>, SocketAddr) {
    let proxy = Arc::new(Proxy::new(settings));
    assert!(proxy.replace(table).await.is_empty());
    let address = proxy.addresses()[0].1;
    (proxy, address)
}

/// Starts a proxy that sends everything to the routes.
pub(crate) async fn serve(routes: Vec<Route>) -> (Arc<Proxy>, SocketAddr) {
    start(settings(), table(listener(vec![(HostPattern::Any, routes)]))).await
}

/// Sends bytes and returns everything until the proxy closes the connection.
pub(crate) async fn exchange(address: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes.as_ref()).await;
    read_all(&mut stream).await
}

pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    // A reset after the response is a close, too.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("the connection stays open");
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads until the text contains `end`.
pub(crate) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end) {
        let mut buffer = [0; 4096];
        let length = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await.expect(&text).unwrap();
        assert!(length > 0, "the connection closed after {text:?}");
        text += &String::from_utf8_lossy(&buffer[..length]);
    }
    text
}

/// Sends a GET request on a connection of its own.
pub(crate) async fn get(address: SocketAddr, host: &str, path: &str) -> String {
    exchange(address, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await
}

/// Returns the status code of a response.
pub(crate) fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or_default()
}
