//! Registry hosts: the endpoints of a registry in the order in which they are tried, with what each one needs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Certificate, Identity, Url};

/// Name that applies to registries without an entry of their own.
pub const ANY: &str = "*";
/// Path of the API of a registry.
const API: &str = "/v2";
/// Name of Docker Hub in image names, and the host that serves it.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");
/// Maximum size of a compiled rewrite rule.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Registry credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    #[default]
    Anonymous,
    Basic {
        user: String,
        /// Password or access token.
        password: String,
    },
    /// A bearer token.
    Token(String),
    /// A refresh token, which the registry's token endpoint exchanges for a bearer token.
    Identity(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Credentials::Anonymous => "Anonymous",
            Credentials::Basic { .. } => "Basic(…)",
            Credentials::Token(_) => "Token(…)",
            Credentials::Identity(_) => "Identity(…)",
        })
    }
}

/// TLS settings of a host.
#[derive(Clone, Default)]
pub struct Tls {
    pub(crate) ca: Vec<Certificate>,
    pub(crate) identity: Option<Identity>,
    pub(crate) skip_verify: bool,
}

/// A PEM file has no usable content. The value names the content that is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PemError(&'static str);

impl Tls {
    /// Trusts the certificates of a PEM text in addition to those of the system.
    pub fn trust(&mut self, pem: &[u8]) -> Result<(), PemError> {
        let certificates = Certificate::from_pem_bundle(pem).unwrap_or_default();
        if certificates.is_empty() {
            return Err(PemError("the file has no PEM certificate"));
        }
        self.ca.extend(certificates);
        Ok(())
    }

    /// Presents a client certificate. The PEM text has the certificate, its intermediates and the private key.
    pub fn identify(&mut self, pem: &[u8]) -> Result<(), PemError> {
        let identity =
            Identity::from_pem(pem).map_err(|_| PemError("no PEM certificate and private key were found"))?;
        self.identity = Some(identity);
        Ok(())
    }

    /// Accepts every certificate of the host.
    pub const fn skip_verify(&mut self) {
        self.skip_verify = true;
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = formatter.debug_struct("Tls");
        out.field("ca", &self.ca.len()).field("identity", &self.identity.is_some());
        out.field("skip_verify", &self.skip_verify).finish()
    }
}

/// Replaces matches of a regular expression in the repository of an image.
#[derive(Clone, Debug)]
pub struct Rewrite {
    pattern: Regex,
    replacement: String,
}

impl Rewrite {
    /// Compiles a rule. `$1` in the replacement is the first group of the pattern.
    pub fn new(pattern: &str, replacement: &str) -> Result<Rewrite, regex::Error> {
        let pattern = RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).build()?;
        Ok(Rewrite { pattern, replacement: replacement.to_owned() })
    }
}

/// An endpoint URL cannot be used. The message does not contain the URL, which may have a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("not a URL such as https://mirror.example.com")]
    Malformed,
    #[error("use http:// or https://")]
    Scheme,
    #[error("the URL has a user name or password; credentials belong under `configs`")]
    Credentials,
    #[error("the URL has a query or fragment")]
    Query,
}

/// A registry host.
#[derive(Clone, Debug)]
pub struct Host {
    /// Host name or address, with a port if it is not the default.
    pub address: String,
    /// Whether to use HTTP instead of HTTPS.
    pub plain_http: bool,
    /// Path of the API.
    pub path: String,
    /// Whether the host may resolve tags to digests.
    pub resolves: bool,
    /// Whether content may be pulled from the host.
    pub pulls: bool,
    /// TLS settings. If absent, those for the address apply.
    pub tls: Option<Tls>,
    /// Further headers of requests to this host.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub rewrites: Vec<Rewrite>,
    /// Connection timeout, if it differs from the general one.
    pub connect: Option<Duration>,
}

impl Host {
    /// Returns the host of a registry: with HTTPS, or HTTP on a loopback address.
    pub fn of(registry: &str) -> Host {
        Host {
            address: address_of(registry).to_owned(),
            plain_http: is_loopback(registry),
            path: API.to_owned(),
            resolves: true,
            pulls: true,
            tls: None,
            headers: Vec::new(),
            rewrites: Vec::new(),
            connect: None,
        }
    }

    /// Parses an endpoint. A path other than `/v2` replaces the path of the API.
    pub fn from_endpoint(endpoint: &str) -> Result<Host, EndpointError> {
        let (host, path) = Host::parse(endpoint)?;
        Ok(Host { path: if path.is_empty() { API.to_owned() } else { path }, ..host })
    }

    /// Parses the URL of a `hosts.toml`, whose path has the path of the API appended unless it overrides it.
    pub fn from_server(server: &str, overrides_path: bool) -> Result<Host, EndpointError> {
        let (host, path) = Host::parse(server)?;
        Ok(Host { path: if overrides_path || path.ends_with(API) { path } else { path + API }, ..host })
    }

    fn parse(text: &str) -> Result<(Host, String), EndpointError> {
        let url = match text.split_once("://") {
            Some(_) => Url::parse(text),
            None => {
                let authority = text.split('/').next().unwrap_or(text);
                let scheme = if is_loopback(authority) { "http" } else { "https" };
                Url::parse(&format!("{scheme}://{text}"))
            }
        };
        let url = url.map_err(|_| EndpointError::Malformed)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(EndpointError::Query);
        }
        let host = url.host_str().filter(|host| !host.is_empty() && !host.contains('*'));
        let host = host.ok_or(EndpointError::Malformed)?;
        let address = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let host = Host { plain_http: url.scheme() == "http", ..Host::of(&address) };
        Ok((host, url.path().trim_end_matches('/').to_owned()))
    }

    /// Returns the repository under which this host has the content of a repository: the result of the first rule that
    /// changes it.
    pub fn repository(&self, repository: &str) -> String {
        let rewritten =
            self.rewrites.iter().map(|rule| rule.pattern.replace_all(repository, rule.replacement.as_str()));
        rewritten.into_iter().find(|found| *found != repository).map_or_else(|| repository.to_owned(), Into::into)
    }

    fn is_same_endpoint(&self, other: &Host) -> bool {
        (&self.address, self.plain_http, &self.path) == (&other.address, other.plain_http, &other.path)
    }
}

/// The hosts of a registry.
#[derive(Clone, Debug, Default)]
pub struct Mirrors {
    /// Tried in order before the registry itself.
    pub hosts: Vec<Host>,
    /// Tried last instead of the registry itself.
    pub server: Option<Host>,
    /// TLS settings of the registry itself.
    pub tls: Option<Tls>,
}

/// Settings of a host, whichever registry it serves.
#[derive(Clone, Debug, Default)]
pub struct HostSettings {
    pub credentials: Credentials,
    pub tls: Option<Tls>,
}

/// Mirrors, settings of hosts, and timeouts.
#[derive(Clone, Debug)]
pub struct Registries {
    mirrors: BTreeMap<String, Mirrors>,
    settings: BTreeMap<String, HostSettings>,
    /// Timeout for a registry that sends no data.
    pub stall: Duration,
    /// Connection timeout.
    pub connect: Duration,
}

impl Default for Registries {
    fn default() -> Registries {
        Registries {
            mirrors: BTreeMap::new(),
            settings: BTreeMap::new(),
            stall: Duration::from_secs(60),
            connect: Duration::from_secs(15),
        }
    }
}

/// A host and the credentials that belong to it.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub host: Host,
    pub credentials: Credentials,
    /// Whether the credentials came with the request to pull, and not from the settings of the host.
    pub is_requested: bool,
}

impl Registries {
    /// Sets the hosts of a registry, or of every registry without hosts of its own ([`ANY`]).
    pub fn set_mirrors(&mut self, registry: &str, mirrors: Mirrors) {
        self.mirrors.insert(registry_of(registry).to_owned(), mirrors);
    }

    /// Returns the hosts of a registry, to change them.
    pub fn mirrors_mut(&mut self, registry: &str) -> &mut Mirrors {
        self.mirrors.entry(registry_of(registry).to_owned()).or_default()
    }

    /// Sets the settings of a host address. For [`ANY`], the TLS settings apply to registries without an entry.
    pub fn set_host(&mut self, address: &str, settings: HostSettings) {
        self.settings.insert(address_of(address).to_owned(), settings);
    }

    /// Returns the hosts of a registry in the order in which they are tried, each with its credentials. Those of the
    /// request are for the registry itself.
    pub(crate) fn attempts(&self, registry: &str, requested: &Credentials) -> Vec<Attempt> {
        let registry = registry_of(registry);
        let mirrors = self.mirrors.get(registry).or_else(|| self.mirrors.get(ANY)).cloned().unwrap_or_default();
        let last = mirrors.server.unwrap_or_else(|| self.own_host(registry, mirrors.tls));
        let mut hosts = mirrors.hosts;
        hosts.retain(|host| !host.is_same_endpoint(&last));
        hosts.push(last);
        hosts.into_iter().map(|host| self.attempt(registry, host, requested)).collect()
    }

    fn attempt(&self, registry: &str, mut host: Host, requested: &Credentials) -> Attempt {
        let settings = self.settings.get(address_of(&host.address));
        let is_registry = address_of(&host.address) == address_of(registry);
        if host.tls.is_none() {
            let of_any = self.settings.get(ANY).filter(|_| is_registry);
            host.tls = settings.or(of_any).and_then(|settings| settings.tls.clone());
        }
        let is_requested = is_registry && *requested != Credentials::Anonymous;
        let credentials = match settings {
            _ if is_requested => requested.clone(),
            Some(settings) => settings.credentials.clone(),
            None => Credentials::Anonymous,
        };
        Attempt { host, credentials, is_requested }
    }

    /// Returns the host of a registry. With TLS settings, a loopback address uses HTTPS too.
    fn own_host(&self, registry: &str, tls: Option<Tls>) -> Host {
        let host = Host::of(registry);
        let has_tls = self.settings.get(address_of(registry)).is_some_and(|settings| settings.tls.is_some());
        Host { plain_http: host.plain_http && tls.is_none() && !has_tls, tls, ..host }
    }
}

/// Returns the name of a registry in image names.
fn registry_of(text: &str) -> &str {
    if matches!(text, "index.docker.io") || text == DOCKER_HUB.1 { DOCKER_HUB.0 } else { text }
}

/// Returns the address of the host of a registry.
fn address_of(registry: &str) -> &str {
    match registry_of(registry) {
        hub if hub == DOCKER_HUB.0 => DOCKER_HUB.1,
        other => other.strip_suffix(":443").unwrap_or(other),
    }
}

fn is_loopback(address: &str) -> bool {
    let host = match address.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => address.split(':').next().unwrap_or(address),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrors(endpoints: &[&str]) -> Mirrors {
        let hosts = endpoints.iter().map(|endpoint| Host::from_endpoint(endpoint).unwrap()).collect();
        Mirrors { hosts, ..Mirrors::default() }
    }

    fn addresses(registries: &Registries, registry: &str) -> Vec<String> {
        let attempts = registries.attempts(registry, &Credentials::Anonymous);
        attempts.into_iter().map(|attempt| attempt.host.address).collect()
    }

    fn user(name: &str) -> Credentials {
        Credentials::Basic { user: name.to_owned(), password: "secret".to_owned() }
    }

    #[test]
    fn only_loopback_hosts_use_plain_http() {
        let check = |address: &str, plain: bool| assert_eq!(Host::of(address).plain_http, plain, "{address}");
        check("localhost:5000", true);
        check("127.0.0.1:5000", true);
        check("[::1]:5000", true);
        check("registry.k8s.io", false);
        check("10.0.0.1:5000", false);
        check("localhost.example.com", false);
    }

    #[test]
    fn endpoints_are_parsed_as_in_k3s() {
        let check = |text: &str, expect: &str| {
            let host = Host::from_endpoint(text).unwrap();
            let scheme = if host.plain_http { "http" } else { "https" };
            assert_eq!(format!("{scheme}://{}{}", host.address, host.path), expect, "{text}");
        };
        check("https://m.example", "https://m.example/v2");
        check("https://m.example/v2/", "https://m.example/v2");
        check("https://m.example:443", "https://m.example/v2");
        check("http://m.example:5000/proxy/hub", "http://m.example:5000/proxy/hub");
        check("m.example:8443", "https://m.example:8443/v2");
        check("localhost:5000", "http://localhost:5000/v2");
        check("https://docker.io", "https://registry-1.docker.io/v2");
        let error = |text: &str| Host::from_endpoint(text).unwrap_err();
        assert_eq!(error("ftp://m.example"), EndpointError::Scheme);
        assert_eq!(error("https://me:secret@m.example"), EndpointError::Credentials);
        assert_eq!(error("https://m.example?a=b"), EndpointError::Query);
        assert_eq!(error("https://"), EndpointError::Malformed);
    }

    #[test]
    fn servers_are_parsed_as_in_containerd() {
        let path = |text: &str, overrides: bool| Host::from_server(text, overrides).unwrap().path;
        assert_eq!(path("https://m.example", false), "/v2");
        assert_eq!(path("https://m.example/us", false), "/us/v2");
        assert_eq!(path("https://m.example/us/v2", false), "/us/v2");
        assert_eq!(path("https://m.example/us", true), "/us");
        assert_eq!(path("https://m.example", true), "");
    }

    #[test]
    fn mirrors_are_tried_before_the_registry() {
        let mut registries = Registries::default();
        registries.set_mirrors("docker.io", mirrors(&["http://a.example", "https://b.example"]));
        registries.set_mirrors(ANY, mirrors(&["https://any.example"]));
        registries.set_mirrors("own.example", Mirrors::default());
        registries.set_mirrors("same.example", mirrors(&["https://a.example", "https://same.example"]));
        assert_eq!(addresses(&registries, "docker.io"), ["a.example", "b.example", "registry-1.docker.io"]);
        assert_eq!(addresses(&registries, "quay.io"), ["any.example", "quay.io"]);
        assert_eq!(addresses(&registries, "own.example"), ["own.example"]);
        assert_eq!(addresses(&registries, "same.example"), ["a.example", "same.example"]);
        let server = Some(Host::from_server("https://only.example", false).unwrap());
        registries.set_mirrors("gone.example", Mirrors { server, ..Mirrors::default() });
        assert_eq!(addresses(&registries, "gone.example"), ["only.example"]);
    }

    #[test]
    fn credentials_go_to_the_host_that_they_belong_to() {
        let mut registries = Registries::default();
        registries.set_mirrors("r.example", mirrors(&["https://m.example", "https://open.example"]));
        registries.set_host("m.example", HostSettings { credentials: user("mirror"), tls: None });
        registries.set_host("r.example", HostSettings { credentials: user("configured"), tls: None });
        let check = |requested: Credentials, expect: [Credentials; 3]| {
            let attempts = registries.attempts("r.example", &requested);
            let found: Vec<Credentials> = attempts.into_iter().map(|attempt| attempt.credentials).collect();
            assert_eq!(found, expect, "{requested:?}");
        };
        check(Credentials::Anonymous, [user("mirror"), Credentials::Anonymous, user("configured")]);
        check(user("pod"), [user("mirror"), Credentials::Anonymous, user("pod")]);
        registries.set_host("docker.io", HostSettings { credentials: user("hub"), tls: None });
        let hub = registries.attempts("docker.io", &Credentials::Anonymous).remove(0);
        assert_eq!(hub.credentials, user("hub"));
        assert!(!format!("{registries:?} {hub:?}").contains("secret"));
    }

    #[test]
    fn tls_settings_for_any_host_apply_to_registries_and_not_to_mirrors() {
        let mut registries = Registries::default();
        let insecure = Tls { skip_verify: true, ..Tls::default() };
        registries.set_host(ANY, HostSettings { tls: Some(insecure), ..HostSettings::default() });
        registries.set_host("127.0.0.1:5000", HostSettings { tls: Some(Tls::default()), ..HostSettings::default() });
        registries.set_mirrors(ANY, mirrors(&["https://m.example"]));
        let skips = |registry: &str| -> Vec<bool> {
            let attempts = registries.attempts(registry, &Credentials::Anonymous);
            attempts.iter().map(|attempt| attempt.host.tls.as_ref().is_some_and(|tls| tls.skip_verify)).collect()
        };
        assert_eq!(skips("r.example"), [false, true]);
        assert_eq!(skips("127.0.0.1:5000"), [false, false]);
        let own = registries.attempts("127.0.0.1:5000", &Credentials::Anonymous).remove(1);
        assert!(!own.host.plain_http, "TLS settings switch TLS on");
    }

    #[test]
    fn first_rule_that_changes_the_repository_counts() {
        let rules = [("^other/(.*)", "x/$1"), ("^library/(.*)", "proxy/$1"), ("(.*)", "all/$1")];
        let rewrites = rules.iter().map(|(pattern, to)| Rewrite::new(pattern, to).unwrap()).collect();
        let host = Host { rewrites, ..Host::of("m.example") };
        assert_eq!(host.repository("library/busybox"), "proxy/busybox");
        assert_eq!(host.repository("me/tool"), "all/me/tool");
        assert!(Rewrite::new("(", "").is_err());
    }
}
