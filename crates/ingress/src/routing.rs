//! The routing table of the proxy, as data.
//!
//! The planner resolves every reference, so the table names addresses and certificates instead of API objects. Routes
//! are in order of precedence: the first match wins, and the proxy never compares routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};

/// All listeners of the proxy. A new table replaces the old one atomically.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutingTable {
    pub listeners: BTreeMap<ListenAddress, Listener>,
}

/// The address of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenAddress {
    pub port: u16,
    /// `None`: the addresses that the proxy is configured with.
    pub ip: Option<IpAddr>,
}

/// One port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listener {
    /// Terminates TLS with these certificates. Without them, the listener serves plain HTTP.
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
    /// Host names of Gateway listeners. A connection whose SNI name selects one of them is not served the hosts of
    /// another.
    pub isolated: BTreeSet<HostPattern>,
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
        /// Whether the wildcard matches several labels (Gateway API) or exactly one (Ingress).
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
    /// Matches `/SERVICE/METHOD` with this method of any gRPC service.
    GrpcMethod(String),
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
    /// Responds without a backend, for instance with 404, or with 500 for a reference that cannot be resolved.
    Respond(StatusCode),
    /// Responds with this text.
    Answer(String),
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
    /// Responds with this status: 500 for a reference that cannot be resolved, 503 for a Service without endpoints.
    Status(StatusCode),
}

/// The endpoints of one port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// `namespace/service:port`, the key of the connection pool.
    pub name: String,
    pub protocol: BackendProtocol,
    /// Ready endpoints. If empty, the proxy responds with 503.
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
    /// SNI name, and the name that the certificate must contain unless `alternative_names` are given.
    pub server_name: String,
    /// PEM of the trusted CAs; `None` does not verify the certificate.
    pub ca_pem: Option<Arc<Vec<u8>>>,
    /// If not empty, the certificate must contain one of these names instead of `server_name`.
    pub alternative_names: Vec<AlternativeName>,
}

/// A subject alternative name of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlternativeName {
    /// A host name, which may start with `*.`.
    Dns(String),
    Uri(String),
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
    /// Time limit of the request including retries.
    pub request_timeout: Option<Duration>,
    /// Time limit of one attempt, from the request to the end of the response.
    pub backend_timeout: Option<Duration>,
    /// A larger request body is rejected with 413.
    pub body_bytes_max: Option<u64>,
    /// Responds to preflight requests and allows other origins to read responses.
    pub cors: Option<Arc<CorsPolicy>>,
}

/// Cross-origin resource sharing (CORS).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CorsPolicy {
    pub origins: CorsOrigins,
    pub credentials: bool,
    pub methods: CorsNames,
    pub request_headers: CorsNames,
    /// Headers of responses that scripts may read.
    pub exposed_headers: Vec<String>,
    pub max_age_seconds: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorsOrigins {
    Any,
    Some(Vec<OriginPattern>),
}

/// `SCHEME://HOST:PORT`, where the host may be a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginPattern {
    pub scheme: String,
    pub host: HostPattern,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorsNames {
    Any,
    Some(Vec<String>),
}

impl Default for CorsOrigins {
    fn default() -> CorsOrigins {
        CorsOrigins::Some(Vec::new())
    }
}

impl Default for CorsNames {
    fn default() -> CorsNames {
        CorsNames::Some(Vec::new())
    }
}

impl OriginPattern {
    /// Parses an origin, whose port is optional. A host that starts with `*.` matches one or more labels.
    pub fn parse(origin: &str) -> Option<OriginPattern> {
        let (scheme, rest) = origin.split_once("://")?;
        let known = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (rest, known),
        };
        let host = host.to_ascii_lowercase();
        let host = match host.strip_prefix("*.") {
            Some(suffix) => HostPattern::Wildcard { suffix: suffix.to_owned(), many_labels: true },
            None if host == "*" => HostPattern::Any,
            None => HostPattern::Exact(host),
        };
        Some(OriginPattern { scheme: scheme.to_owned(), host, port })
    }

    /// Whether an origin without wildcards matches the pattern.
    pub fn includes(&self, origin: &OriginPattern) -> bool {
        let HostPattern::Exact(name) = &origin.host else { return false };
        let host = match &self.host {
            HostPattern::Any => true,
            HostPattern::Exact(own) => own == name,
            HostPattern::Wildcard { suffix, .. } => {
                name.strip_suffix(suffix).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
            }
        };
        host && self.scheme == origin.scheme && self.port == origin.port
    }
}

impl From<u16> for ListenAddress {
    /// Returns a port of the addresses that the proxy is configured with.
    fn from(port: u16) -> ListenAddress {
        ListenAddress { port, ip: None }
    }
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
