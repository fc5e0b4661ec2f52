//! The proxy of the environment variables `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as Go's HTTP client reads them.

use std::net::IpAddr;

use http::Uri;

/// A proxy variable has a value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyVariableError {
    /// The message omits the value, which may contain a password.
    #[error("{0} is not a valid URL")]
    Url(&'static str),
    #[error("{variable} has the scheme {scheme}, but only http is supported")]
    Scheme { variable: &'static str, scheme: String },
}

/// Returns the proxy for a server. `variable` returns the value of an environment variable.
///
/// DEVIATION: proxies of the schemes https and socks5 are rejected.
pub fn proxy_from_environment(
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, ProxyVariableError> {
    let either = |upper: &str, lower: &str| {
        variable(upper).filter(|value| !value.is_empty()).or_else(|| variable(lower)).unwrap_or_default()
    };
    let (name, lower, default_port) = match server.scheme_str() {
        Some("http") => ("HTTP_PROXY", "http_proxy", 80),
        _ => ("HTTPS_PROXY", "https_proxy", 443),
    };
    let value = either(name, lower);
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let port = server.port_u16().unwrap_or(default_port);
    if value.is_empty() || is_excluded(&host, port, &either("NO_PROXY", "no_proxy")) {
        return Ok(None);
    }
    let value = if value.contains("://") { value } else { format!("http://{value}") };
    let proxy: Uri = value.parse().map_err(|_| ProxyVariableError::Url(name))?;
    match proxy.scheme_str() {
        Some("http") => Ok(Some(proxy)),
        scheme => Err(ProxyVariableError::Scheme { variable: name, scheme: scheme.unwrap_or_default().to_owned() }),
    }
}

/// Whether a server is reached directly: on this host, or in the list of `NO_PROXY`.
fn is_excluded(host: &str, port: u16, list: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    list.split(',').map(|entry| entry.trim().to_ascii_lowercase()).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Some((network, bits)) = entry.split_once('/')
            && let (Ok(network), Ok(bits)) = (network.parse(), bits.parse())
        {
            return address.is_some_and(|address| contains(network, bits, address));
        }
        let (name, only) = with_port(&entry);
        if only.is_some_and(|only| only != port) {
            return false;
        }
        if let Ok(excluded) = name.parse::<IpAddr>() {
            return address == Some(excluded);
        }
        let name = name.strip_prefix('*').unwrap_or(name);
        match name.strip_prefix('.') {
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
        }
    })
}

/// Splits a port from an entry. The colons of a bare IPv6 address do not separate a port.
fn with_port(entry: &str) -> (&str, Option<u16>) {
    let (name, port) = match entry.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port.parse().ok()),
        _ => (entry, None),
    };
    (name.trim_matches(['[', ']']), port)
}

fn contains(network: IpAddr, bits: u32, address: IpAddr) -> bool {
    let (network, address, width) = match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => (u128::from(network.to_bits()), address.to_bits().into(), 32),
        (IpAddr::V6(network), IpAddr::V6(address)) => (network.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    bits <= width && (network ^ address).checked_shr(width - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(server: &str, variables: &[(&str, &str)], expect: Option<&str>) {
        let variable =
            |name: &str| variables.iter().find(|(have, _)| *have == name).map(|(_, value)| (*value).to_owned());
        let found = proxy_from_environment(&server.parse().unwrap(), variable).unwrap();
        assert_eq!(found.map(|uri| uri.to_string()).as_deref(), expect, "{server} {variables:?}");
    }

    #[test]
    fn scheme_of_the_server_selects_the_variable() {
        let both = [("HTTPS_PROXY", "http://s:1"), ("http_proxy", "p:2")];
        check("https://a:6443", &both, Some("http://s:1/"));
        check("http://a", &both, Some("http://p:2/"));
        check("https://a", &[("HTTP_PROXY", "p:2")], None);
        check("https://127.0.0.1:6443", &both, None);
        check("https://localhost:6443", &both, None);
        check("https://[::1]:6443", &both, None);
    }

    #[test]
    fn no_proxy_excludes_names_networks_and_ports() {
        let with = |server: &str, list: &str, excluded: bool| {
            let expect = (!excluded).then_some("http://p:1/");
            check(server, &[("HTTPS_PROXY", "p:1"), ("NO_PROXY", list)], expect);
        };
        with("https://a.example.com", "example.com", true);
        with("https://example.com", "example.com", true);
        with("https://example.com", ".example.com", false);
        with("https://a.example.com", "*.example.com", true);
        with("https://badexample.com", "example.com", false);
        with("https://10.1.2.3", "10.0.0.0/8", true);
        with("https://11.1.2.3", "10.0.0.0/8, other", false);
        with("https://10.1.2.3:6443", "10.1.2.3:443", false);
        with("https://10.1.2.3", "10.1.2.3:443", true);
        with("https://[fd00::1]", "fd00::/16", true);
        with("https://[fd00::1]", "fd00::1", true);
        with("https://anything", "*", true);
        with("https://anything", "", false);
    }

    #[test]
    fn other_schemes_are_rejected() {
        let variable = |name: &str| (name == "HTTPS_PROXY").then(|| "socks5://p:1".to_owned());
        let found = proxy_from_environment(&Uri::from_static("https://a"), variable).unwrap_err();
        assert_eq!(found.to_string(), "HTTPS_PROXY has the scheme socks5, but only http is supported");
    }
}
