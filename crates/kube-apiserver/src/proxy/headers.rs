//! Proxy headers: removal of hop-by-hop and credential headers, X-Forwarded-For, upgrade detection.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CONNECTION, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Hop-by-hop headers (RFC 9110, section 7.6.1).
const HOPS: [HeaderName; 9] = [
    CONNECTION,
    PROXY_CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// CORS headers by which a browser would let other sites read a response as if the API server had allowed it.
const CORS: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// Returns the headers to forward: without hop-by-hop headers and credentials, with X-Forwarded-For.
pub fn forwarded(headers: &HeaderMap, from: Option<IpAddr>) -> HeaderMap {
    let upgrade = if is_upgrade(headers) { headers.get(UPGRADE).cloned() } else { None };
    let mut out = headers.clone();
    strip_hops(&mut out);
    strip_identity(&mut out);
    forwarded_for(&mut out, from);
    if let Some(upgrade) = upgrade {
        out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        out.insert(UPGRADE, upgrade);
    }
    out
}

/// Removes hop-by-hop headers.
pub fn strip_hops(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION).filter_map(|name| name.parse().ok()).collect();
    for name in HOPS.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Removes credentials and impersonation headers, which a backend must neither use nor trust.
pub fn strip_identity(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    let marked =
        |name: &HeaderName| name.as_str().starts_with("impersonate-") || name.as_str().starts_with("x-remote-");
    let names: Vec<HeaderName> = headers.keys().filter(|name| marked(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Removes CORS headers from a response.
pub fn strip_cors(headers: &mut HeaderMap) {
    for name in CORS {
        headers.remove(name);
    }
}

/// Appends the client's address to X-Forwarded-For.
fn forwarded_for(headers: &mut HeaderMap, address: Option<IpAddr>) {
    let Some(address) = address else { return };
    let before = headers.get_all(&FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<String> = before.map(str::to_owned).chain([address.to_string()]).collect();
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Whether the client requests a protocol upgrade.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// Whether the client requests an upgrade to WebSocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    is_upgrade(headers) && upgrade.eq_ignore_ascii_case("websocket")
}

/// Returns the WebSocket subprotocols that the client offers, in order of preference; empty for other requests.
pub fn websocket_protocols(headers: &HeaderMap) -> Vec<&str> {
    if !is_websocket(headers) {
        return Vec::new();
    }
    tokens(headers, &http::header::SEC_WEBSOCKET_PROTOCOL).collect()
}

fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn header_lines(headers: &HeaderMap) -> Vec<String> {
        let mut all: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        all.sort();
        all
    }

    #[test]
    fn hop_by_hop_headers_and_credentials_are_not_forwarded() {
        let sent = headers(&[
            ("connection", "close, x-private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("authorization", "Bearer secret"),
            ("impersonate-user", "someone"),
            ("x-remote-group", "system:masters"),
            ("accept", "text/html"),
        ]);
        assert_eq!(header_lines(&forwarded(&sent, None)), ["accept: text/html"]);
    }

    #[test]
    fn upgrade_request_is_forwarded() {
        let sent = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io"),
        ]);
        assert!(is_upgrade(&sent));
        assert_eq!(websocket_protocols(&sent), ["v5.channel.k8s.io", "v4.channel.k8s.io"]);
        assert!(header_lines(&forwarded(&sent, None)).contains(&"connection: Upgrade".to_owned()));
        let spdy = headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]);
        assert!(is_upgrade(&spdy) && websocket_protocols(&spdy).is_empty());
        assert!(!is_upgrade(&headers(&[("connection", "Upgrade")])));
    }

    #[test]
    fn client_address_is_appended_to_x_forwarded_for() {
        let mut sent = headers(&[("x-forwarded-for", "10.0.0.1")]);
        forwarded_for(&mut sent, Some([10, 0, 0, 2].into()));
        assert_eq!(header_lines(&sent), ["x-forwarded-for: 10.0.0.1, 10.0.0.2"]);
    }
}
