//! Metrics with the names of ingress-nginx, so that its dashboards work.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::{Method, StatusCode};

/// Upper bounds of the duration buckets in milliseconds.
const BOUNDS_MILLIS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000];
/// Routes beyond this number are counted together.
const ROUTES_MAX: usize = 10_000;
const OTHER: &str = "//";
/// Methods with a separate label. Clients control all other method names, so these are counted together.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];

/// Counters of all ports.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    routes: RwLock<BTreeMap<String, Arc<RouteSeries>>>,
    connections_accepted: AtomicU64,
    connections_closed: AtomicU64,
    handshake_errors: AtomicU64,
    retries: AtomicU64,
    requests_rejected: AtomicU64,
}

/// Series of one route source.
#[derive(Debug, Default)]
struct RouteSeries {
    requests: RwLock<BTreeMap<(usize, u16), AtomicU64>>,
    durations: [AtomicU64; BOUNDS_MILLIS.len() + 1],
    duration_micros: AtomicU64,
    bytes_sent: AtomicU64,
}

/// Counts an open connection until it is dropped.
pub(super) struct OpenConnection<'a>(&'a Metrics);

impl Metrics {
    /// Counts a finished request. `source` is the route's `Kind/namespace/name`, empty if none matched.
    pub(super) fn count_request(&self, source: &str, method: &Method, status: StatusCode, took: Duration, bytes: u64) {
        let series = self.series(source);
        let key = (METHODS.iter().position(|name| *name == method.as_str()).unwrap_or(METHODS.len()), status.as_u16());
        let requests = series.requests.read().unwrap_or_else(PoisonError::into_inner);
        match requests.get(&key) {
            Some(count) => add(count, 1),
            None => {
                drop(requests);
                let mut requests = series.requests.write().unwrap_or_else(PoisonError::into_inner);
                add(requests.entry(key).or_default(), 1);
            }
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MILLIS.iter().position(|bound| micros <= bound * 1000).unwrap_or(BOUNDS_MILLIS.len());
        add(&series.durations[bucket], 1);
        add(&series.duration_micros, micros);
        add(&series.bytes_sent, bytes);
    }

    pub(super) fn count_connection(&self) -> OpenConnection<'_> {
        add(&self.connections_accepted, 1);
        OpenConnection(self)
    }

    pub(super) fn count_handshake_error(&self) {
        add(&self.handshake_errors, 1);
    }

    pub(super) fn count_retry(&self) {
        add(&self.retries, 1);
    }

    pub(super) fn count_rejection(&self) {
        add(&self.requests_rejected, 1);
    }

    /// Formats all metrics in the Prometheus text format.
    pub(super) fn text(&self, requests_in_flight: usize) -> String {
        let mut out = String::new();
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        let name = "nginx_ingress_controller_requests";
        head(&mut out, name, "The total number of client requests.", "counter");
        for (source, series) in &*routes {
            for ((method, status), count) in &*series.requests.read().unwrap_or_else(PoisonError::into_inner) {
                let method = METHODS.get(*method).unwrap_or(&"other");
                let (labels, count) = (labels(source), load(count));
                let _ = writeln!(out, "{name}{{{labels},method=\"{method}\",status=\"{status}\"}} {count}");
            }
        }
        print_durations(&mut out, &routes);
        let name = "nginx_ingress_controller_bytes_sent";
        head(&mut out, name, "The number of bytes of response bodies sent to clients.", "counter");
        for (source, series) in &*routes {
            let _ = writeln!(out, "{name}{{{}}} {}", labels(source), load(&series.bytes_sent));
        }
        let (accepted, closed) = (load(&self.connections_accepted), load(&self.connections_closed));
        let name = "nginx_ingress_controller_nginx_process_connections";
        head(&mut out, name, "Current number of client connections.", "gauge");
        let _ = writeln!(out, "{name}{{state=\"active\"}} {}", accepted.saturating_sub(closed));
        let name = "nginx_ingress_controller_nginx_process_connections_total";
        head(&mut out, name, "Total number of client connections.", "counter");
        let _ = writeln!(out, "{name}{{state=\"accepted\"}} {accepted}");
        let name = "nginx_ingress_controller_tls_handshake_errors_total";
        head(&mut out, name, "Number of failed TLS handshakes.", "counter");
        let _ = writeln!(out, "{name} {}", load(&self.handshake_errors));
        let name = "nginx_ingress_controller_upstream_retries_total";
        head(&mut out, name, "Attempts that failed before an endpoint received the request.", "counter");
        let _ = writeln!(out, "{name} {}", load(&self.retries));
        let name = "nginx_ingress_controller_requests_in_flight";
        head(&mut out, name, "Current number of requests whose responses have not ended.", "gauge");
        let _ = writeln!(out, "{name} {requests_in_flight}");
        let name = "nginx_ingress_controller_requests_rejected_total";
        head(&mut out, name, "Requests answered with 503 because too many were in flight.", "counter");
        let _ = writeln!(out, "{name} {}", load(&self.requests_rejected));
        out
    }

    fn series(&self, source: &str) -> Arc<RouteSeries> {
        let source = if source.is_empty() { OTHER } else { source };
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = routes.get(source) {
            return Arc::clone(series);
        }
        let source = if routes.len() < ROUTES_MAX { source } else { OTHER };
        drop(routes);
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(routes.entry(source.to_owned()).or_default())
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        add(&self.0.connections_closed, 1);
    }
}

fn print_durations(out: &mut String, routes: &BTreeMap<String, Arc<RouteSeries>>) {
    let name = "nginx_ingress_controller_request_duration_seconds";
    head(out, name, "The time from the first byte of a request to the last byte of its response.", "histogram");
    for (source, series) in routes {
        let labels = labels(source);
        let mut total = 0;
        for (at, count) in series.durations.iter().enumerate() {
            total += load(count);
            let bound = BOUNDS_MILLIS.get(at).map_or("+Inf".to_owned(), |bound| (*bound as f64 / 1e3).to_string());
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", load(&series.duration_micros) as f64 / 1e6);
        let _ = writeln!(out, "{name}_count{{{labels}}} {total}");
    }
}

/// Returns the labels of `Kind/namespace/name`. Names of API objects need no escaping.
fn labels(source: &str) -> String {
    let mut parts = source.splitn(3, '/');
    let mut part = || parts.next().unwrap_or_default();
    let (kind, namespace, name) = (part(), part(), part());
    format!("kind=\"{kind}\",namespace=\"{namespace}\",ingress=\"{name}\"")
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_method_and_status() {
        let metrics = Metrics::default();
        let took = Duration::from_millis(7);
        metrics.count_request("Ingress/shop/web", &Method::GET, StatusCode::OK, took, 10);
        metrics.count_request("Ingress/shop/web", &Method::GET, StatusCode::OK, took, 10);
        metrics.count_request("", &Method::from_bytes(b"ODD").unwrap(), StatusCode::NOT_FOUND, took, 0);
        let text = metrics.text(3);
        let labels = "kind=\"Ingress\",namespace=\"shop\",ingress=\"web\"";
        for line in [
            format!("nginx_ingress_controller_requests{{{labels},method=\"GET\",status=\"200\"}} 2"),
            format!("nginx_ingress_controller_request_duration_seconds_bucket{{{labels},le=\"0.005\"}} 0"),
            format!("nginx_ingress_controller_request_duration_seconds_bucket{{{labels},le=\"0.01\"}} 2"),
            format!("nginx_ingress_controller_bytes_sent{{{labels}}} 20"),
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("method=\"other\",status=\"404\"} 1"), "{text}");
    }
}
