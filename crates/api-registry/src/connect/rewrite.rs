//! Paths of proxied requests, and rewriting of redirects.

/// Returns the path below the `proxy` subresource, unchanged; `None` if no slash follows it.
///
/// `segments` is the number of segments before the path: `api/v1/nodes/n/proxy` has five.
pub fn proxied_path(path: &str, segments: usize) -> Option<&str> {
    let mut slashes = path.trim_start_matches('/').match_indices('/');
    let (at, _) = slashes.nth(segments.checked_sub(1)?)?;
    let skipped = path.len() - path.trim_start_matches('/').len();
    Some(&path[skipped + at..])
}

/// Joins two paths with exactly one slash.
pub fn join_paths(base: &str, path: &str) -> String {
    match (base.ends_with('/'), path.starts_with('/')) {
        (true, true) => format!("{base}{}", &path[1..]),
        (false, false) if !path.is_empty() => format!("{base}/{path}"),
        _ => format!("{base}{path}"),
    }
}

/// Rewrites a `Location` header so that it leads through the proxy. `prefix` is the path before the proxied path.
/// Locations on hosts other than `backend` and `requested_host` are unchanged.
pub fn location(target: &str, prefix: &str, backend: &str, requested_host: &str) -> String {
    let (origin, rest) = split_origin(target);
    if origin.is_some_and(|(_, host)| host != backend && host != requested_host) || !rest.starts_with('/') {
        return target.to_owned();
    }
    let origin = match origin {
        // The client used this host itself, so it is kept.
        Some((scheme, host)) if host == requested_host && host != backend => format!("{scheme}//{host}"),
        _ => String::new(),
    };
    if rest.starts_with(prefix) {
        return format!("{origin}{rest}");
    }
    format!("{origin}{}", join_paths(prefix, rest))
}

/// Splits an absolute URL into scheme and host, and the rest: `("https:", "host")` and `/path?query`.
fn split_origin(target: &str) -> (Option<(&str, &str)>, &str) {
    let Some((scheme, rest)) = target.split_once("//").filter(|(scheme, _)| {
        let name = scheme.strip_suffix(':').unwrap_or(scheme);
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    }) else {
        return (None, target);
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let path = if rest[end..].starts_with('/') { &rest[end..] } else { "/" };
    (Some((scheme, &rest[..end])), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_proxied_request_is_unchanged() {
        let check = |path: &str, segments: usize, expect: Option<&str>| {
            assert_eq!(proxied_path(path, segments), expect, "{path}");
        };
        check("/api/v1/nodes/n/proxy/a%2Fb//c/", 5, Some("/a%2Fb//c/"));
        check("/api/v1/nodes/n/proxy/", 5, Some("/"));
        check("/api/v1/nodes/n/proxy", 5, None);
        check("/api/v1/namespaces/a/pods/p:80/proxy/x", 7, Some("/x"));
    }

    #[test]
    fn paths_are_joined_by_one_slash() {
        assert_eq!(join_paths("/a/", "/b"), "/a/b");
        assert_eq!(join_paths("/a", "b"), "/a/b");
        assert_eq!(join_paths("/a", ""), "/a");
    }

    #[test]
    fn redirect_to_the_backend_is_rewritten_to_the_proxy() {
        let check = |target: &str, expect: &str| {
            assert_eq!(location(target, "/proxy", "10.0.0.1:80", "api:6443"), expect);
        };
        check("/login?a=b", "/proxy/login?a=b");
        check("http://10.0.0.1:80/login", "/proxy/login");
        check("https://api:6443/login", "https://api:6443/proxy/login");
        check("/proxy/there", "/proxy/there");
        check("relative", "relative");
        check("https://elsewhere/x", "https://elsewhere/x");
    }
}
