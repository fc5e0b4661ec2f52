//! The kubelet server: logs, exec, statistics and health, with delegated authentication and authorization.

mod access;
mod cadvisor;
mod collected;
mod logs;
mod metrics;
mod stream;
mod summary;
mod tls;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use apimachinery::{Value, json, value};
use bytes::Bytes;
use client::Client;
use component_base::connection::{Body, full};
use component_base::health::{HealthRequest, LogProbe, Outcome, Slis};
use component_base::{Slot, serve_connection};
use futures_util::Stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use percent_encoding::percent_decode_str;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::bootstrap::{self, Purpose};
use crate::config::Config;
use crate::context::Context;
use crate::pod::Pod;
use crate::pods::PodTable;
use crate::runtime_status::Container;
use access::{Access, Authentication};
use tls::Tls;

pub use tls::TlsError;

/// Timeout of TLS handshakes.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Maximum concurrent connections; further clients wait.
const CONNECTIONS_MAX: usize = 1024;
/// Maximum concurrent connections to healthz.
const HEALTHZ_CONNECTIONS_MAX: usize = 64;

/// The task of the pod manager, once it is running.
pub(crate) type SyncLoop = Arc<OnceLock<AbortHandle>>;

/// The state behind all request handlers.
pub(crate) struct Server {
    context: Arc<Context>,
    known: PodTable,
    sync_loop: SyncLoop,
    log: LogProbe,
    slis: Slis,
    access: Access,
}

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
}

/// A parsed request.
struct ParsedRequest<'a> {
    method: &'a Method,
    parts: Vec<String>,
    query: Vec<(String, String)>,
}

/// Opens the port. The returned future serves it. The health checks monitor the task in the [`SyncLoop`].
pub(crate) async fn open(
    context: Arc<Context>,
    known: PodTable,
) -> Result<(SocketAddr, impl Future<Output = ()> + Send, SyncLoop), ServeError> {
    let config = &context.config;
    let tls = Tls::new(config, &context.facts.host_ips)?;
    let wants_signed = config.server_tls_bootstrap && config.serving.is_none();
    let signing = wants_signed
        .then(|| keep_signed(config.clone(), context.client.clone(), context.facts.host_ips.clone(), tls.clone()));
    let address = SocketAddr::new(config.address, config.port);
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let access = Access::new(config, context.client.clone());
    let (sync_loop, log, slis) = (SyncLoop::default(), LogProbe::default(), Slis::default());
    let server = Arc::new(Server { context, known, sync_loop: Arc::clone(&sync_loop), log, slis, access });
    let accepting =
        component_base::accept(listener, CONNECTIONS_MAX, std::future::pending(), move |stream, _, slot| {
            connection(stream, TlsAcceptor::from(tls.current()), Arc::clone(&server), slot)
        });
    let work = async move {
        match signing {
            Some(signing) => tokio::join!(signing, accepting).1,
            None => accepting.await,
        }
    };
    Ok((address, work, sync_loop))
}

/// Obtains a signed serving certificate and renews it before it expires.
async fn keep_signed(config: Config, client: Client, addresses: Vec<String>, tls: Tls) {
    let purpose = Purpose::Serving(addresses);
    let file = purpose.file(&config.cert_dir);
    let renewed = move || {
        if let Err(error) = tls.replace(&file) {
            tracing::error!(%error, "failed to load the signed serving certificate");
        }
    };
    bootstrap::keep(client, config.node_name, config.cert_dir, purpose, renewed).await;
}

/// Serves only healthz, on the loopback interface and without authentication.
pub(crate) async fn healthz(port: u16) {
    let listener = match TcpListener::bind(("127.0.0.1", port)).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(port, %error, "failed to listen for healthz");
            return std::future::pending().await;
        }
    };
    let slis = Arc::new(Slis::default());
    component_base::accept(listener, HEALTHZ_CONNECTIONS_MAX, std::future::pending(), |stream, _, slot| {
        let slis = Arc::clone(&slis);
        async move {
            serve_connection(stream, move |request| {
                let response = health(&slis, request.uri(), &[("ping", &|| Ok(()))]);
                async { response }
            })
            .await;
            drop(slot);
        }
    })
    .await;
}

/// A health check and its name.
type Check<'a> = (&'a str, &'a dyn Fn() -> Result<(), String>);

/// Runs the checks of a health path and returns the response.
fn health(slis: &Slis, uri: &http::Uri, checks: &[Check<'_>]) -> Response<Body> {
    let response = HealthRequest::parse(uri.path(), uri.query().unwrap_or_default()).and_then(|request| {
        let run = |(name, check): &Check<'_>| ((*name).to_owned(), request.selects(name).then(check));
        let checks: Vec<(String, Outcome)> = checks.iter().map(run).collect();
        slis.respond(&request, &checks)
    });
    match response {
        Some(response) => {
            let code = StatusCode::from_u16(response.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            text(code, &response.text)
        }
        None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, server: Arc<Server>, slot: Slot) {
    // Interactive streams need low latency.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let user = certificate.and_then(|certificate| tls::user_of(certificate));
    let slot = Arc::new(slot);
    serve_connection(stream, move |mut request| {
        // An upgraded stream outlives the connection's service and keeps its slot.
        request.extensions_mut().insert(Arc::clone(&slot));
        let (server, user) = (Arc::clone(&server), user.clone());
        async move { server.handle_request(request, user).await }
    })
    .await;
}

impl Server {
    async fn handle_request(&self, request: Request<Incoming>, user: Option<auth::User>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let parts: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let who = match self.access.authenticate(request.headers(), user).await {
            Authentication::User(user) => user,
            Authentication::Rejected => return text(StatusCode::UNAUTHORIZED, "Unauthorized"),
        };
        let verb = access::verb(request.method(), &parts);
        if let Err(message) = self.access.authorize(&who, verb, access::subresources(&parts)).await {
            return text(StatusCode::FORBIDDEN, &message);
        }
        let method = request.method().clone();
        let parsed = ParsedRequest { method: &method, parts, query: query(request.uri().query().unwrap_or_default()) };
        self.route(&parsed, request).await
    }

    async fn route(&self, parsed: &ParsedRequest<'_>, request: Request<Incoming>) -> Response<Body> {
        let parts: Vec<&str> = parsed.parts.iter().map(String::as_str).collect();
        let get = matches!(*parsed.method, Method::GET | Method::HEAD);
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz", ..] if get => self.health(request.uri()),
            ["pods" | "runningpods"] if get => self.pods(),
            ["configz"] if get => self.configz(),
            ["stats", "summary"] if get => summary::summary(&self.context, &self.known).await,
            ["metrics"] if get => metrics::own(&self.context, &self.known).await,
            ["metrics", "slis"] if get => metrics::metrics_response(self.slis.text()),
            ["metrics", "resource"] if get => metrics::resource(&self.context).await,
            ["metrics", "cadvisor"] if get => cadvisor::cadvisor(&self.context, &self.known).await,
            ["metrics", "probes"] if get => metrics::probes(&self.context.probes),
            ["containerLogs", namespace, pod, container] if get => {
                self.container_logs(namespace, pod, container, parsed).await
            }
            ["exec" | "attach", namespace, pod, container] | ["exec" | "attach", namespace, pod, _, container] => {
                self.process(parts[0], (namespace, pod, container), parsed, request).await
            }
            ["run", namespace, pod, container] | ["run", namespace, pod, _, container] => match *parsed.method {
                Method::POST => self.run((namespace, pod, container), parsed).await,
                _ => text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"),
            },
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                self.port_forward(namespace, pod, parsed, request).await
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn health(&self, uri: &http::Uri) -> Response<Body> {
        let sync_loop = || match self.sync_loop.get() {
            Some(task) if !task.is_finished() => Ok(()),
            Some(_) => Err("the task that runs the pods has exited".to_owned()),
            None => Err("the task that runs the pods has not started".to_owned()),
        };
        health(&self.slis, uri, &[("ping", &|| Ok(())), ("log", &|| self.log.check()), ("syncloop", &sync_loop)])
    }

    fn pods(&self) -> Response<Body> {
        let items: Vec<Value> = self.known.all().iter().map(|pod| (**pod).clone()).collect();
        json_response(&value!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
    }

    fn configz(&self) -> Response<Body> {
        json_response(&value!({"kubeletconfig": (self.context.config.effective())}))
    }

    /// Finds a container of a pod in the runtime.
    async fn find(&self, namespace: &str, pod: &str, container: &str) -> Result<(String, Container), Response<Body>> {
        let known = self.known.find(namespace, pod);
        let known =
            known.ok_or_else(|| text(StatusCode::NOT_FOUND, &format!("pod \"{pod}_{namespace}\" not found")))?;
        let uid = Pod(&known).uid().to_owned();
        let runtime = self.observe(&uid).await?;
        let found = runtime.containers.into_iter().find(|one| one.name == container);
        let missing = || {
            text(StatusCode::NOT_FOUND, &format!("container \"{container}\" not found in pod \"{pod}_{namespace}\""))
        };
        found.map(|found| (uid, found)).ok_or_else(missing)
    }

    async fn observe(&self, uid: &str) -> Result<crate::runtime_status::RuntimePod, Response<Body>> {
        let observed = self.context.runtime.observe(uid).await;
        observed.map_err(|status| text(StatusCode::INTERNAL_SERVER_ERROR, status.message()))
    }
}

impl ParsedRequest<'_> {
    /// Returns the first value of a query parameter; empty if absent.
    fn value(&self, name: &str) -> &str {
        self.query.iter().find(|(have, _)| have == name).map_or("", |(_, value)| value)
    }

    /// Whether a query parameter is true.
    fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), "1" | "true" | "True")
    }
}

fn query(text: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    plain(status, "text/plain; charset=utf-8", text.to_owned().into())
}

fn json_response(value: &Value) -> Response<Body> {
    plain(StatusCode::OK, "application/json", json::to_vec(value).into())
}

fn plain(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Body> {
    let body = full(bytes);
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, kind).body(body);
    response.expect("the response is well formed")
}

/// Returns a response with a streamed body.
fn streamed(chunks: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static) -> Response<Body> {
    use futures_util::StreamExt;
    let body = StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data))).boxed_unsync();
    let response = Response::builder().header(header::CONTENT_TYPE, "text/plain").body(body);
    response.expect("the response is well formed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_form_decoded() {
        let found = query("command=sh&command=-c&command=echo+a%26b&tty=1");
        let parsed = ParsedRequest { method: &Method::GET, parts: Vec::new(), query: found };
        let commands: Vec<&str> =
            parsed.query.iter().filter(|(key, _)| key == "command").map(|(_, value)| value.as_str()).collect();
        assert_eq!(commands, ["sh", "-c", "echo a&b"]);
        assert!(parsed.flag("tty") && !parsed.flag("input"));
    }
}
