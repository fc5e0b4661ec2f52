//! Selects the route of a request, or the reason to reject it. Pure.

use std::sync::Arc;

use http::{Method, StatusCode, Version};

use super::state::Served;
use super::{hosts, matching};
use crate::routing::Route;

/// The route of a request, and its normalized host.
#[derive(Debug)]
pub(super) struct Selected {
    pub route: Arc<Route>,
    pub host: String,
}

/// A request that no route serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rejection {
    pub status: StatusCode,
    pub reason: &'static str,
}

/// The head of a request with its connection's attributes.
pub(super) struct RequestHead<'a> {
    pub parts: &'a http::request::Parts,
    pub is_tls: bool,
    pub sni: Option<&'a str>,
    pub headers_max: usize,
}

const fn reject(status: StatusCode, reason: &'static str) -> Rejection {
    Rejection { status, reason }
}

/// Selects the route of a request.
pub(super) fn select(served: &Served, head: &RequestHead<'_>) -> Result<Selected, Rejection> {
    let parts = head.parts;
    if parts.method == Method::CONNECT {
        return Err(reject(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not supported"));
    }
    if parts.headers.len() > head.headers_max {
        return Err(reject(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers"));
    }
    let malformed = reject(StatusCode::BAD_REQUEST, "the host of the request is missing, ambiguous or malformed");
    let host = hosts::request_host(&parts.uri, &parts.headers).map_err(|_| malformed)?;
    if host.is_empty() && parts.version != Version::HTTP_10 {
        return Err(malformed);
    }
    if matching::has_dot_segment(parts.uri.path()) {
        return Err(reject(StatusCode::BAD_REQUEST, "the path contains dot segments"));
    }
    if head.is_tls && served.tls.as_ref().is_some_and(|tls| !tls.allows(head.sni, &host)) {
        return Err(reject(StatusCode::MISDIRECTED_REQUEST, "the connection was opened for another host"));
    }
    let missing = reject(StatusCode::NOT_FOUND, "no route matches the request");
    let (_, virtual_host) = hosts::find(&served.listener.hosts, &host).ok_or(missing)?;
    let route = matching::select_route(&virtual_host.routes, &parts.method, &parts.uri, &parts.headers);
    Ok(Selected { route: Arc::clone(route.ok_or(missing)?), host })
}
