//! Forwarded requests: the URL and headers that reach the API server.
//!
//! A forwarded request is built from listed parts of the browser's request. Everything else, such as cookies, identity
//! headers and forwarding headers, is not forwarded.

use http::header::{
    ACCEPT, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;

/// Headers of the browser that the API server interprets.
const FORWARDED: [HeaderName; 2] = [ACCEPT, CONTENT_TYPE];
/// Top-level paths of the API.
const ROOTS: &[&str] = &["api", "apis", "openapi", "version"];
/// The protocols of exec and attach, without the one that contains a bearer token.
const STREAM_PROTOCOLS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Subresources that are WebSockets.
const STREAM_SUBRESOURCES: &[&str] = &["exec", "attach"];
/// Longest URL.
const URL_BYTES_MAX: usize = 16 << 10;

/// A request to the API server.
#[derive(Debug, PartialEq)]
pub(crate) struct Forward {
    pub path: PathAndQuery,
    pub headers: HeaderMap,
    pub duration: Duration,
}

/// The expected duration of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duration {
    Short,
    /// A watch or a followed log.
    Stream,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("the path {0:?} is not a path of the Kubernetes API")]
    Path(String),
    #[error("the dashboard does not show applications through the API server's proxy; use `kubectl port-forward`")]
    Proxy,
    #[error("the URL is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    #[error("the method {0} is not supported")]
    Method(Method),
    #[error("only exec and attach can be opened as a WebSocket")]
    NotAStream,
    #[error("the WebSocket must offer one of the protocols {}", STREAM_PROTOCOLS.join(" and "))]
    Protocol,
}

impl ForwardError {
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            Self::Path(_) => StatusCode::NOT_FOUND,
            Self::Proxy => StatusCode::FORBIDDEN,
            Self::TooLong => StatusCode::URI_TOO_LONG,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAStream | Self::Protocol => StatusCode::BAD_REQUEST,
        }
    }
}

/// Plans a request. `path` is the part of the URL after `/dashboard/api`.
pub(crate) fn request(
    method: &Method,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Forward, ForwardError> {
    if ![Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method) {
        return Err(ForwardError::Method(method.clone()));
    }
    let subresource = check_path(path)?;
    let parameter = |name: &str| {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        pairs.into_iter().any(|(found, value)| found == name && matches!(&*value, "1" | "true"))
    };
    let is_stream = parameter("watch") || (subresource.as_deref() == Some("log") && parameter("follow"));
    let mut forwarded = HeaderMap::new();
    for name in &FORWARDED {
        if let Some(value) = headers.get(name) {
            forwarded.insert(name, value.clone());
        }
    }
    let duration = if is_stream { Duration::Stream } else { Duration::Short };
    Ok(Forward { path: joined(path, query)?, headers: forwarded, duration })
}

/// Plans a WebSocket request for exec or attach.
pub(crate) fn websocket(path: &str, query: Option<&str>, headers: &HeaderMap) -> Result<Forward, ForwardError> {
    let subresource = check_path(path)?.unwrap_or_default();
    if !STREAM_SUBRESOURCES.contains(&subresource.as_str()) {
        return Err(ForwardError::NotAStream);
    }
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
    let known: Vec<&str> = STREAM_PROTOCOLS.iter().copied().filter(|known| offered.contains(known)).collect();
    if known.is_empty() {
        return Err(ForwardError::Protocol);
    }
    let protocols = HeaderValue::try_from(known.join(", ")).expect("names of protocols are visible ASCII");
    let mut forwarded = HeaderMap::new();
    forwarded.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
    forwarded.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    forwarded.insert(UPGRADE, HeaderValue::from_static("websocket"));
    for name in [SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION] {
        if let Some(value) = headers.get(&name) {
            forwarded.insert(name, value.clone());
        }
    }
    Ok(Forward { path: joined(path, query)?, headers: forwarded, duration: Duration::Stream })
}

/// Whether a request is a WebSocket handshake.
pub(crate) fn is_websocket(method: &Method, headers: &HeaderMap) -> bool {
    let upgrades = headers.get_all(UPGRADE).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    *method == Method::GET && upgrades
}

/// Headers of the API server's response to a WebSocket request that the browser needs.
pub(crate) fn switching_headers(upstream: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    for name in [http::header::SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL] {
        if let Some(value) = upstream.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers
}

/// Checks that a path has the same meaning to every parser, and that it is one of the API. Returns the subresource.
fn check_path(path: &str) -> Result<Option<String>, ForwardError> {
    let invalid = || ForwardError::Path(path.chars().take(200).collect());
    let encoded = path.strip_prefix('/').ok_or_else(invalid)?.split('/');
    // The API server compares decoded segments.
    let decode = |segment| percent_decode_str(segment).decode_utf8().ok();
    let segments = encoded.map(decode).collect::<Option<Vec<_>>>().ok_or_else(invalid)?;
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    let is_plain = |segment: &&str| {
        let is_dots = matches!(*segment, "" | "." | "..");
        !is_dots && !segment.bytes().any(|byte| matches!(byte, b'/' | b'\\' | b'%' | b';' | 0..0x20 | 0x7f))
    };
    if !segments.iter().all(is_plain) || !ROOTS.contains(&segments[0]) {
        return Err(invalid());
    }
    let rest = match segments[0] {
        "api" => segments.get(2..),
        "apis" => segments.get(3..),
        _ => None,
    };
    let rest = rest.unwrap_or_default();
    // `watch` and `proxy` as prefixes are forms of the first releases of Kubernetes.
    if matches!(rest.first(), Some(&"watch" | &"proxy")) {
        return Err(invalid());
    }
    let object = match rest {
        ["namespaces", _, resource @ ..] if resource.len() >= 2 => resource,
        rest => rest,
    };
    // An application in a pod would run in the dashboard's origin.
    match object.get(2) {
        Some(&"proxy") => Err(ForwardError::Proxy),
        subresource => Ok(subresource.map(|name| (*name).to_owned())),
    }
}

fn joined(path: &str, query: Option<&str>) -> Result<PathAndQuery, ForwardError> {
    let url = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    if url.len() > URL_BYTES_MAX {
        return Err(ForwardError::TooLong);
    }
    url.parse().map_err(|_| ForwardError::Path(path.chars().take(200).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn only_paths_of_the_api_are_forwarded() {
        let check = |path: &str, is_allowed: bool| {
            let found = request(&Method::GET, path, None, &HeaderMap::new());
            assert_eq!(found.is_ok(), is_allowed, "{path}: {found:?}");
        };
        for path in [
            "/api",
            "/apis",
            "/version",
            "/api/v1/namespaces/default/pods",
            "/api/v1/namespaces/proxy/pods/proxy",
            "/apis/apps/v1/deployments",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "/openapi/v3/apis/apps/v1",
        ] {
            check(path, true);
        }
        for path in [
            "",
            "/",
            "api/v1",
            "/metrics",
            "/logs/",
            "/debug/pprof",
            "/api/",
            "//api/v1",
            "/api/../metrics",
            "/api/./v1",
            "/api/%2e%2e/metrics",
            "/api/%2E./metrics",
            "/api/v1%2fnodes",
            "/api/v1%5cnodes",
            "/api/v1/nodes%00",
            "/api/v1/nodes%0d%0aX-Remote-User:a",
            "/api/v1/%252e%252e",
            "/api/v1/nodes;x",
            "/api/v1/watch/pods",
            "/api/v1/proxy/nodes/a",
            "/api/v1/%77atch/pods",
            "/api/v1/pr%6fxy/nodes/a",
            "/%6detrics",
            "/api/v1/pods/%ff",
        ] {
            check(path, false);
        }
    }

    #[test]
    fn proxied_applications_are_refused() {
        for path in [
            "/api/v1/nodes/a/proxy/",
            "/api/v1/nodes/a/proxy",
            "/api/v1/nodes/a/%70roxy",
            "/api/v1/namespaces/default/services/web/proxy",
            "/api/v1/namespaces/default/pods/web/proxy/index.html",
            "/api/v1/n%61mespaces/default/pods/web/proxy/index.html",
            "/api/v1/%6eamespaces/default/services/web/pr%6Fxy",
        ] {
            let found = request(&Method::GET, path.trim_end_matches('/'), None, &HeaderMap::new());
            assert_eq!(found, Err(ForwardError::Proxy), "{path}");
        }
    }

    #[test]
    fn credentials_and_identity_headers_of_the_browser_are_not_forwarded() {
        let headers = map(&[
            ("accept", "application/json;as=Table"),
            ("content-type", "application/json"),
            ("authorization", "Bearer other"),
            ("cookie", "__Secure-knarr-session=a"),
            ("impersonate-user", "admin"),
            ("x-remote-user", "admin"),
            ("x-forwarded-for", "1.2.3.4"),
            ("connection", "x-a"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("host", "elsewhere.test"),
        ]);
        let found = request(&Method::POST, "/api/v1/namespaces", Some("dryRun=All"), &headers).unwrap();
        assert_eq!(
            found.headers,
            map(&[("accept", "application/json;as=Table"), ("content-type", "application/json")])
        );
        assert_eq!(found.path, "/api/v1/namespaces?dryRun=All");
    }

    #[test]
    fn watches_and_followed_logs_are_streams() {
        let check = |path: &str, query: &str, expect: Duration| {
            assert_eq!(request(&Method::GET, path, Some(query), &HeaderMap::new()).unwrap().duration, expect);
        };
        check("/api/v1/pods", "watch=1", Duration::Stream);
        check("/api/v1/pods", "watch=true&resourceVersion=1", Duration::Stream);
        check("/api/v1/pods", "watch=false", Duration::Short);
        check("/api/v1/namespaces/a/pods/b/log", "follow=true", Duration::Stream);
        check("/api/v1/namespaces/a/pods/b/log", "tailLines=5", Duration::Short);
    }

    #[test]
    fn methods_other_than_verbs_are_refused() {
        for method in [Method::CONNECT, Method::TRACE, Method::OPTIONS, Method::HEAD] {
            let found = request(&method, "/api/v1/pods", None, &HeaderMap::new());
            assert_eq!(found, Err(ForwardError::Method(method)));
        }
    }

    #[test]
    fn bearer_subprotocols_are_not_forwarded() {
        let exec = "/api/v1/namespaces/a/pods/b/exec";
        let headers = map(&[
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YWRtaW4, v5.channel.k8s.io"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("authorization", "Bearer other"),
        ]);
        let found = websocket(exec, Some("command=sh"), &headers).unwrap();
        assert_eq!(found.headers["sec-websocket-protocol"], "v5.channel.k8s.io");
        assert!(
            !found.headers.contains_key("authorization") && !found.headers.contains_key("sec-websocket-extensions")
        );
        assert_eq!(websocket(exec, None, &HeaderMap::new()), Err(ForwardError::Protocol));
        let other = "/api/v1/namespaces/a/pods/b/portforward";
        assert_eq!(websocket(other, None, &headers), Err(ForwardError::NotAStream));
        assert_eq!(websocket("/api/v1/pods", None, &headers), Err(ForwardError::NotAStream));
    }
}
