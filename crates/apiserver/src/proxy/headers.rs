//! Which headers go on, and what they ask for.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CONNECTION, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What is between two neighbours and nobody else.
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

/// Headers by which a browser would let other sites read an answer, as if it were the API's own.
const CORS: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// The headers of a request as they go on: without what is between neighbours, and without the proofs by which the
/// client showed this server who it is; with where it came from.
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

/// Takes out what is between two neighbours.
pub fn strip_hops(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION).filter_map(|name| name.parse().ok()).collect();
    for name in HOPS.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Takes out what says who the client is or acts as: nobody behind this server may use it, or believe it.
pub fn strip_identity(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    let marked =
        |name: &HeaderName| name.as_str().starts_with("impersonate-") || name.as_str().starts_with("x-remote-");
    let names: Vec<HeaderName> = headers.keys().filter(|name| marked(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Takes out what would open an answer to other sites.
pub fn strip_cors(headers: &mut HeaderMap) {
    for name in CORS {
        headers.remove(name);
    }
}

/// Adds who asked this server to those who were asked before.
fn forwarded_for(headers: &mut HeaderMap, address: Option<IpAddr>) {
    let Some(address) = address else { return };
    let before = headers.get_all(&FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<String> = before.map(str::to_owned).chain([address.to_string()]).collect();
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Whether a request asks for another protocol.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// Whether it asks for WebSocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let asked = headers.get(UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    is_upgrade(headers) && asked.eq_ignore_ascii_case("websocket")
}

/// The protocols that a client offers inside WebSocket, the most wanted first; none if it asks for something else.
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

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut all: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        all.sort();
        all
    }

    #[test]
    fn neighbours_words_and_proofs_of_identity_stay_here() {
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
        assert_eq!(shown(&forwarded(&sent, None)), ["accept: text/html"]);
    }

    #[test]
    fn an_upgrade_goes_on() {
        let sent = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io"),
        ]);
        assert!(is_upgrade(&sent));
        assert_eq!(websocket_protocols(&sent), ["v5.channel.k8s.io", "v4.channel.k8s.io"]);
        assert!(shown(&forwarded(&sent, None)).contains(&"connection: Upgrade".to_owned()));
        let spdy = headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]);
        assert!(is_upgrade(&spdy) && websocket_protocols(&spdy).is_empty());
        assert!(!is_upgrade(&headers(&[("connection", "Upgrade")])));
    }

    #[test]
    fn who_asked_is_added_to_who_asked_before() {
        let mut sent = headers(&[("x-forwarded-for", "10.0.0.1")]);
        forwarded_for(&mut sent, Some([10, 0, 0, 2].into()));
        assert_eq!(shown(&sent), ["x-forwarded-for: 10.0.0.1, 10.0.0.2"]);
    }
}
