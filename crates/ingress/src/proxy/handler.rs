//! Serves one request: selects its route, applies the filters and forwards it.
//!
//! ```text
//! decision::select ─> filters ─> dispatch::send ─> response filters
//! ```

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, RETRY_AFTER, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::access::Exchange;
use super::body::{self, Body, BodyFailure, ClientBody, FailureCell, RequestBody, ResponseBody};
use super::connection::ClientConnection;
use super::cors;
use super::decision::{self, RequestHead, Selected};
use super::dispatch::{self, Answer, DispatchError, Reply};
use super::headers::{self, ClientView};
use super::http1::OnUpgrade;
use super::mirror::{self, Tee};
use super::rewrite::{self, RequestUrl};
use super::state::Served;
use super::upstream::Upstream;
use super::{balance, tunnel};
use crate::routing::{Action, Backend, BackendProtocol, BackendTarget, Filter, MirrorTarget, Route, WeightedBackend};

/// A request that is forwarded.
struct Forward<'a> {
    connection: &'a Arc<ClientConnection>,
    served: &'a Served,
    selected: &'a Selected,
    backend: &'a WeightedBackend,
    /// Headers that share the response with another origin, if the route has a policy.
    shared: Option<&'a HeaderMap>,
}

/// Answers a request.
pub(super) async fn serve(connection: Arc<ClientConnection>, request: Request<ClientBody>) -> Response<Body> {
    let mut exchange = Exchange::begin(&connection, &request);
    if !exchange.is_admitted() {
        connection.shared.metrics.count_rejection();
        return exchange.finish(overload_response());
    }
    let served = connection.port.served();
    let (mut parts, incoming) = request.into_parts();
    let head = RequestHead {
        parts: &parts,
        is_tls: connection.is_tls,
        sni: connection.sni.as_deref(),
        headers_max: connection.shared.settings.headers_max,
    };
    let selected = match decision::select(&served, &head) {
        Ok(selected) => selected,
        Err(rejection) => return exchange.finish(status_response(rejection.status, rejection.reason)),
    };
    exchange.select(&selected);
    let cors = selected.route.options.cors.as_deref();
    if let Some(headers) = cors.and_then(|cors| cors::preflight(cors, &parts.method, &parts.headers)) {
        return exchange.finish(preflight_response(headers));
    }
    let shared = cors.map(|cors| cors::response_headers(cors, &parts.headers));
    let response = match &selected.route.action {
        Action::Respond(status) => status_response(*status, reason(*status)),
        Action::Answer(text) => Response::new(body::text(text.clone())),
        Action::Redirect(redirect) => {
            let (scheme, port) = (scheme(&connection), connection.port_number);
            let url = RequestUrl { scheme, host: &selected.host, port, uri: &parts.uri };
            redirect_response(redirect.status, rewrite::location(redirect, url, &selected.route.matches.path))
        }
        Action::Forward(backends) => match choose(&connection, backends) {
            None => status_response(StatusCode::INTERNAL_SERVER_ERROR, "the route has no backend"),
            Some(backend) => {
                headers::set_request_id(&mut parts.headers, || connection.shared.request_ids.next());
                exchange.note_request_id(&parts.headers);
                let (served, selected) = (&*served, &selected);
                let forward = Forward { connection: &connection, served, selected, backend, shared: shared.as_ref() };
                return forward.run(parts, incoming, exchange).await;
            }
        },
    };
    let mut response = response;
    change_response(&mut response, &selected.route.filters);
    if let Some(shared) = &shared {
        cors::share(response.headers_mut(), shared);
    }
    exchange.finish(response)
}

impl Forward<'_> {
    async fn run(&self, mut parts: Parts, incoming: ClientBody, mut exchange: Exchange) -> Response<Body> {
        let backend = match &self.backend.target {
            BackendTarget::Endpoints(backend) => backend,
            BackendTarget::Status(status) => return exchange.finish(status_response(*status, reason(*status))),
        };
        let options = &self.selected.route.options;
        if options.body_bytes_max.is_some_and(|max| content_length(&parts).is_some_and(|length| length > max)) {
            return exchange.finish(status_response(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large"));
        }
        let Some(upstream) = self.served.upstreams.find(backend) else {
            return exchange.finish(status_response(StatusCode::SERVICE_UNAVAILABLE, "the backend has no endpoints"));
        };
        let upgrade = self.requested_upgrade(&parts, backend);
        let on_client = parts.extensions.remove::<OnUpgrade>().filter(|_| upgrade.is_some());
        self.prepare_head(&mut parts, upgrade.as_ref());
        let (request, failure) = self.outgoing(parts, incoming);
        let limit = [options.request_timeout, options.backend_timeout].into_iter().flatten().min();
        let deadline = limit.map(|limit| Instant::now() + limit);
        let Reply { answer, load, endpoint } =
            match dispatch::send(&self.connection.shared, upstream, request, deadline).await {
                Ok(reply) => reply,
                Err(error) => return exchange.finish(self.failure_response(upstream, failure.as_ref(), &error)),
            };
        exchange.endpoint = Some(endpoint);
        let mut response = match answer {
            Answer::Response(response) => response,
            Answer::Switched(response, endpoint) => {
                let Some(client) = on_client else {
                    let reason = "the backend switched protocols without a request for it";
                    return exchange.finish(status_response(StatusCode::BAD_GATEWAY, reason));
                };
                tunnel::open(self.connection, client, endpoint, load);
                return exchange.finish(response.map(|()| body::empty()));
            }
        };
        headers::remove_hop_by_hop(response.headers_mut());
        change_response(&mut response, self.filters());
        if let Some(shared) = self.shared {
            cors::share(response.headers_mut(), shared);
        }
        exchange.stream(response.status());
        response.map(|incoming| ResponseBody::new(incoming, deadline, (exchange, load)).boxed_unsync())
    }
    fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.selected.route.filters.iter().chain(&self.backend.filters)
    }

    /// Returns the requested upgrade if the backend can do it.
    fn requested_upgrade(&self, parts: &Parts, backend: &Backend) -> Option<HeaderValue> {
        match backend.protocol {
            BackendProtocol::Http1 | BackendProtocol::Https(_) => headers::requested_upgrade(&parts.headers),
            BackendProtocol::Http2 => None,
        }
    }

    /// Sets the headers and the path for the backend.
    fn prepare_head(&self, parts: &mut Parts, upgrade: Option<&HeaderValue>) {
        if let Some(authority) = parts.uri.authority()
            && let Ok(host) = HeaderValue::try_from(authority.as_str())
        {
            parts.headers.insert(HOST, host);
        }
        headers::remove_hop_by_hop(&mut parts.headers);
        let (host, connection) = (parts.headers.get(HOST).cloned(), self.connection);
        let (address, port) = (&connection.client_text, &connection.port_text);
        let client = ClientView { address, scheme: scheme(connection), host: host.as_ref(), port };
        headers::set_forwarding(&mut parts.headers, client, connection.shared.settings.forwarding);
        for filter in self.filters() {
            change_request(parts, filter, &self.selected.route);
        }
        if let Some(protocol) = upgrade {
            parts.headers.insert(http::header::CONNECTION, HeaderValue::from_static("upgrade"));
            parts.headers.insert(UPGRADE, protocol.clone());
        }
        parts.extensions.clear();
    }

    /// Returns the request for the backend, and starts its mirrors.
    fn outgoing(&self, parts: Parts, incoming: ClientBody) -> (Request<Body>, Option<FailureCell>) {
        let has_body = !incoming.is_end_stream();
        let mirrors = self.filters().filter_map(|filter| match filter {
            Filter::Mirror(mirror) => Some(mirror),
            Filter::ModifyRequestHeaders(_) | Filter::ModifyResponseHeaders(_) | Filter::RewriteUrl { .. } => None,
        });
        let tees: Vec<Tee> = mirrors.filter_map(|mirror| self.mirror(mirror, &parts, has_body)).collect();
        if !has_body {
            return (Request::from_parts(parts, body::empty()), None);
        }
        let stall_limit = self.connection.shared.settings.body_timeout;
        let (body, failure) = RequestBody::new(incoming, self.selected.route.options.body_bytes_max, stall_limit, tees);
        (Request::from_parts(parts, body.boxed_unsync()), Some(failure))
    }

    fn mirror(&self, mirror: &MirrorTarget, parts: &Parts, has_body: bool) -> Option<Tee> {
        let BackendTarget::Endpoints(backend) = &mirror.target else { return None };
        let shared = &self.connection.shared;
        let is_chosen = shared.spread.below(u64::from(mirror.denominator)) < u64::from(mirror.numerator);
        let upstream = self.served.upstreams.find(backend).filter(|_| is_chosen)?;
        mirror::send(shared, upstream, parts, has_body)
    }

    /// Returns the response to a request that no endpoint answered. A broken request body is the cause, not the endpoint.
    fn failure_response(
        &self,
        upstream: &Upstream,
        body: Option<&FailureCell>,
        error: &DispatchError,
    ) -> Response<Body> {
        match body.and_then(|body| body.get()) {
            Some(BodyFailure::TooLarge) => {
                status_response(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large")
            }
            Some(BodyFailure::Stalled) => status_response(StatusCode::REQUEST_TIMEOUT, "the request body stalled"),
            Some(BodyFailure::Client) => status_response(StatusCode::BAD_REQUEST, "the request body is malformed"),
            None => {
                let (backend, route) = (upstream.name(), &self.selected.route.source);
                let cause = error as &dyn std::error::Error;
                tracing::debug!(backend, route, error = cause, "a request failed");
                status_response(error.status(), &error.to_string())
            }
        }
    }
}

/// Chooses a backend by weight.
fn choose<'a>(connection: &ClientConnection, backends: &'a [WeightedBackend]) -> Option<&'a WeightedBackend> {
    if let [only] = backends {
        return Some(only).filter(|backend| backend.weight > 0);
    }
    let weights = || backends.iter().map(|backend| backend.weight);
    let point = connection.shared.spread.below(weights().map(u64::from).sum());
    Some(&backends[balance::choose_weighted(weights(), point)?])
}

fn change_request(parts: &mut Parts, filter: &Filter, route: &Route) {
    match filter {
        Filter::ModifyRequestHeaders(change) => headers::change(&mut parts.headers, change),
        Filter::RewriteUrl { hostname, path } => {
            if let Some(host) = hostname.as_ref().and_then(|host| HeaderValue::try_from(host).ok()) {
                parts.headers.insert(HOST, host);
            }
            let path = path.as_ref().and_then(|path| rewrite::rewrite_path(&parts.uri, &route.matches.path, path));
            if let Some(path) = path {
                parts.uri = path.into();
            }
        }
        Filter::ModifyResponseHeaders(_) | Filter::Mirror(_) => {}
    }
}

fn change_response<'a, B>(response: &mut Response<B>, filters: impl IntoIterator<Item = &'a Filter>) {
    for filter in filters {
        if let Filter::ModifyResponseHeaders(change) = filter {
            headers::change(response.headers_mut(), change);
        }
    }
}

fn scheme(connection: &ClientConnection) -> &'static str {
    if connection.is_tls { "https" } else { "http" }
}

fn content_length(parts: &Parts) -> Option<u64> {
    parts.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn reason(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("error")
}

fn status_response(status: StatusCode, reason: &str) -> Response<Body> {
    let mut response = Response::new(body::text(format!("{} {reason}\n", status.as_u16())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Returns the response to a request above the limit of requests in flight.
fn overload_response() -> Response<Body> {
    let mut response = status_response(StatusCode::SERVICE_UNAVAILABLE, "too many requests are in flight");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn preflight_response(headers: HeaderMap) -> Response<Body> {
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.headers_mut() = headers;
    response
}

fn redirect_response(status: StatusCode, location: Option<String>) -> Response<Body> {
    let Some(location) = location.and_then(|location| HeaderValue::try_from(location).ok()) else {
        return status_response(StatusCode::BAD_REQUEST, "the request cannot be redirected");
    };
    let mut response = status_response(status, reason(status));
    response.headers_mut().insert(LOCATION, location);
    response
}
