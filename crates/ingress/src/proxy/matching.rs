//! Route matching: pure functions from a request's head to the first route that matches.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, Method, Uri};
use percent_encoding::percent_decode_str;

use crate::routing::{PathMatch, RequestMatch, Route, ValueMatch};

/// Returns the first route that matches.
pub(super) fn select_route<'a>(
    routes: &'a [Arc<Route>],
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<&'a Arc<Route>> {
    routes.iter().find(|route| matches(&route.matches, method, uri, headers))
}

/// Whether all conditions hold.
pub(super) fn matches(conditions: &RequestMatch, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    matches_path(&conditions.path, uri.path())
        && conditions.method.as_ref().is_none_or(|expected| expected == method)
        && conditions.headers.iter().all(|(name, value)| matches_header(headers, name, value))
        && conditions.query.iter().all(|(name, value)| matches_query(uri.query().unwrap_or_default(), name, value))
}

/// Whether a path matches. A prefix matches whole segments, and its trailing slash is ignored.
pub(super) fn matches_path(expected: &PathMatch, path: &str) -> bool {
    match expected {
        PathMatch::Exact(expected) => expected == path,
        PathMatch::Prefix(prefix) => {
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        PathMatch::GrpcMethod(method) => {
            let names = path.strip_prefix('/').and_then(|path| path.split_once('/'));
            names.is_some_and(|(service, name)| !service.is_empty() && name == method)
        }
    }
}

/// Whether a header has the value. Several headers with the same name count as one list, as in the Gateway API.
fn matches_header(headers: &HeaderMap, name: &http::HeaderName, expected: &ValueMatch) -> bool {
    let ValueMatch::Exact(expected) = expected;
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.as_bytes() == expected.as_bytes(),
        (Some(first), Some(second)) => {
            let all: Vec<&[u8]> = [first, second].into_iter().chain(values).map(http::HeaderValue::as_bytes).collect();
            all.join(&b","[..]) == expected.as_bytes()
        }
        (None, _) => false,
    }
}

/// Whether the first parameter with this name has the value.
fn matches_query(query: &str, name: &str, expected: &ValueMatch) -> bool {
    let ValueMatch::Exact(expected) = expected;
    let first = form_urlencoded::parse(query.as_bytes()).find(|(have, _)| have == name);
    first.is_some_and(|(_, value)| value == expected.as_str())
}

/// Whether a path has a `.` or `..` segment, also if its dots or slashes are percent-encoded. Clients resolve them before
/// they send a request. Backends that resolve them themselves would serve a path that the route does not match.
pub(super) fn has_dot_segment(path: &str) -> bool {
    if !path.contains(['.', '%']) {
        return false;
    }
    let decoded: Cow<'_, [u8]> = percent_decode_str(path).into();
    decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| {
        // `;` starts the parameters of a segment, which some backends cut off.
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        matches!(name, b"." | b"..")
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn prefixes_match_whole_segments() {
        let check = |prefix: &str, path: &str, expect: bool| {
            assert_eq!(matches_path(&PathMatch::Prefix(prefix.to_owned()), path), expect, "{prefix} {path}");
        };
        check("/", "/", true);
        check("/", "/anything/at/all", true);
        check("/foo", "/foo", true);
        check("/foo", "/foo/bar", true);
        check("/foo", "/foo/", true);
        check("/foo/", "/foo", true);
        check("/foo/", "/foo/bar", true);
        check("/foo", "/foobar", false);
        check("/foo", "/Foo", false);
        check("/foo/bar", "/foo", false);
        check("/", "*", false);
    }

    #[test]
    fn exact_paths_match_only_themselves() {
        let check = |path: &str, expect: bool| {
            assert_eq!(matches_path(&PathMatch::Exact("/foo".to_owned()), path), expect, "{path}");
        };
        check("/foo", true);
        check("/foo/", false);
        check("/foo/bar", false);
    }

    #[test]
    fn grpc_method_matches_in_any_service() {
        let check = |path: &str, expect: bool| {
            assert_eq!(matches_path(&PathMatch::GrpcMethod("Get".to_owned()), path), expect, "{path}");
        };
        check("/pkg.Service/Get", true);
        check("/pkg.Service/get", false);
        check("/pkg.Service/Get/x", false);
        check("//Get", false);
        check("/Get", false);
    }

    #[test]
    fn all_conditions_must_hold() {
        let conditions = RequestMatch {
            path: PathMatch::default(),
            method: Some(Method::GET),
            headers: vec![(HeaderName::from_static("version"), ValueMatch::Exact("two".to_owned()))],
            query: vec![("animal".to_owned(), ValueMatch::Exact("big whale".to_owned()))],
        };
        let check = |method: Method, uri: &str, headers: &[(&'static str, &str)], expect: bool| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().unwrap());
            }
            let matched = matches(&conditions, &method, &uri.parse().unwrap(), &map);
            assert_eq!(matched, expect, "{method} {uri} {headers:?}");
        };
        let version = [("version", "two")];
        check(Method::GET, "/?animal=big+whale", &version, true);
        check(Method::GET, "/?x=1&animal=big%20whale&animal=no", &version, true);
        check(Method::GET, "/?animal=no&animal=big+whale", &version, false);
        check(Method::GET, "/", &version, false);
        check(Method::POST, "/?animal=big+whale", &version, false);
        check(Method::GET, "/?animal=big+whale", &[], false);
        check(Method::GET, "/?animal=big+whale", &[("version", "one")], false);
        check(Method::GET, "/?animal=big+whale", &[("version", "two"), ("version", "three")], false);
    }

    #[test]
    fn dot_segments_are_found() {
        let check = |path: &str, expect: bool| assert_eq!(has_dot_segment(path), expect, "{path}");
        check("/a/../b", true);
        check("/a/./b", true);
        check("/a/%2e%2E/b", true);
        check("/a/.%2e", true);
        check("/a/..;x=y/b", true);
        check("/a/..%2Fb", true);
        check("/a%2f..%2fb", true);
        check("/a/%2e%2e%5Cb", true);
        check("/a/b%2Fc", false);
        check("/a/b%2F..c", false);
        check("/a/..b/c.d/...", false);
        check("/.well-known/x", false);
    }
}
