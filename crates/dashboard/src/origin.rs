//! Cross-origin checks: only pages of the dashboard's own origin may use a session.
//!
//! The session cookie is `SameSite=Strict`, but a site includes all ports of a host. Every request except for assets
//! therefore needs a header that other origins cannot send without a preflight, which is never granted. WebSocket
//! requests have no such header; their `Origin` is compared instead.
//!
//! Browsers also send the cookie to the other ports of the host: to an Ingress on the node's address, or to a pod
//! behind `kubectl port-forward`. The cookie is therefore only half of a session: the page keeps a second secret, which
//! the browser stores by origin, and adds it to each request.

use http::header::{HOST, HeaderName, ORIGIN};
use http::{HeaderMap, Uri};

/// The header that every request of the user interface has.
pub(crate) const MARKER: HeaderName = HeaderName::from_static("x-knarr-dashboard");
/// The header with the secret of the session that is not in its cookie.
pub(crate) const SECRET: HeaderName = HeaderName::from_static("x-knarr-session");
/// The prefix of the WebSocket subprotocol that carries the secret instead of the header.
pub(crate) const SECRET_PROTOCOL: &str = "session.knarr.io.";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The URL scheme and address at which browsers reach the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Over HTTPS, in the listener of an API server.
    Https,
    /// Over HTTP on a port of the loopback interface.
    Loopback { port: u16 },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginError {
    #[error("the request has no valid Host header")]
    NoHost,
    /// Another host name resolves to the loopback address: an attack by DNS rebinding.
    #[error("the dashboard is only served as localhost, not as {0:?}")]
    Host(String),
    #[error("requests of other origins are rejected")]
    CrossOrigin,
    #[error("the request lacks the header {MARKER}")]
    NoMarker,
}

impl Exposure {
    /// Returns the name of the session cookie. Cookies are shared by all ports of a host, so that the port is part of
    /// the name on loopback.
    pub(crate) fn cookie_name(self) -> String {
        match self {
            Self::Https => "__Secure-knarr-session".to_owned(),
            Self::Loopback { port } => format!("knarr-session-{port}"),
        }
    }

    /// Returns the attributes of the session cookie. Not every browser accepts `Secure` over HTTP on loopback.
    pub(crate) const fn cookie_attributes(self) -> &'static str {
        match self {
            Self::Https => "; Path=/dashboard; HttpOnly; SameSite=Strict; Secure",
            Self::Loopback { .. } => "; Path=/dashboard; HttpOnly; SameSite=Strict",
        }
    }

    const fn scheme(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Loopback { .. } => "http",
        }
    }

    /// Returns the host of a request, with its port if it has one.
    pub(crate) fn host<'a>(self, uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, OriginError> {
        let mut hosts = headers.get_all(HOST).iter();
        let header = match (hosts.next(), hosts.next()) {
            (Some(host), None) => Some(host.to_str().map_err(|_| OriginError::NoHost)?),
            (None, None) => None,
            _ => return Err(OriginError::NoHost),
        };
        let host = match (uri.authority().map(http::uri::Authority::as_str), header) {
            (Some(authority), None) => authority,
            (None, Some(host)) => host,
            (Some(authority), Some(host)) if authority.eq_ignore_ascii_case(host) => host,
            _ => return Err(OriginError::NoHost),
        };
        match self {
            Self::Loopback { port } if !is_loopback(host, port) => Err(OriginError::Host(host.to_owned())),
            _ => Ok(host),
        }
    }

    /// Checks a request that reads or changes anything but assets.
    pub(crate) fn check(self, uri: &Uri, headers: &HeaderMap) -> Result<(), OriginError> {
        let host = self.host(uri, headers)?;
        self.check_site(host, headers)?;
        if headers.contains_key(MARKER) { Ok(()) } else { Err(OriginError::NoMarker) }
    }

    /// Checks a WebSocket request, which must have an `Origin`.
    pub(crate) fn check_websocket(self, uri: &Uri, headers: &HeaderMap) -> Result<(), OriginError> {
        let host = self.host(uri, headers)?;
        self.check_site(host, headers)?;
        if headers.contains_key(ORIGIN) { Ok(()) } else { Err(OriginError::CrossOrigin) }
    }

    /// Checks the headers by which browsers name the origin of a request. Other clients send none of them.
    fn check_site(self, host: &str, headers: &HeaderMap) -> Result<(), OriginError> {
        let own = format!("{}://{host}", self.scheme());
        let is_own = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(own.as_bytes());
        let is_same = |value: &http::HeaderValue| value == "same-origin";
        let allowed = headers.get_all(ORIGIN).iter().all(is_own) && headers.get_all(SEC_FETCH_SITE).iter().all(is_same);
        if allowed { Ok(()) } else { Err(OriginError::CrossOrigin) }
    }
}

fn is_loopback(host: &str, port: u16) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| host == format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: Exposure = Exposure::Loopback { port: 7000 };

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, http::HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn requests_of_other_origins_are_refused() {
        let check = |exposure: Exposure, headers: &[(&'static str, &'static str)], expect: Result<(), OriginError>| {
            assert_eq!(exposure.check(&Uri::from_static("/dashboard/session"), &map(headers)), expect, "{headers:?}");
        };
        let (host, mark) = (("host", "cluster.test:6443"), ("x-knarr-dashboard", "1"));
        let own = ("origin", "https://cluster.test:6443");
        check(Exposure::Https, &[host, mark], Ok(()));
        check(Exposure::Https, &[host, mark, own, ("sec-fetch-site", "same-origin")], Ok(()));
        check(Exposure::Https, &[host, own], Err(OriginError::NoMarker));
        check(Exposure::Https, &[mark], Err(OriginError::NoHost));
        check(Exposure::Https, &[host, host, mark], Err(OriginError::NoHost));
        for origin in ["https://evil.test", "http://cluster.test:6443", "https://cluster.test:8443", "null"] {
            check(Exposure::Https, &[host, mark, ("origin", origin)], Err(OriginError::CrossOrigin));
            check(Exposure::Https, &[host, mark, own, ("origin", origin)], Err(OriginError::CrossOrigin));
        }
        for site in ["cross-site", "same-site", "none"] {
            check(Exposure::Https, &[host, mark, ("sec-fetch-site", site)], Err(OriginError::CrossOrigin));
        }
        check(LOOPBACK, &[("host", "localhost:7000"), mark, ("origin", "http://localhost:7000")], Ok(()));
        check(LOOPBACK, &[("host", "[::1]:7000"), mark], Ok(()));
        for host in ["evil.test:7000", "localhost", "localhost:7001", "127.0.0.1.evil.test:7000"] {
            check(LOOPBACK, &[("host", host), mark], Err(OriginError::Host(host.to_owned())));
        }
    }

    #[test]
    fn websockets_of_other_origins_are_refused() {
        let check = |headers: &[(&'static str, &'static str)], expect: Result<(), OriginError>| {
            let found = LOOPBACK.check_websocket(&Uri::from_static("/dashboard/api/"), &map(headers));
            assert_eq!(found, expect, "{headers:?}");
        };
        let host = ("host", "127.0.0.1:7000");
        check(&[host, ("origin", "http://127.0.0.1:7000")], Ok(()));
        check(&[host, ("origin", "http://localhost:7000")], Err(OriginError::CrossOrigin));
        check(&[host, ("origin", "http://127.0.0.1:7001")], Err(OriginError::CrossOrigin));
        check(&[host, ("origin", "https://evil.test")], Err(OriginError::CrossOrigin));
        check(&[host], Err(OriginError::CrossOrigin));
    }

    #[test]
    fn authority_of_http_2_is_the_host() {
        let uri = Uri::from_static("https://cluster.test:6443/dashboard/session");
        let headers = map(&[("x-knarr-dashboard", "1"), ("origin", "https://cluster.test:6443")]);
        assert_eq!(Exposure::Https.check(&uri, &headers), Ok(()));
        let headers = map(&[("x-knarr-dashboard", "1"), ("host", "other.test")]);
        assert_eq!(Exposure::Https.check(&uri, &headers), Err(OriginError::NoHost));
    }
}
