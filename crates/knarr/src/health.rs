//! Secure port of a component: health checks and metrics.
//!
//! `/healthz`, `/livez` and `/readyz` need no authorization, `/metrics` and `/metrics/slis` do.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use client::Client;
use component_base::connection::{self, Body};
use component_base::health::{Endpoint, HealthRequest, Outcome, SLIS_PATH, Slis};
use component_base::reviews::Reviews;
use component_base::{ReloadedValue, TlsSettings, read_certificate, serve_connection};
use controller_runtime::Caches;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::SingleCertAndKey;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::component::ApiEndpoint;

/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections. Further clients wait.
const CONNECTIONS_MAX: usize = 64;

/// Options of the secure port.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub name: &'static str,
    /// Serving certificate. Without one a self-signed certificate is generated.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Paths served without authentication and authorization.
    pub open: Vec<String>,
    /// Kubeconfig for TokenReviews, if not the component's client.
    pub authentication: Option<PathBuf>,
    /// Kubeconfig for SubjectAccessReviews, if not the component's client.
    pub authorization: Option<PathBuf>,
}

/// Health checks and metrics of the process.
#[derive(Clone)]
pub(crate) struct Health(Arc<Inner>);

struct Inner {
    reviews: Reviews,
    options: Options,
    /// Returns the component's metrics in Prometheus text format.
    metrics: Box<dyn Fn() -> String + Send + Sync>,
    tls: Tls,
    leads: AtomicBool,
    started_seconds: f64,
    checks: Mutex<Vec<Check>>,
    slis: Slis,
}

/// A named health check and the endpoints that run it.
struct Check {
    name: &'static str,
    endpoints: &'static [Endpoint],
    run: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

pub(crate) async fn listen(address: IpAddr, port: u16) -> Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address} (--secure-port)"))
}

impl Health {
    /// Creates the state of a process that is not the leader. `metrics` returns the component's metrics.
    pub(crate) fn new(
        client: &Client,
        options: Options,
        metrics: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let settings = client::Settings { user_agent: options.name.to_owned(), ..client::Settings::default() };
        let by = |kubeconfig: &Option<PathBuf>| match kubeconfig {
            Some(file) => ApiEndpoint::new(Some(file), None, None)?.client(settings.clone()),
            None => Ok(client.clone()),
        };
        Ok(Self(Arc::new(Inner {
            reviews: Reviews::by(by(&options.authentication)?, by(&options.authorization)?),
            tls: Tls::new(&options)?,
            options,
            metrics: Box::new(metrics),
            leads: AtomicBool::new(false),
            started_seconds: since.as_secs_f64(),
            checks: Mutex::default(),
            slis: Slis::default(),
        })))
    }

    /// Adds a check to some of the endpoints. An endpoint without checks has `ping`.
    pub(crate) fn add(
        &self,
        name: &'static str,
        endpoints: &'static [Endpoint],
        run: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let check = Check { name, endpoints, run: Box::new(run) };
        self.0.checks.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Records that this process is the leader.
    pub(crate) fn elected(&self) {
        self.0.leads.store(true, Ordering::Relaxed);
    }

    /// Serves until the future is dropped.
    pub(crate) async fn serve(self, listener: TcpListener) {
        component_base::accept(listener, CONNECTIONS_MAX, std::future::pending(), |stream, _, slot| {
            let health = self.clone();
            async move {
                health.connection(stream).await;
                drop(slot);
            }
        })
        .await;
    }

    async fn connection(&self, stream: TcpStream) {
        let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, self.0.tls.acceptor().accept(stream)).await else {
            return;
        };
        let health = self.clone();
        serve_connection(stream, move |request| {
            let health = health.clone();
            async move { health.respond(&request).await }
        })
        .await;
    }

    async fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        if !self.is_open(path) {
            match self.may(request).await {
                Ok(true) => {}
                Ok(false) => return text(StatusCode::FORBIDDEN, "forbidden\n".to_owned()),
                Err(error) => return text(StatusCode::UNAUTHORIZED, format!("{error:#}\n")),
            }
        }
        match path {
            "/metrics" => text(StatusCode::OK, self.metrics()),
            SLIS_PATH => text(StatusCode::OK, self.0.slis.text()),
            _ => match self.check(path, request.uri().query().unwrap_or_default()) {
                Some((code, body)) => text(code, body),
                None => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
            },
        }
    }

    /// Runs the checks selected by path and query. Returns `None` for other paths.
    fn check(&self, path: &str, query: &str) -> Option<(StatusCode, String)> {
        let request = HealthRequest::parse(path, query)?;
        let checks = self.0.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let here = checks.iter().filter(|check| check.endpoints.contains(&request.endpoint));
        let run = |check: &Check| (check.name, request.selects(check.name).then(|| (check.run)()));
        let mut outcomes: Vec<(&str, Outcome)> = here.map(run).collect();
        if outcomes.is_empty() {
            outcomes.push(("ping", request.selects("ping").then_some(Ok(()))));
        }
        let response = self.0.slis.respond(&request, &outcomes)?;
        let code = StatusCode::from_u16(response.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Some((code, response.text))
    }

    fn is_open(&self, path: &str) -> bool {
        self.0.options.open.iter().any(|open| match open.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == open,
        })
    }

    /// Authenticates and authorizes a request with a TokenReview and a SubjectAccessReview.
    async fn may(&self, request: &Request<Incoming>) -> Result<bool> {
        let header = request.headers().get(AUTHORIZATION).and_then(|header| header.to_str().ok());
        let Some(token) = header.and_then(|header| header.strip_prefix("Bearer ")) else { return Ok(false) };
        let Some(user) = self.0.reviews.who(token).await else { bail!("Unauthorized") };
        let verb = request.method().as_str().to_ascii_lowercase();
        Ok(self.0.reviews.may_access_path(&user, &verb, request.uri().path()).await?)
    }

    fn metrics(&self) -> String {
        let leads = u8::from(self.0.leads.load(Ordering::Relaxed));
        let mut out = String::new();
        let mut gauge = |name: &str, help: &str, labels: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name}{labels} {value}");
        };
        gauge(
            "leader_election_master_status",
            "Whether this process holds its leader election lease.",
            &format!("{{name={:?}}}", self.0.options.name),
            &leads,
        );
        gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            "",
            &self.0.started_seconds,
        );
        if let Some(bytes) = resident_bytes() {
            gauge("process_resident_memory_bytes", "Resident memory size in bytes.", "", &bytes);
        }
        out.push_str(&(self.0.metrics)());
        out
    }
}

/// The check `informer-sync`: fails until every watched kind has been listed.
pub(crate) fn synced(caches: &Caches) -> Result<(), String> {
    let unsynced: Vec<String> = caches.unsynced().iter().map(ToString::to_string).collect();
    if unsynced.is_empty() { Ok(()) } else { Err(format!("not listed yet: {}", unsynced.join(", "))) }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(connection::full(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The TLS configuration in use.
enum Tls {
    /// A configured certificate, reloaded when its files change.
    Configured(ReloadedValue<ServerConfig>),
    /// A self-signed certificate generated for this run.
    SelfSigned(Arc<ServerConfig>),
}

impl Tls {
    fn new(options: &Options) -> Result<Self> {
        match (&options.certificate, &options.key) {
            (Some(certificate), Some(key)) => {
                let (certificate, key) = (certificate.clone(), key.clone());
                let files = vec![certificate.clone(), key.clone()];
                Ok(Self::Configured(ReloadedValue::new(files, move || given(&certificate, &key))?))
            }
            (None, None) => Ok(Self::SelfSigned(Arc::new(made()?))),
            _ => bail!("--tls-cert-file and --tls-private-key-file must be given together"),
        }
    }

    fn acceptor(&self) -> TlsAcceptor {
        match self {
            Self::Configured(given) => TlsAcceptor::from(given.current()),
            Self::SelfSigned(made) => TlsAcceptor::from(Arc::clone(made)),
        }
    }
}

fn given(certificate: &Path, key: &Path) -> Result<ServerConfig, component_base::TlsError> {
    let settings = TlsSettings::default();
    let certified_key = read_certificate(certificate, key, &*settings.provider()?)?;
    let builder = settings.server_without_client_certificates()?;
    Ok(with_protocols(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified_key)))))
}

fn made() -> Result<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let builder = TlsSettings::default().server_without_client_certificates()?;
    Ok(with_protocols(builder.with_single_cert(vec![made.cert.der().clone()], key.into())?))
}

fn with_protocols(mut config: ServerConfig) -> ServerConfig {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn options(certificate: &Path, key: &Path) -> Options {
        let (certificate, key) = (Some(certificate.to_owned()), Some(key.to_owned()));
        Options { name: "test", certificate, key, open: Vec::new(), authentication: None, authorization: None }
    }

    #[test]
    fn renewed_certificate_is_served_without_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        let write = || {
            let made = rcgen::generate_simple_self_signed(["test".to_owned()]).unwrap();
            std::fs::write(&certificate, made.cert.pem()).unwrap();
            std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        };
        write();
        let tls = Tls::new(&options(&certificate, &key)).unwrap();
        let Tls::Configured(given) = &tls else { panic!("the given certificate is used") };
        let old = given.current();
        write();
        let deadline = Instant::now() + Duration::from_secs(30);
        while Arc::ptr_eq(&given.current(), &old) {
            assert!(Instant::now() < deadline, "the server still presents the old certificate");
            std::thread::yield_now();
        }
    }
}
