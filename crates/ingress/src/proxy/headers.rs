//! Header changes on the way to the backend and back: pure functions on header maps.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

use crate::routing::HeaderChange;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Headers that the proxy writes.
const FORWARDING: [HeaderName; 6] =
    [X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PORT, X_FORWARDED_PROTO, X_REAL_IP, FORWARDED];
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Longest accepted `X-Request-Id` of a client.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The client of a request, for the forwarding headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientView<'a> {
    /// The canonical address as text.
    pub address: &'a HeaderValue,
    pub scheme: &'static str,
    /// The host that the client requested, with its port if given.
    pub host: Option<&'a HeaderValue>,
    pub port: &'a HeaderValue,
}

/// Which forwarding headers of the client are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardingTrust {
    /// The proxy is the first one: it replaces the headers.
    #[default]
    Replace,
    /// Only trusted proxies reach the listeners: the proxy appends to their headers.
    Append,
}

/// Removes headers that concern one connection only.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if !headers.keys().any(is_hop_by_hop) {
        return;
    }
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // Removal of Host would send the request to another virtual host of the backend.
        .filter(|name| *name != HOST)
        .collect();
    for name in listed {
        // TE may announce trailers, which the proxy forwards.
        if name != TE {
            headers.remove(name);
        }
    }
    let has_trailers = headers.get_all(TE).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, UPGRADE] {
        headers.remove(name);
    }
    if has_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if headers.remove(TRANSFER_ENCODING).is_some() {
        // The length of a message with both headers is ambiguous.
        headers.remove(CONTENT_LENGTH);
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(*name, CONNECTION | PROXY_AUTHENTICATE | PROXY_AUTHORIZATION | TE | TRANSFER_ENCODING | UPGRADE)
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// Returns the protocol of an upgrade that `Connection` and `Upgrade` request together.
pub(super) fn requested_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let is_listed =
        connection.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("upgrade"));
    // h2c would allow a client to bypass the routes.
    let is_allowed = |value: &&HeaderValue| {
        value
            .to_str()
            .is_ok_and(|value| !value.split(',').any(|name| name.trim().to_ascii_lowercase().starts_with("h2")))
    };
    if is_listed { headers.get(UPGRADE).filter(is_allowed).cloned() } else { None }
}

/// Prepares the headers of a request for a backend.
pub(super) fn set_forwarding(headers: &mut HeaderMap, client: ClientView<'_>, trust: ForwardingTrust) {
    // Backends with a CGI-like interface read `X_Forwarded_For` as `X-Forwarded-For`.
    let aliases: Vec<HeaderName> = headers.keys().filter(|name| is_alias(name)).cloned().collect();
    for name in aliases {
        headers.remove(name);
    }
    headers.remove(EXPECT);
    merge_cookies(headers);
    let is_set =
        |name: &HeaderName, headers: &HeaderMap| trust == ForwardingTrust::Append && headers.contains_key(name);
    append_list(headers, X_FORWARDED_FOR, client.address.clone(), trust);
    append_list(headers, FORWARDED, forwarded(client), trust);
    for (name, value) in [
        (X_REAL_IP, Some(client.address.clone())),
        (X_FORWARDED_PROTO, Some(HeaderValue::from_static(client.scheme))),
        (X_FORWARDED_HOST, client.host.cloned()),
        (X_FORWARDED_PORT, Some(client.port.clone())),
    ] {
        match value {
            _ if is_set(&name, headers) => {}
            Some(value) => drop(headers.insert(name, value)),
            None => drop(headers.remove(name)),
        }
    }
}

/// Keeps a well-formed `X-Request-Id` of the client, else sets a new one.
pub(super) fn set_request_id(headers: &mut HeaderMap, new: impl FnOnce() -> HeaderValue) {
    let is_valid = |value: &&HeaderValue| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    let mut given = headers.get_all(X_REQUEST_ID).iter();
    if given.next().filter(is_valid).is_none() || given.next().is_some() {
        headers.insert(X_REQUEST_ID, new());
    }
}

/// Applies a filter. Headers that frame a message cannot be changed.
pub(super) fn change(headers: &mut HeaderMap, change: &HeaderChange) {
    let is_allowed = |name: &HeaderName| ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE].contains(name);
    for (name, value) in change.set.iter().filter(|(name, _)| is_allowed(name)) {
        headers.insert(name, value.clone());
    }
    for (name, value) in change.add.iter().filter(|(name, _)| is_allowed(name)) {
        headers.append(name, value.clone());
    }
    for name in change.remove.iter().filter(|name| is_allowed(name)) {
        headers.remove(name);
    }
}

fn is_alias(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.contains('_') && {
        let name = name.replace('_', "-");
        FORWARDING.iter().any(|known| known.as_str() == name)
    }
}

/// Sets a list header, or appends to it.
fn append_list(headers: &mut HeaderMap, name: HeaderName, element: HeaderValue, trust: ForwardingTrust) {
    if trust == ForwardingTrust::Replace || !headers.contains_key(&name) {
        headers.insert(name, element);
        return;
    }
    let given = headers.get_all(&name).iter().chain([&element]).filter_map(|value| value.to_str().ok());
    let list = given.collect::<Vec<_>>().join(", ");
    headers.insert(name, HeaderValue::try_from(list).expect("joined header values are a header value"));
}

/// Returns the element of `Forwarded` (RFC 7239).
fn forwarded(client: ClientView<'_>) -> HeaderValue {
    let address = client.address.to_str().unwrap_or_default();
    let (start, end) = if address.contains(':') { ("for=\"[", "]\"") } else { ("for=", "") };
    // The host was validated: it has no quotes.
    let host = client.host.and_then(|host| host.to_str().ok());
    let quote = if host.is_some_and(|host| host.contains([':', '['])) { "\"" } else { "" };
    let host = host.map_or([""; 4], |host| [";host=", quote, host, quote]);
    let [name, open, host, close] = host;
    let element = [start, address, end, name, open, host, close, ";proto=", client.scheme].concat();
    HeaderValue::try_from(element).expect("joined header values are a header value")
}

/// Joins the cookie headers into which HTTP/2 clients may split one (RFC 9113, section 8.2.3).
fn merge_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let all: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let joined = HeaderValue::from_bytes(&all.join(&b"; "[..])).expect("joined header values are a header value");
    headers.insert(COOKIE, joined);
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

    static ADDRESS: HeaderValue = HeaderValue::from_static("192.0.2.7");
    static PORT: HeaderValue = HeaderValue::from_static("443");

    fn client(host: &HeaderValue) -> ClientView<'_> {
        ClientView { address: &ADDRESS, scheme: "https", host: Some(host), port: &PORT }
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = map(&[
            ("host", "a.test"),
            ("connection", "close, X-Private, Host"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("upgrade", "websocket"),
            ("x-public", "1"),
        ]);
        remove_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("host", "a.test"), ("x-public", "1"), ("te", "trailers")]));
    }

    #[test]
    fn forwarding_headers_of_clients_are_replaced() {
        let mut headers = map(&[
            ("x-forwarded-for", "1.2.3.4"),
            ("x_forwarded_for", "1.2.3.4"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-proto", "http"),
        ]);
        set_forwarding(&mut headers, client(&HeaderValue::from_static("a.test")), ForwardingTrust::Replace);
        let expect = map(&[
            ("x-forwarded-for", "192.0.2.7"),
            ("forwarded", "for=192.0.2.7;host=a.test;proto=https"),
            ("x-real-ip", "192.0.2.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "a.test"),
            ("x-forwarded-port", "443"),
        ]);
        assert_eq!(headers, expect);
    }

    #[test]
    fn forwarding_headers_of_trusted_proxies_are_appended_to() {
        let mut headers = map(&[("x-forwarded-for", "1.2.3.4"), ("x-forwarded-proto", "http")]);
        set_forwarding(&mut headers, client(&HeaderValue::from_static("a.test:8443")), ForwardingTrust::Append);
        assert_eq!(headers[X_FORWARDED_FOR], "1.2.3.4, 192.0.2.7");
        assert_eq!(headers[X_FORWARDED_PROTO], "http");
        assert_eq!(headers[FORWARDED], "for=192.0.2.7;host=\"a.test:8443\";proto=https");
    }

    #[test]
    fn ipv6_addresses_are_quoted_in_the_standard_header() {
        let (address, host) = (HeaderValue::from_static("2001:db8::7"), HeaderValue::from_static("a.test"));
        let mut headers = HeaderMap::new();
        set_forwarding(&mut headers, ClientView { address: &address, ..client(&host) }, ForwardingTrust::Replace);
        assert_eq!(headers[X_FORWARDED_FOR], "2001:db8::7");
        assert_eq!(headers[FORWARDED], "for=\"[2001:db8::7]\";host=a.test;proto=https");
    }

    #[test]
    fn split_cookies_are_joined() {
        let mut headers = map(&[("cookie", "a=b"), ("cookie", "c=d")]);
        merge_cookies(&mut headers);
        assert_eq!(headers, map(&[("cookie", "a=b; c=d")]));
    }

    #[test]
    fn malformed_request_ids_are_replaced() {
        let check = |given: &[(&'static str, &'static str)], expect: &str| {
            let mut headers = map(given);
            set_request_id(&mut headers, || HeaderValue::from_static("new"));
            assert_eq!(headers[X_REQUEST_ID], expect, "{given:?}");
        };
        check(&[("x-request-id", "abc-1")], "abc-1");
        check(&[("x-request-id", "a b")], "new");
        check(&[("x-request-id", "")], "new");
        check(&[], "new");
    }

    #[test]
    fn upgrades_need_both_headers_and_exclude_h2c() {
        let check = |headers: &[(&'static str, &'static str)], expect: Option<&str>| {
            assert_eq!(requested_upgrade(&map(headers)).as_ref().map(|value| value.to_str().unwrap()), expect);
        };
        check(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")], Some("websocket"));
        check(&[("upgrade", "websocket")], None);
        check(&[("connection", "upgrade")], None);
        check(&[("connection", "upgrade, http2-settings"), ("upgrade", "h2c")], None);
    }

    #[test]
    fn filters_set_then_add_then_remove() {
        let value = HeaderValue::from_static;
        let (a, b, c) = (HeaderName::from_static("a"), HeaderName::from_static("b"), HeaderName::from_static("c"));
        let filter = HeaderChange {
            set: vec![(a.clone(), value("new")), (CONTENT_LENGTH, value("1"))],
            add: vec![(b, value("2"))],
            remove: vec![c],
        };
        let mut headers = map(&[("a", "old"), ("b", "1"), ("c", "1")]);
        change(&mut headers, &filter);
        assert_eq!(headers, map(&[("a", "new"), ("b", "1"), ("b", "2")]));
    }
}
