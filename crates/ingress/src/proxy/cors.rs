//! Cross-origin resource sharing: pure functions from the headers of a request to those of its response.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::routing::{CorsNames, CorsOrigins, CorsPolicy, OriginPattern};

/// Headers of a backend that the policy replaces.
const REPLACED: [HeaderName; 3] =
    [ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_EXPOSE_HEADERS];

/// Returns the headers of the response to a preflight request; `None` for any other request. A preflight request of an
/// origin that is not allowed gets no headers, so that the client does not send the request.
pub(super) fn preflight(policy: &CorsPolicy, method: &Method, headers: &HeaderMap) -> Option<HeaderMap> {
    let requested = headers.get(ACCESS_CONTROL_REQUEST_METHOD).filter(|_| method == Method::OPTIONS)?;
    let mut response = response_headers(policy, headers);
    if response.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        allow(&mut response, ACCESS_CONTROL_ALLOW_METHODS, &policy.methods, Some(requested));
        let requested = headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
        allow(&mut response, ACCESS_CONTROL_ALLOW_HEADERS, &policy.request_headers, requested);
        response.insert(ACCESS_CONTROL_MAX_AGE, policy.max_age_seconds.into());
    }
    Some(response)
}

/// Returns the headers that share a response with the origin of its request.
pub(super) fn response_headers(policy: &CorsPolicy, headers: &HeaderMap) -> HeaderMap {
    let mut response = HeaderMap::new();
    let Some(origin) = headers.get(ORIGIN) else { return response };
    response.insert(VARY, HeaderValue::from_static("Origin"));
    if !is_allowed(&policy.origins, origin) {
        return response;
    }
    response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    if policy.credentials {
        response.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
    // With credentials, clients take `*` for a name.
    let exposed = policy.exposed_headers.iter().filter(|name| !(policy.credentials && *name == "*"));
    let exposed = exposed.map(String::as_str).collect::<Vec<_>>().join(", ");
    if let Some(exposed) = HeaderValue::try_from(exposed).ok().filter(|exposed| !exposed.is_empty()) {
        response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
    response
}

/// Adds the headers of [`response_headers`] to the response of a backend.
pub(super) fn share(response: &mut HeaderMap, shared: &HeaderMap) {
    for name in REPLACED {
        response.remove(name);
    }
    for (name, value) in shared {
        response.append(name, value.clone());
    }
}

fn is_allowed(origins: &CorsOrigins, origin: &HeaderValue) -> bool {
    match origins {
        CorsOrigins::Any => true,
        CorsOrigins::Some(patterns) => {
            let origin = origin.to_str().ok().and_then(OriginPattern::parse);
            origin.is_some_and(|origin| patterns.iter().any(|pattern| pattern.includes(&origin)))
        }
    }
}

/// Allows the listed names, or those that were requested.
fn allow(response: &mut HeaderMap, header: HeaderName, allowed: &CorsNames, requested: Option<&HeaderValue>) {
    let value = match allowed {
        CorsNames::Any => requested.cloned(),
        CorsNames::Some(names) => HeaderValue::try_from(names.join(", ")).ok(),
    };
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        response.insert(header, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(origins: &[&str], credentials: bool) -> CorsPolicy {
        let patterns = origins.iter().map(|origin| OriginPattern::parse(origin).unwrap()).collect();
        CorsPolicy {
            origins: if origins.is_empty() { CorsOrigins::Any } else { CorsOrigins::Some(patterns) },
            credentials,
            methods: CorsNames::Some(vec!["GET".to_owned(), "PUT".to_owned()]),
            request_headers: CorsNames::Any,
            exposed_headers: vec!["x-a".to_owned(), "*".to_owned()],
            max_age_seconds: 5,
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn origins_match_by_scheme_host_and_port() {
        let check = |pattern: &str, origin: &str, expect: bool| {
            let allowed = CorsOrigins::Some(vec![OriginPattern::parse(pattern).unwrap()]);
            assert_eq!(is_allowed(&allowed, &origin.parse().unwrap()), expect, "{pattern} {origin}");
        };
        check("https://a.test", "https://a.test", true);
        check("https://a.test", "https://a.test:443", true);
        check("https://a.test", "https://A.test", true);
        check("https://a.test", "http://a.test", false);
        check("https://a.test", "https://a.test:8443", false);
        check("https://a.test:8443", "https://a.test:8443", true);
        check("https://*.a.test", "https://c.b.a.test", true);
        check("https://*.a.test", "https://a.test", false);
        check("https://*.a.test", "https://ba.test", false);
        check("https://*", "https://a.test", true);
        check("https://*", "http://a.test", false);
        check("https://*.a.test", "https://*.a.test", false);
        check("https://a.test", "null", false);
    }

    #[test]
    fn preflight_requests_of_allowed_origins_get_the_policy() {
        let requested = [("access-control-request-method", "PUT"), ("access-control-request-headers", "x-b, x-c")];
        let of = |origin: &'static str| headers(&[requested[0], requested[1], ("origin", origin)]);
        let answer = preflight(&policy(&["https://a.test"], true), &Method::OPTIONS, &of("https://a.test")).unwrap();
        let expect = headers(&[
            ("vary", "Origin"),
            ("access-control-allow-origin", "https://a.test"),
            ("access-control-allow-credentials", "true"),
            ("access-control-expose-headers", "x-a"),
            ("access-control-allow-methods", "GET, PUT"),
            ("access-control-allow-headers", "x-b, x-c"),
            ("access-control-max-age", "5"),
        ]);
        assert_eq!(answer, expect);
        let other = preflight(&policy(&["https://a.test"], true), &Method::OPTIONS, &of("https://b.test")).unwrap();
        assert_eq!(other, headers(&[("vary", "Origin")]));
        assert!(preflight(&policy(&[], false), &Method::GET, &of("https://a.test")).is_none());
        let plain = headers(&[("origin", "https://a.test")]);
        assert!(preflight(&policy(&[], false), &Method::OPTIONS, &plain).is_none());
    }

    #[test]
    fn headers_of_the_backend_are_replaced() {
        let mut response = headers(&[("access-control-allow-origin", "*"), ("vary", "Accept")]);
        let shared = response_headers(&policy(&[], false), &headers(&[("origin", "https://a.test")]));
        share(&mut response, &shared);
        assert_eq!(response.get(ACCESS_CONTROL_ALLOW_ORIGIN).unwrap(), "https://a.test");
        assert_eq!(response.get(ACCESS_CONTROL_EXPOSE_HEADERS).unwrap(), "x-a, *");
        assert_eq!(response.get_all(VARY).iter().count(), 2);
        assert!(response.get(ACCESS_CONTROL_ALLOW_CREDENTIALS).is_none());
    }
}
