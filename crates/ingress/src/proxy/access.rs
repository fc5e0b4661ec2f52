//! Accounting of requests: metrics, and the access log if it is enabled.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use tokio::time::Instant;

use super::body::{Body, CountBytes};
use super::connection::{ActiveRequest, ClientConnection};
use super::decision::Selected;
use super::headers::X_REQUEST_ID;
use super::upstream::Load;
use crate::routing::Route;

/// A request and its response, counted when the response has ended or its client has disconnected.
pub(super) struct Exchange {
    connection: Arc<ClientConnection>,
    active: ActiveRequest,
    started: Instant,
    method: Method,
    /// Only kept for the access log.
    target: Option<String>,
    host: String,
    route: Option<Arc<Route>>,
    status: StatusCode,
    bytes: u64,
    /// Only kept for the access log.
    request_id: Option<HeaderValue>,
    pub endpoint: Option<SocketAddr>,
}

impl Exchange {
    pub(super) fn begin<B>(connection: &Arc<ClientConnection>, request: &Request<B>) -> Exchange {
        let is_logged = connection.shared.settings.access_log;
        Exchange {
            connection: Arc::clone(connection),
            active: connection.begin(),
            started: Instant::now(),
            method: request.method().clone(),
            target: is_logged.then(|| request.uri().path().to_owned()),
            host: String::new(),
            route: None,
            // nginx' code for a client that disconnects before the response.
            status: StatusCode::from_u16(499).expect("499 is a status code"),
            bytes: 0,
            request_id: None,
            endpoint: None,
        }
    }

    /// Whether the request may be served, because not too many are in flight.
    pub(super) fn is_admitted(&self) -> bool {
        self.active.is_admitted
    }

    pub(super) fn note_request_id(&mut self, headers: &HeaderMap) {
        if self.target.is_some() {
            self.request_id = headers.get(X_REQUEST_ID).cloned();
        }
    }

    pub(super) fn select(&mut self, selected: &Selected) {
        self.route = Some(Arc::clone(&selected.route));
        if self.target.is_some() {
            self.host.clone_from(&selected.host);
        }
    }

    /// Counts a response that the proxy made itself. HEAD requests receive no body.
    pub(super) fn finish(mut self, response: Response<Body>) -> Response<Body> {
        self.status = response.status();
        self.bytes = response.body().size_hint().exact().unwrap_or_default();
        component_base::without_head_body(&self.method, response, super::body::empty)
    }

    /// Records the status of a response whose body follows.
    pub(super) fn stream(&mut self, status: StatusCode) {
        self.status = status;
    }

    fn log(&self) {
        let Some(path) = &self.target else { return };
        let line = serde_json::json!({
            "client": self.connection.client.ip().to_canonical(),
            "method": self.method.as_str(),
            "host": self.host,
            "path": path,
            "status": self.status.as_u16(),
            "bytes_sent": self.bytes,
            "duration_seconds": self.started.elapsed().as_secs_f64(),
            "route": self.route.as_ref().map(|route| &route.source),
            "endpoint": self.endpoint,
            "request_id": self.request_id.as_ref().and_then(|id| id.to_str().ok()),
        });
        tracing::info!(target: "ingress::access", "{line}");
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let source = self.route.as_ref().map_or("", |route| &route.source);
        let metrics = &self.connection.shared.metrics;
        metrics.count_request(source, &self.method, self.status, self.started.elapsed(), self.bytes);
        self.log();
    }
}

impl CountBytes for (Exchange, Load) {
    fn count(&mut self, bytes: usize) {
        self.0.bytes += bytes as u64;
    }
}
