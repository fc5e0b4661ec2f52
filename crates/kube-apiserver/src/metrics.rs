//! API server metrics, with upstream's names.

mod admission;
mod family;
mod process;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::kind::Kind;
use api_registry::request_info::Resource;
use apimachinery::Str;
use auth::{Decision, User};
use http::Method;

use crate::request_info::RequestInfo;
pub use admission::{Admission, HookCall, Turn};
pub use family::{Counter, Family, Gauge, Histogram};
pub(crate) use family::{FormattedLabels, buckets_of, head, sample};

const SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
const STORE_SECONDS: [f64; 13] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0];
/// Histogram bounds that double from one millisecond.
const SHORT_SECONDS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
const RESPONSE_BYTES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
const EVENT_BYTES: [f64; 8] = [1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131_072.0];
/// Non-resource paths that get their own series. Other paths do not, so that clients cannot create series.
const COUNTED_PATHS: [&str; 10] = [
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/metrics/slis",
    "/version",
    "/openapi/v2",
    "/openapi/v3",
    "/api",
    "/apis",
];

/// The metrics of the API server.
pub struct Metrics {
    requests: Family<Counter>,
    durations: Family<Histogram>,
    sizes: Family<Histogram>,
    long_running: Family<Gauge>,
    deprecated: Family<Gauge>,
    watch_events: Family<Counter>,
    watch_event_sizes: Family<Histogram>,
    attempts: Family<Counter>,
    attempt_seconds: Family<Histogram>,
    users: Family<Counter>,
    authorizations: Family<Counter>,
    authorization_seconds: Family<Histogram>,
    /// Metrics of admission plugins, policies and webhooks.
    pub admission: Admission,
    /// Duration of requests to the store, by operation.
    pub store_seconds: Family<Histogram>,
    /// Failed TLS handshakes.
    pub handshake_errors: Family<Counter>,
    /// Audit events sent to the backends.
    pub audit_events: Family<Counter>,
    /// Audit events that could not be written, by backend.
    pub audit_errors: Family<Counter>,
    /// Requests rejected because their audit event could not be written.
    pub audit_rejected: Family<Counter>,
    /// Returns the metrics of the process that embeds the server, in Prometheus' text format.
    pub of_process: OnceLock<Box<dyn Fn() -> String + Send + Sync>>,
}

/// The series for the events of one watch.
pub struct Events {
    count: Arc<Counter>,
    sizes: Arc<Histogram>,
}

/// The labels of a request. Only known resources and paths are labelled, so that clients cannot create series.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    verb: &'static str,
    dry_run: &'static str,
    group: Str,
    version: Str,
    resource: Str,
    subresource: Str,
    scope: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        const REQUEST: [&str; 8] =
            ["component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"];
        const CODED: [&str; 9] =
            ["code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"];
        const PLAIN: [&str; 7] = ["component", "group", "resource", "scope", "subresource", "verb", "version"];
        const DEPRECATED: [&str; 5] = ["group", "removed_release", "resource", "subresource", "version"];
        const KIND: [&str; 3] = ["group", "resource", "version"];
        const RESULT: [&str; 1] = ["result"];
        let short = || Histogram::new(&SHORT_SECONDS);
        Self {
            requests: counter("apiserver_request_total", "Number of requests.", &CODED),
            durations: spread(
                "apiserver_request_duration_seconds",
                "Latency of responses in seconds.",
                &REQUEST,
                || Histogram::new(&SECONDS),
            ),
            sizes: spread("apiserver_response_sizes", "Size of responses to reads in bytes.", &PLAIN, || {
                Histogram::new(&RESPONSE_BYTES)
            }),
            long_running: gauge("apiserver_longrunning_requests", "Number of active long-running requests.", &PLAIN),
            deprecated: gauge(
                "apiserver_requested_deprecated_apis",
                "Deprecated API versions that were requested, with the release that removes them.",
                &DEPRECATED,
            ),
            watch_events: counter("apiserver_watch_events_total", "Number of events sent to watch clients.", &KIND),
            watch_event_sizes: spread(
                "apiserver_watch_events_sizes",
                "Size of events sent to watch clients in bytes.",
                &KIND,
                || Histogram::new(&EVENT_BYTES),
            ),
            attempts: counter("authentication_attempts", "Number of authentication attempts.", &RESULT),
            attempt_seconds: spread(
                "authentication_duration_seconds",
                "Latency of authentication in seconds.",
                &RESULT,
                short,
            ),
            users: counter(
                "authenticated_user_requests",
                "Number of authenticated requests, by user name.",
                &["username"],
            ),
            authorizations: counter("authorization_attempts_total", "Number of authorization attempts.", &RESULT),
            authorization_seconds: spread(
                "authorization_duration_seconds",
                "Latency of authorization in seconds.",
                &RESULT,
                short,
            ),
            admission: Admission::default(),
            store_seconds: spread(
                "etcd_request_duration_seconds",
                "Latency of store requests in seconds.",
                &["operation", "type"],
                || Histogram::new(&STORE_SECONDS),
            ),
            handshake_errors: counter("apiserver_tls_handshake_errors_total", "Number of failed TLS handshakes.", &[]),
            audit_events: counter(
                "apiserver_audit_event_total",
                "Number of audit events sent to the audit backends.",
                &[],
            ),
            audit_errors: counter(
                "apiserver_audit_error_total",
                "Number of audit events that a backend could not record.",
                &["plugin"],
            ),
            audit_rejected: counter(
                "apiserver_audit_requests_rejected_total",
                "Number of requests rejected because a blocking audit backend failed.",
                &[],
            ),
            of_process: OnceLock::new(),
        }
    }
}

type LabelNames = &'static [&'static str];

const fn counter(name: &'static str, help: &'static str, labels: LabelNames) -> Family<Counter> {
    Family::new(name, help, labels, Counter::default)
}

const fn gauge(name: &'static str, help: &'static str, labels: LabelNames) -> Family<Gauge> {
    Family::new(name, help, labels, Gauge::default)
}

const fn spread(
    name: &'static str,
    help: &'static str,
    labels: LabelNames,
    make: fn() -> Histogram,
) -> Family<Histogram> {
    Family::new(name, help, labels, make)
}

impl Metrics {
    /// Counts an authentication attempt.
    pub fn authenticated(&self, user: Option<&User>, took: Duration) {
        let result = if user.is_some() { "success" } else { "failure" };
        self.attempts.with(&[result]).add(1);
        self.attempt_seconds.with(&[result]).observe(took.as_secs_f64());
        if let Some(user) = user {
            self.users.with(&[counted_user(user)]).add(1);
        }
    }

    /// Counts an authorization decision.
    pub fn authorized(&self, decision: &Decision, took: Duration) {
        let result = match decision {
            Decision::Allow(_) => "allowed",
            Decision::Deny(_) => "denied",
            Decision::NoOpinion(_) => "no-opinion",
        };
        self.authorizations.with(&[result]).add(1);
        self.authorization_seconds.with(&[result]).observe(took.as_secs_f64());
    }

    /// Counts a long-running request that starts.
    pub fn begins(&self, labels: &Labels) {
        self.long_running.with(&labels.plain()).add(1);
    }

    /// Counts a completed request.
    pub fn ends(&self, labels: &Labels, code: u16, bytes: u64, took: Duration, is_long_running: bool) {
        let code = code.to_string();
        let [component, group, resource, scope, subresource, verb, version] = labels.plain();
        let dry_run = labels.dry_run;
        self.requests.with(&[&code, component, dry_run, group, resource, scope, subresource, verb, version]).add(1);
        let request = [component, dry_run, group, resource, scope, subresource, verb, version];
        self.durations.with(&request).observe(took.as_secs_f64());
        if is_long_running && !labels.resource.is_empty() {
            self.long_running.with(&labels.plain()).add(-1);
        } else if matches!(verb, "GET" | "LIST") {
            self.sizes.with(&labels.plain()).observe(bytes as f64);
        }
    }

    /// Returns the series for the events of a watch.
    pub fn events(&self, kind: &Kind, version: &str) -> Events {
        let labels = [kind.group.as_str(), kind.plural.as_str(), version];
        Events { count: self.watch_events.with(&labels), sizes: self.watch_event_sizes.with(&labels) }
    }

    /// Counts a request for a deprecated API version.
    pub fn count_deprecated_request(&self, labels: &Labels, removed_release: &str) {
        let Labels { group, resource, subresource, version, .. } = labels;
        self.deprecated.with(&[group, removed_release, resource, subresource, version]).set(1);
    }

    /// Returns all metrics in the Prometheus text format. `of_state` appends those that are computed from state.
    pub fn text(&self, of_state: impl FnOnce(&mut String)) -> String {
        let mut out = String::with_capacity(1 << 16);
        self.requests.print(&mut out);
        self.durations.print(&mut out);
        self.sizes.print(&mut out);
        self.long_running.print(&mut out);
        self.deprecated.print(&mut out);
        self.watch_events.print(&mut out);
        self.watch_event_sizes.print(&mut out);
        self.attempts.print(&mut out);
        self.attempt_seconds.print(&mut out);
        self.users.print(&mut out);
        self.authorizations.print(&mut out);
        self.authorization_seconds.print(&mut out);
        self.admission.print(&mut out);
        self.store_seconds.print(&mut out);
        self.handshake_errors.print(&mut out);
        self.audit_events.print(&mut out);
        self.audit_errors.print(&mut out);
        self.audit_rejected.print(&mut out);
        of_state(&mut out);
        build(&mut out);
        process::print(&mut out);
        if let Some(text) = self.of_process.get() {
            out.push_str(&text());
        }
        out
    }
}

impl Events {
    /// Counts an event that was sent.
    pub fn sent(&self, bytes: usize) {
        self.count.add(1);
        self.sizes.observe(bytes as f64);
    }
}

impl Labels {
    /// Returns the labels that are known before the request is routed.
    pub fn of(request: &RequestInfo) -> Self {
        let dry_run = if request.query.all("dryRun").contains(&"All") { "All" } else { "" };
        Self { verb: verb(request), dry_run, ..Self::default() }
    }

    /// Sets the labels of a request for a kind.
    pub fn found(&mut self, request: &RequestInfo, kind: &Kind, resource: &Resource) {
        let known = kind.subresource(&resource.version, &resource.subresource).is_some();
        self.group = kind.group.clone();
        self.version = resource.version.as_str().into();
        self.resource = kind.plural.clone();
        self.subresource = if known { resource.subresource.as_str().into() } else { Str::default() };
        self.scope = match resource {
            resource if !resource.name.is_empty() || request.info.verb == "create" => "resource",
            resource if !resource.namespace.is_empty() => "namespace",
            _ => "cluster",
        };
    }

    /// Sets the labels of a request for a non-resource path.
    pub fn found_document(&mut self, request: &RequestInfo) {
        let path = request.info.path.trim_end_matches('/');
        if let Some(counted) = COUNTED_PATHS.iter().find(|counted| **counted == path) {
            self.subresource = Str::from(*counted);
        }
    }

    fn plain(&self) -> [&str; 7] {
        ["apiserver", &self.group, &self.resource, self.scope, &self.subresource, self.verb, &self.version]
    }
}

/// Returns the verb label, as upstream spells it.
fn verb(request: &RequestInfo) -> &'static str {
    match (request.info.verb, &request.method) {
        ("list", _) => "LIST",
        ("watch", _) => "WATCH",
        ("deletecollection", _) => "DELETECOLLECTION",
        ("patch", _) if request.content_type().starts_with("application/apply-patch") => "APPLY",
        (_, &Method::GET | &Method::HEAD) => "GET",
        (_, &Method::POST) => "POST",
        (_, &Method::PUT) => "PUT",
        (_, &Method::PATCH) => "PATCH",
        (_, &Method::DELETE) => "DELETE",
        _ => "other",
    }
}

/// Returns the username label. Names of users and workloads are hidden, since metrics readers may not be allowed to see
/// them.
fn counted_user(user: &User) -> &str {
    match user.name.as_str() {
        name @ ("admin"
        | "system:anonymous"
        | "system:apiserver"
        | "system:kube-controller-manager"
        | "system:kube-proxy"
        | "system:kube-scheduler"
        | "kube-apiserver-legacy-service-account-token-controller") => name,
        _ => "other",
    }
}

fn build(out: &mut String) {
    let help = "Version of this server; the value is always 1.";
    head("kubernetes_build_info", help, "gauge", out);
    let labels = [("git_version", crate::VERSION), ("major", "1"), ("minor", "36"), ("compiler", "rustc")];
    sample("kubernetes_build_info", &FormattedLabels::of(labels), 1, out);
}
