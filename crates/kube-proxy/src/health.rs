//! Health check node ports for load balancers, and the proxy's `/healthz` and `/metrics`.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use apimachinery::{json, value};
use component_base::health::{HealthRequest, SLIS_PATH, Slis};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::Instrument;

use crate::metrics::Metrics;
use crate::service_state::Health;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_BYTES_MAX: usize = 8 << 10;
const CONNECTIONS_MAX: usize = 64;

/// Servers of health check node ports, one per port.
#[derive(Default)]
pub struct Ports {
    servers: BTreeMap<u16, Server>,
}

struct Server {
    report: Arc<RwLock<HealthReport>>,
    task: JoinHandle<()>,
}

/// A health response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReport {
    /// Selects the status 200 or 503.
    pub ok: bool,
    pub body: String,
    /// Number of local endpoints.
    pub weight: usize,
}

impl Ports {
    /// Listens on exactly these ports.
    pub async fn set(&mut self, desired: &BTreeMap<u16, Health>) {
        let unwanted: Vec<u16> = self.servers.keys().filter(|port| !desired.contains_key(port)).copied().collect();
        for server in unwanted.iter().filter_map(|port| self.servers.remove(port)) {
            server.task.abort();
            // The port is free once the task has exited: another service may get it immediately.
            let _ = server.task.await;
        }
        for (port, health) in desired {
            let report = HealthReport::of_service(health);
            if let Some(server) = self.servers.get(port) {
                *server.report.write().unwrap_or_else(PoisonError::into_inner) = report;
                continue;
            }
            // Listens on both address families where IPv6 is available.
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port));
            let listener = match TcpListener::bind(any).await {
                Ok(listener) => Ok(listener),
                Err(_) => TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], *port))).await,
            };
            match listener {
                Ok(listener) => {
                    let report = Arc::new(RwLock::new(report));
                    let task = tokio::spawn(serve(listener, Arc::clone(&report)).in_current_span());
                    self.servers.insert(*port, Server { report, task });
                }
                Err(error) => {
                    tracing::warn!(port, %error, service = ?health.service, "failed to listen for health checks");
                }
            }
        }
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        for server in self.servers.values() {
            server.task.abort();
        }
    }
}

impl HealthReport {
    /// Builds the response for load balancers.
    pub fn of_service(health: &Health) -> Self {
        let count = i64::try_from(health.local).unwrap_or(i64::MAX);
        let service =
            value!({"namespace": (health.service.namespace.as_str()), "name": (health.service.name.as_str())});
        let body = value!({"service": service, "localEndpoints": count, "serviceProxyHealthy": true});
        Self { ok: health.local > 0, body: json::to_string(&body), weight: health.local }
    }
}

/// Answers every request with the current response, for as long as the future is polled.
pub async fn serve(listener: TcpListener, report: Arc<RwLock<HealthReport>>) {
    let respond = move |_: &str| {
        let report = report.read().unwrap_or_else(PoisonError::into_inner).clone();
        let status = if report.ok { "200 OK" } else { "503 Service Unavailable" };
        let more = format!("X-Load-Balancing-Endpoint-Weight: {}\r\n", report.weight);
        Reply { status, kind: "application/json", more, body: report.body }
    };
    serve_by(listener, Arc::new(respond)).await;
}

/// Serves `/metrics`, `/metrics/slis`, `/proxyMode` and health checks, for as long as the future is polled.
pub async fn serve_metrics(listener: TcpListener, metrics: Arc<Metrics>) {
    let slis = Slis::default();
    let respond = move |target: &str| {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (status, body) = match path {
            "/metrics" => ("200 OK", metrics.text()),
            SLIS_PATH => ("200 OK", slis.text()),
            "/proxyMode" => ("200 OK", metrics.mode().to_owned()),
            _ => match HealthRequest::parse(path, query).and_then(|request| {
                let ping = request.selects("ping").then_some(Ok(()));
                slis.respond(&request, &[("ping", ping)])
            }) {
                Some(response) => ("200 OK", response.text),
                None => ("404 Not Found", "404 page not found\n".to_owned()),
            },
        };
        Reply { status, kind: "text/plain; version=0.0.4; charset=utf-8", more: String::new(), body }
    };
    serve_by(listener, Arc::new(respond)).await;
}

/// An HTTP response.
struct Reply {
    status: &'static str,
    kind: &'static str,
    /// Further headers, each with its line end.
    more: String,
    body: String,
}

async fn serve_by(listener: TcpListener, respond: Arc<impl Fn(&str) -> Reply + Send + Sync + 'static>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let respond = Arc::clone(&respond);
        let task = async move {
            // A client that disconnects early needs no response.
            let _ = timeout(TIMEOUT, converse(stream, &*respond)).await;
            drop(permit);
        };
        tokio::spawn(task.in_current_span());
    }
}

async fn converse(mut stream: TcpStream, respond: impl Fn(&str) -> Reply) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        request.extend_from_slice(&buffer[..length]);
    }
    let path = request.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let Reply { status, kind, more, body } = respond(&String::from_utf8_lossy(path));
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nX-Content-Type-Options: nosniff\r\n\
         {more}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len(),
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use apimachinery::Key;

    use super::*;

    async fn send_get(port: u16, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn health_check_node_port_follows_local_endpoints() {
        // A port that was just free.
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let mut ports = Ports::default();
        let health = |local| BTreeMap::from([(free, Health { service: Key::new("a", "web"), local })]);
        ports.set(&health(2)).await;
        let response = send_get(free, "/healthz").await;
        assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
        assert!(response.contains("X-Load-Balancing-Endpoint-Weight: 2"), "{response}");
        ports.set(&health(0)).await;
        let response = send_get(free, "/healthz").await;
        assert!(response.starts_with("HTTP/1.1 503"), "{response}");
        assert!(
            response.ends_with(
                r#"{"localEndpoints":0,"service":{"name":"web","namespace":"a"},"serviceProxyHealthy":true}"#
            ),
            "{response}"
        );
    }

    #[tokio::test]
    async fn metrics_and_proxy_mode_are_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(serve_metrics(listener, Arc::new(Metrics::new(crate::config::Mode::Userspace))));
        assert!(send_get(port, "/metrics").await.contains("\nkubeproxy_sync_proxy_rules_duration_seconds_count 0\n"));
        assert!(send_get(port, "/proxyMode").await.ends_with("\r\n\r\nuserspace"));
        assert!(send_get(port, "/nothing").await.starts_with("HTTP/1.1 404 Not Found\r\n"));
    }
}
