//! Host names: the host of a request, and the pattern that serves it.

use std::collections::{BTreeMap, BTreeSet};

use http::header::HOST;
use http::{HeaderMap, Uri};

use crate::routing::HostPattern;

/// Longest DNS name in bytes.
const NAME_BYTES_MAX: usize = 253;

/// The host of a request is ambiguous or malformed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum HostError {
    #[error("the request has several Host headers")]
    Several,
    #[error("the Host header differs from the request target")]
    Differs,
    #[error("the host is malformed")]
    Malformed,
}

/// Returns the normalized host of a request, empty if it names none (HTTP/1.0).
///
/// A request target and a Host header that disagree are rejected, because the backend could use the other one.
pub(super) fn request_host(uri: &Uri, headers: &HeaderMap) -> Result<String, HostError> {
    let mut given = headers.get_all(HOST).iter();
    let header = given.next();
    if given.next().is_some() {
        return Err(HostError::Several);
    }
    let header = match header {
        Some(value) => Some(value.to_str().map_err(|_| HostError::Malformed)?),
        None => None,
    };
    let authority = uri.authority().map(http::uri::Authority::as_str);
    if let (Some(header), Some(authority)) = (header, authority)
        && !header.eq_ignore_ascii_case(authority)
    {
        return Err(HostError::Differs);
    }
    normalize(authority.or(header).unwrap_or_default()).ok_or(HostError::Malformed)
}

/// Returns a host in lower case without port and trailing dot, or `None` if it is malformed.
pub(super) fn normalize(host: &str) -> Option<String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.len() <= 5;
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return None;
    }
    if host.starts_with('[') {
        return name.parse::<std::net::Ipv6Addr>().ok().map(|address| address.to_string());
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (name.len() <= NAME_BYTES_MAX && name.bytes().all(is_valid)).then_some(name)
}

/// Returns the most specific pattern that matches a normalized host: the exact name, the longest wildcard, then `Any`.
pub(super) fn find<'a, V>(patterns: &'a BTreeMap<HostPattern, V>, host: &str) -> Option<(&'a HostPattern, &'a V)> {
    candidates(host).find_map(|pattern| patterns.get_key_value(&pattern))
}

/// Like [`find`], for a set.
pub(super) fn find_pattern<'a>(patterns: &'a BTreeSet<HostPattern>, host: &str) -> Option<&'a HostPattern> {
    if patterns.is_empty() {
        return None;
    }
    candidates(host).find_map(|pattern| patterns.get(&pattern))
}

/// Returns all patterns that match a normalized host, the most specific first.
fn candidates(host: &str) -> impl Iterator<Item = HostPattern> {
    let exact = std::iter::once(HostPattern::Exact(host.to_owned()));
    let dots = host.match_indices('.').map(|(at, _)| at).filter(|at| *at > 0 && !host.starts_with('.'));
    let wildcards = dots.enumerate().flat_map(move |(index, at)| {
        let wildcard = move |many_labels| HostPattern::Wildcard { suffix: host[at + 1..].to_owned(), many_labels };
        (index == 0).then(|| wildcard(false)).into_iter().chain([wildcard(true)])
    });
    exact.chain(wildcards).chain([HostPattern::Any])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_normalized() {
        let check = |host: &str, expect: Option<&str>| assert_eq!(normalize(host).as_deref(), expect, "{host}");
        check("Example.COM", Some("example.com"));
        check("example.com:8080", Some("example.com"));
        check("example.com.:80", Some("example.com"));
        check("[::1]:80", Some("::1"));
        check("10.0.0.1", Some("10.0.0.1"));
        check("", Some(""));
        check("example.com:80a", None);
        check("example.com:80:80", None);
        check("user@example.com", None);
        check("a/b", None);
        check("[example.com]", None);
        check(&"a".repeat(300), None);
    }

    #[test]
    fn request_has_exactly_one_host() {
        let check = |uri: &str, hosts: &[&str], expect: Result<&str, HostError>| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, host.parse().unwrap());
            }
            assert_eq!(request_host(&uri.parse().unwrap(), &headers), expect.map(str::to_owned), "{uri} {hosts:?}");
        };
        check("/", &["a.test"], Ok("a.test"));
        check("http://A.test/", &[], Ok("a.test"));
        check("http://a.test/", &["a.test"], Ok("a.test"));
        check("/", &[], Ok(""));
        check("/", &["a.test", "a.test"], Err(HostError::Several));
        check("http://a.test/", &["b.test"], Err(HostError::Differs));
        check("/", &["a.test b.test"], Err(HostError::Malformed));
    }

    #[test]
    fn exact_names_precede_longer_wildcards_precede_any() {
        let wildcard = |suffix: &'static str, many_labels| {
            (HostPattern::Wildcard { suffix: suffix.to_owned(), many_labels }, suffix)
        };
        let patterns: BTreeMap<HostPattern, &str> = BTreeMap::from([
            (HostPattern::Exact("a.b.test".to_owned()), "exact"),
            wildcard("b.test", false),
            wildcard("test", true),
            (HostPattern::Any, "any"),
        ]);
        let check = |host: &str, expect: &str| assert_eq!(find(&patterns, host).map(|(_, name)| *name), Some(expect));
        check("a.b.test", "exact");
        check("c.b.test", "b.test");
        check("d.c.b.test", "test");
        check("b.test", "test");
        check("test", "any");
        check(".test", "any");
        check("", "any");
    }
}
