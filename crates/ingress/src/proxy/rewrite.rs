//! URL rewrites and redirects: pure functions from a request's URL to the new one.

use http::Uri;
use http::uri::PathAndQuery;

use crate::routing::{PathMatch, PathRewrite, Redirect};

/// The URL of a request as its client sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestUrl<'a> {
    pub scheme: &'static str,
    /// Normalized, without port.
    pub host: &'a str,
    /// The listener's port.
    pub port: u16,
    pub uri: &'a Uri,
}

/// Returns the rewritten path and query, or `None` if the result is not a valid path.
pub(super) fn rewrite_path(uri: &Uri, matched: &PathMatch, rewrite: &PathRewrite) -> Option<PathAndQuery> {
    let path = match rewrite {
        PathRewrite::Full(path) => path.clone(),
        PathRewrite::Prefix(replacement) => replace_prefix(uri.path(), matched, replacement),
    };
    let path = if path.starts_with('/') { path } else { format!("/{path}") };
    match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")).ok(),
        None => PathAndQuery::try_from(path).ok(),
    }
}

/// Replaces the prefix that a route matched. An exact match is replaced as a whole.
fn replace_prefix(path: &str, matched: &PathMatch, replacement: &str) -> String {
    let prefix = match matched {
        PathMatch::Exact(prefix) | PathMatch::Prefix(prefix) => prefix.as_str(),
        PathMatch::GrpcMethod(_) => path,
    };
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let rest = path.strip_prefix(prefix).unwrap_or_default();
    let replacement = match rest {
        "" => replacement,
        _ => replacement.strip_suffix('/').unwrap_or(replacement),
    };
    format!("{replacement}{rest}")
}

/// Returns the `Location` of a redirect, or `None` if the redirect does not result in a valid URL.
pub(super) fn location(redirect: &Redirect, url: RequestUrl<'_>, matched: &PathMatch) -> Option<String> {
    let scheme = redirect.scheme.as_deref().unwrap_or(url.scheme);
    let host = redirect.hostname.as_deref().unwrap_or(url.host);
    if host.is_empty() {
        return None;
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let known = well_known_port(scheme);
    let port = match (redirect.port, &redirect.scheme) {
        (Some(port), _) => Some(port),
        (None, Some(_)) => known,
        (None, None) => Some(url.port),
    };
    let port = port.filter(|port| Some(*port) != known).map(|port| format!(":{port}")).unwrap_or_default();
    let path = match &redirect.path {
        Some(rewrite) => rewrite_path(url.uri, matched, rewrite)?,
        None => url.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
    };
    Some(format!("{scheme}://{host}{port}{path}"))
}

fn well_known_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn matched_prefix_is_replaced() {
        let check = |path: &str, prefix: &str, replacement: &str, expect: &str| {
            let (matched, rewrite) =
                (PathMatch::Prefix(prefix.to_owned()), PathRewrite::Prefix(replacement.to_owned()));
            let path = path.parse().unwrap();
            assert_eq!(
                rewrite_path(&path, &matched, &rewrite).unwrap().as_str(),
                expect,
                "{path} {prefix} {replacement}"
            );
        };
        // The table in the documentation of `HTTPPathModifier`.
        check("/foo/bar", "/foo", "/xyz", "/xyz/bar");
        check("/foo/bar", "/foo", "/xyz/", "/xyz/bar");
        check("/foo/bar", "/foo/", "/xyz", "/xyz/bar");
        check("/foo/bar", "/foo/", "/xyz/", "/xyz/bar");
        check("/foo", "/foo", "/xyz", "/xyz");
        check("/foo/", "/foo", "/xyz", "/xyz/");
        check("/foo/bar", "/foo", "", "/bar");
        check("/foo/", "/foo", "", "/");
        check("/foo", "/foo", "", "/");
        check("/foo/", "/foo", "/", "/");
        check("/foo", "/foo", "/", "/");
        check("/a?b=c", "/", "/x", "/x/a?b=c");
    }

    #[test]
    fn locations_name_scheme_host_and_unusual_ports() {
        let check = |redirect: Redirect, scheme: &'static str, port: u16, expect: &str| {
            let uri: Uri = "/foo/bar?q=1".parse().unwrap();
            let url = RequestUrl { scheme, host: "a.test", port, uri: &uri };
            let matched = PathMatch::Prefix("/foo".to_owned());
            assert_eq!(location(&redirect, url, &matched).as_deref(), Some(expect));
        };
        let same = || Redirect { scheme: None, hostname: None, port: None, path: None, status: StatusCode::FOUND };
        let https = Some("https".to_owned());
        check(same(), "http", 80, "http://a.test/foo/bar?q=1");
        check(same(), "http", 8080, "http://a.test:8080/foo/bar?q=1");
        check(Redirect { scheme: https.clone(), ..same() }, "http", 8080, "https://a.test/foo/bar?q=1");
        check(Redirect { scheme: https, port: Some(8443), ..same() }, "http", 80, "https://a.test:8443/foo/bar?q=1");
        check(Redirect { hostname: Some("b.test".to_owned()), ..same() }, "https", 443, "https://b.test/foo/bar?q=1");
        let full = Some(PathRewrite::Full("/x".to_owned()));
        check(Redirect { path: full, ..same() }, "http", 80, "http://a.test/x?q=1");
        let prefix = Some(PathRewrite::Prefix("/x".to_owned()));
        check(Redirect { path: prefix, ..same() }, "http", 80, "http://a.test/x/bar?q=1");
    }
}
