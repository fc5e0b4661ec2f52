//! The routing table: what the proxy serves, as data.
//!
//! The planner resolves every reference, so the table names addresses and certificates instead of API objects. Routes are
//! in order of precedence: the first match wins, and the proxy never compares routes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};

/// Everything the proxy serves. A new table replaces the old one as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutingTable {
    /// Listeners by port.
    pub listeners: BTreeMap<u16, Listener>,
}

/// One port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listener {
    /// Terminates TLS with these certificates. A listener without them speaks plain HTTP.
    pub tls: Option<TlsTermination>,
    /// Requires the PROXY protocol (v1 or v2) before each connection.
    pub proxy_protocol: bool,
    /// The proxy selects an exact name before the longest wildcard before `Any`.
    pub hosts: BTreeMap<HostPattern, VirtualHost>,
}

/// Certificates of a listener, selected by the SNI name of the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsTermination {
    pub certificates: BTreeMap<HostPattern, Arc<Certificate>>,
    /// Used if no pattern matches. Without it, the handshake of an unknown name fails.
    pub default: Option<Arc<Certificate>>,
}

/// A certificate chain and its key as PEM, validated by the planner.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    pub chain_pem: Vec<u8>,
    pub key_pem: Vec<u8>,
}

/// A host name of a listener or a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostPattern {
    /// `www.example.com`, in lower case.
    Exact(String),
    /// `*.example.com`, stored as `example.com`, in lower case.
    Wildcard {
        suffix: String,
        /// Whether the wildcard stands for several labels (Gateway API) or exactly one (Ingress).
        many_labels: bool,
    },
    Any,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VirtualHost {
    /// In order of precedence.
    pub routes: Vec<Arc<Route>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// `Kind/namespace/name`, for logs and metrics.
    pub source: String,
    pub matches: RequestMatch,
    pub filters: Vec<Filter>,
    pub action: Action,
    pub options: RouteOptions,
}

/// All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestMatch {
    pub path: PathMatch,
    pub method: Option<Method>,
    pub headers: Vec<(HeaderName, ValueMatch)>,
    pub query: Vec<(String, ValueMatch)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathMatch {
    Exact(String),
    /// Matches whole path segments: `/foo` matches `/foo` and `/foo/bar`, not `/foobar`.
    Prefix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueMatch {
    Exact(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Chooses a backend by weight.
    Forward(Vec<WeightedBackend>),
    Redirect(Redirect),
    /// Answers without a backend, for instance 404 or 500 for a reference that cannot be resolved.
    Respond(StatusCode),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightedBackend {
    /// 0 receives no requests.
    pub weight: u32,
    pub target: BackendTarget,
    /// Filters of this backend, applied after those of the route.
    pub filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendTarget {
    Endpoints(Arc<Backend>),
    /// Answers with this status: 500 for a reference that cannot be resolved, 503 for a Service without endpoints.
    Status(StatusCode),
}

/// The endpoints of one port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// `namespace/service:port`, the key of the connection pool.
    pub name: String,
    pub protocol: BackendProtocol,
    /// Ready endpoints. Empty: the proxy answers 503.
    pub endpoints: Vec<SocketAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendProtocol {
    /// HTTP/1.1, with upgrades (WebSocket).
    Http1,
    /// HTTP/2 without TLS (gRPC, `kubernetes.io/h2c`).
    Http2,
    /// HTTP over TLS.
    Https(BackendTls),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendTls {
    /// SNI name, and the name that the certificate must carry.
    pub server_name: String,
    /// PEM of the trusted CAs; `None` does not verify the certificate.
    pub ca_pem: Option<Arc<Vec<u8>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    ModifyRequestHeaders(HeaderChange),
    ModifyResponseHeaders(HeaderChange),
    RewriteUrl {
        hostname: Option<String>,
        path: Option<PathRewrite>,
    },
    /// Sends a copy of the request and ignores the response.
    Mirror(MirrorTarget),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorTarget {
    pub target: BackendTarget,
    /// The share of requests, as a fraction.
    pub numerator: u32,
    pub denominator: u32,
}

/// Applied in this order: set, add, remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderChange {
    pub set: Vec<(HeaderName, HeaderValue)>,
    pub add: Vec<(HeaderName, HeaderValue)>,
    pub remove: Vec<HeaderName>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathRewrite {
    Full(String),
    /// Replaces the prefix that the route matched.
    Prefix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    /// `None`: the well-known port of `scheme` if that is given, else the listener's port.
    pub port: Option<u16>,
    pub path: Option<PathRewrite>,
    pub status: StatusCode,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteOptions {
    /// Time for the whole request, with retries.
    pub request_timeout: Option<Duration>,
    /// Time for one attempt, from the request to the end of the response.
    pub backend_timeout: Option<Duration>,
    /// A larger request body is answered with 413.
    pub body_bytes_max: Option<u64>,
}

impl Default for PathMatch {
    fn default() -> PathMatch {
        PathMatch::Prefix("/".to_owned())
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not appear in a log.
        formatter.debug_struct("Certificate").field("chain_bytes", &self.chain_pem.len()).finish_non_exhaustive()
    }
}
