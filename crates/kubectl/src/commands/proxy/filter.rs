//! The filter of requests: paths, hosts and methods by regular expressions.

use regex::Regex;

use crate::Failure;

/// Rejects requests of web pages that were not loaded from the proxy, and dangerous paths.
pub(super) struct Filter {
    accept_paths: Vec<Regex>,
    reject_paths: Vec<Regex>,
    accept_hosts: Vec<Regex>,
    reject_methods: Vec<Regex>,
}

impl Filter {
    /// Parses comma-separated lists of regular expressions.
    pub(super) fn new(
        accept_paths: &str,
        reject_paths: &str,
        accept_hosts: &str,
        reject_methods: &str,
    ) -> Result<Self, Failure> {
        Ok(Self {
            accept_paths: parse(accept_paths)?,
            reject_paths: parse(reject_paths)?,
            accept_hosts: parse(accept_hosts)?,
            reject_methods: parse(reject_methods)?,
        })
    }

    /// Whether a request passes. `host` is the header, with or without a port.
    pub(super) fn accepts(&self, method: &str, path: &str, host: &str) -> bool {
        let any = |list: &[Regex], text: &str| list.iter().any(|regex| regex.is_match(text));
        !any(&self.reject_paths, path)
            && !any(&self.reject_methods, method)
            && any(&self.accept_paths, path)
            && any(&self.accept_hosts, without_port(host))
    }
}

fn parse(list: &str) -> Result<Vec<Regex>, Failure> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let regex = |text: &str| Regex::new(text).map_err(|error| Failure::new(format!("Error compiling re: {error}")));
    list.split(',').map(regex).collect()
}

fn without_port(host: &str) -> &str {
    if let Some(inner) = host.strip_prefix('[') {
        // A port after the bracket makes Go return the address alone.
        return match inner.split_once(']') {
            Some((address, rest)) if rest.starts_with(':') => address,
            _ => host,
        };
    }
    match host.split_once(':') {
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_hosts_and_harmless_paths_pass() {
        let filter = Filter::new(
            "^.*",
            "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach",
            "^localhost$,^127\\.0\\.0\\.1$,^\\[::1\\]$",
            "^$",
        )
        .unwrap();
        let check = |path: &str, host: &str, expect: bool| {
            assert_eq!(filter.accepts("GET", path, host), expect, "{path} {host}");
        };
        check("/api/v1/pods", "localhost:8001", true);
        check("/api/v1/pods", "127.0.0.1", true);
        check("/api/v1/pods", "[::1]", true);
        check("/api/v1/pods", "example.com:8001", false);
        check("/api/v1/namespaces/a/pods/b/exec", "localhost", false);
        assert!(!Filter::new("^.*", "", ".*", "^POST$").unwrap().accepts("POST", "/", "x"));
    }
}
