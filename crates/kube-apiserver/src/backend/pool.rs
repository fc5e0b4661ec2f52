//! Connection pools for outgoing JSON POST requests.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use client::config::Tls;
use client::transport::{Connector, Stamp, Wire};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::CertificateError;
use tower_service::Service;

use super::{Backend, BoxError, Destination, Directory, ResolveError, Route, Routing, connector, dial, resolve};

/// Maximum number of pools; the least recently used pool is dropped first.
const POOLS_MAX: usize = 128;
/// Idle connections are closed after this time; upstream's value.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 10 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

type Pool = Client<FixedAddressConnector, Full<Bytes>>;

/// The connection pools of outgoing requests.
#[derive(Default)]
pub struct Pools {
    routing: Routing,
    pools: Mutex<Vec<CachedPool>>,
    turn: AtomicUsize,
}

/// The connections to one address with one TLS configuration.
struct CachedPool {
    dial: String,
    server_name: String,
    tls: Tls,
    stamp: Stamp,
    pool: Pool,
    used: usize,
}

/// Reasons why a request failed, with the messages of Go's HTTP client, which operators search for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("Post \"{url}\": {source}")]
    Unresolved {
        /// The request URL.
        url: String,
        source: ResolveError,
    },
    /// The request or the TLS configuration is invalid, or the connection failed.
    #[error("Post \"{url}\": {text}")]
    Failed {
        url: String,
        /// The message of Go's client.
        text: String,
        source: BoxError,
    },
    #[error("Post \"{0}\": context deadline exceeded")]
    Deadline(String),
    #[error("the response of {0} is longer than {RESPONSE_BYTES_MAX} bytes")]
    TooLong(String),
}

impl Pools {
    pub fn new(routing: Routing) -> Self {
        Self { routing, ..Self::default() }
    }

    /// Resolves a backend. Successive calls rotate through the endpoints of a Service.
    pub fn route(&self, backend: &Backend, directory: &dyn Directory) -> Result<Route, ResolveError> {
        resolve(backend, self.routing, directory, self.turn.fetch_add(1, Ordering::Relaxed))
    }

    /// Posts JSON and returns the response within the timeout. `query` is appended to the URL.
    pub async fn post(
        &self,
        directory: &dyn Directory,
        to: &Destination,
        query: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let route = match self.route(&to.backend, directory) {
            Ok(route) => Route { url: with_query(&route.url, query), ..route },
            Err(source) => return Err(CallError::Unresolved { url: display_url(&to.backend, query), source }),
        };
        let url = route.url.to_string();
        let sent = async {
            let pool = self.pool(&route, to).map_err(|source| failed(&url, &route, source))?;
            let request = request(&route.url, to, body).map_err(|source| failed(&url, &route, source.into()))?;
            let response = pool.request(request).await.map_err(|source| failed(&url, &route, source.into()))?;
            let (head, mut body) = response.into_parts();
            let mut whole = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|source| failed(&url, &route, source.into()))?;
                let Ok(data) = frame.into_data() else { continue };
                if whole.len() + data.len() > RESPONSE_BYTES_MAX {
                    return Err(CallError::TooLong(url.clone()));
                }
                whole.extend_from_slice(&data);
            }
            Ok((head.status, whole.freeze()))
        };
        match tokio::time::timeout(within, sent).await {
            Ok(collected) => collected,
            Err(_) => Err(CallError::Deadline(url)),
        }
    }

    /// Returns the pool of a route and TLS configuration; creates the pool if there is none.
    fn pool(&self, route: &Route, to: &Destination) -> Result<Pool, BoxError> {
        let stamp = Stamp::of(to.tls.sources());
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut pools = self.pools.lock().expect("no holder panics");
        let same = |have: &&mut CachedPool| {
            have.dial == route.dial
                && have.server_name == route.server_name
                && have.tls == to.tls
                && have.stamp == stamp
        };
        if let Some(have) = pools.iter_mut().find(same) {
            have.used = turn;
            return Ok(have.pool.clone());
        }
        // HTTP/2 would send all requests over one connection, and so to one endpoint of the Service.
        let protocols: &[&[u8]] = match to.backend {
            Backend::Service { .. } => &[b"http/1.1"],
            Backend::Url(_) => &[b"h2", b"http/1.1"],
        };
        let fixed = FixedAddressConnector { connector: connector(route, &to.tls, protocols)?, route: route.clone() };
        let pool = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(fixed);
        // Pools of the same address with outdated certificates are dropped.
        pools.retain(|have| have.dial != route.dial || have.server_name != route.server_name || have.tls != to.tls);
        if pools.len() >= POOLS_MAX
            && let Some(oldest) = (0..pools.len()).min_by_key(|at| pools[*at].used)
        {
            pools.swap_remove(oldest);
        }
        let (dial, server_name) = (route.dial.clone(), route.server_name.clone());
        pools.push(CachedPool { dial, server_name, tls: to.tls.clone(), stamp, pool: pool.clone(), used: turn });
        Ok(pool)
    }
}

/// A connector that dials a fixed address and ignores the host of the URL.
#[derive(Clone)]
struct FixedAddressConnector {
    connector: Connector,
    route: Route,
}

impl Service<Uri> for FixedAddressConnector {
    type Response = TokioIo<Wire>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { connector, route } = self.clone();
        Box::pin(async move { dial(connector, &route).await })
    }
}

fn request(url: &Uri, to: &Destination, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(CONTENT_TYPE, JSON)
        .header(ACCEPT, HeaderValue::from_static("application/json, */*"))
        .header(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"))
        .body(Full::new(body))?;
    if let Some(authorization) = &to.authorization {
        request.headers_mut().insert(AUTHORIZATION, authorization.clone());
    }
    Ok(request)
}

fn with_query(url: &Uri, query: &str) -> Uri {
    if query.is_empty() {
        return url.clone();
    }
    let joint = if url.query().is_some() { '&' } else { '?' };
    Uri::try_from(format!("{url}{joint}{query}")).unwrap_or_else(|_| url.clone())
}

fn display_url(backend: &Backend, query: &str) -> String {
    match backend {
        Backend::Url(url) => with_query(url, query).to_string(),
        Backend::Service { namespace, name, port, path } => {
            let path = path.trim_start_matches('/');
            let mark = if query.is_empty() { "" } else { "?" };
            format!("https://{name}.{namespace}.svc:{port}/{path}{mark}{query}")
        }
    }
}

fn failed(url: &str, route: &Route, source: BoxError) -> CallError {
    CallError::Failed { url: url.to_owned(), text: go_text(&*source, route), source }
}

/// Returns the message of Go's HTTP client for a failure.
pub(crate) fn go_text(error: &(dyn StdError + 'static), route: &Route) -> String {
    let dial = &route.dial;
    let mut at = Some(error);
    let mut last = error.to_string();
    while let Some(error) = at {
        last = error.to_string();
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return tls_text(error, route);
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                return tls_text(inner, route);
            }
            match error.kind() {
                io::ErrorKind::ConnectionRefused => return format!("dial tcp {dial}: connect: connection refused"),
                io::ErrorKind::HostUnreachable => return format!("dial tcp {dial}: connect: no route to host"),
                io::ErrorKind::NetworkUnreachable => {
                    return format!("dial tcp {dial}: connect: network is unreachable");
                }
                io::ErrorKind::ConnectionReset => return "read: connection reset by peer".to_owned(),
                io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
                _ => {}
            }
        }
        at = error.source();
    }
    last
}

fn tls_text(error: &rustls::Error, route: &Route) -> String {
    let message = match error {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_),
        ) => "certificate signed by unknown authority".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "certificate has expired or is not yet valid".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("certificate is not valid for {}", route.server_name),
        other => return other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {message}")
}
