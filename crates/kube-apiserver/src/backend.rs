//! Backends of outgoing requests: a URL or a Service of the cluster, and the connections to it.
//!
//! ```text
//! Backend ─resolve─> Route (address to dial, URL of the request, TLS server name) ─> Wire, or a pooled POST
//! ```
//!
//! A Service is resolved for every request, so that changes take effect immediately. Connections are pooled per dialed
//! address and TLS configuration.

mod pool;
mod resolve;

use apimachinery::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use client::config::{Pem, Tls};
use client::transport::{Connector, Wire};
use http::{HeaderValue, Uri};
use tower_service::Service as _;

pub use client::transport::BoxError;
pub(crate) use pool::go_text;
pub use pool::{CallError, Pools};
pub use resolve::{Directory, ResolveError, Routing, resolve};

/// The target of an outgoing request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    Url(Uri),
    /// A Service of the cluster, over HTTPS.
    Service {
        namespace: String,
        name: String,
        /// A port of the Service, not a target port.
        port: u16,
        /// The request path; empty means `/`.
        path: String,
    },
}

/// A backend with its TLS configuration and credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub backend: Backend,
    /// The CA bundle (the system's if absent) and the client certificate.
    pub tls: Tls,
    /// The Authorization header.
    pub authorization: Option<HeaderValue>,
}

/// A resolved backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The URL for error messages and the `Host` header.
    pub url: Uri,
    /// The address to connect to, `host:port`.
    pub dial: String,
    /// The name that the server's certificate must contain.
    pub server_name: String,
}

/// Reasons why a `clientConfig` is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientConfigError {
    #[error("exactly one of url or service is required")]
    Neither,
    #[error("{0:?} is not an https URL")]
    Url(String),
    #[error("{0} is not a port")]
    Port(i64),
    #[error("caBundle is not base64")]
    Bundle,
}

impl Destination {
    /// Parses the `clientConfig` of an admission or conversion webhook.
    pub fn of(client_config: &Value) -> Result<Self, ClientConfigError> {
        let backend = match (client_config.str_at(&["url"]), client_config.get("service")) {
            (Some(url), None) => Backend::Url(parse_url(url)?),
            (None, Some(service)) => service_of(service)?,
            _ => return Err(ClientConfigError::Neither),
        };
        let certificate_authority = match client_config.str_at(&["caBundle"]) {
            None | Some("") => None,
            Some(text) => {
                Some(Pem::Inline(Bytes::from(BASE64.decode(text.as_bytes()).map_err(|_| ClientConfigError::Bundle)?)))
            }
        };
        Ok(Self { backend, tls: Tls { certificate_authority, ..Tls::default() }, authorization: None })
    }
}

/// Connects to a route. `protocols` are offered by ALPN, most preferred first.
pub async fn connect(route: &Route, tls: &Tls, protocols: &[&[u8]]) -> Result<Wire, BoxError> {
    let connector = connector(route, tls, protocols)?;
    dial(connector, route).await.map(hyper_util::rt::TokioIo::into_inner)
}

/// Creates a connector with the given TLS configuration.
fn connector(route: &Route, tls: &Tls, protocols: &[&[u8]]) -> Result<Connector, BoxError> {
    let client =
        tls.client.as_ref().map(|(certificate, key)| client::transport::ClientCertificate { certificate, key });
    let mut config = client::transport::client_config(tls, client)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = tls.server_name.clone().unwrap_or_else(|| route.server_name.clone());
    Ok(Connector::new(config, Some(name), None))
}

async fn dial(mut connector: Connector, route: &Route) -> Result<hyper_util::rt::TokioIo<Wire>, BoxError> {
    let scheme = route.url.scheme_str().unwrap_or("https");
    let address = Uri::try_from(format!("{scheme}://{}/", route.dial))?;
    connector.call(address).await
}

fn parse_url(text: &str) -> Result<Uri, ClientConfigError> {
    let url: Uri = text.parse().map_err(|_| ClientConfigError::Url(text.to_owned()))?;
    if url.scheme_str() == Some("https") && url.host().is_some() {
        Ok(url)
    } else {
        Err(ClientConfigError::Url(text.into()))
    }
}

fn service_of(service: &Value) -> Result<Backend, ClientConfigError> {
    const HTTPS: i64 = 443;
    let text = |field: &str| service.str_at(&[field]).unwrap_or_default().to_owned();
    let port = service.get("port").and_then(Value::as_int).unwrap_or(HTTPS);
    let port = u16::try_from(port).ok().filter(|port| *port > 0).ok_or(ClientConfigError::Port(port))?;
    Ok(Backend::Service { namespace: text("namespace"), name: text("name"), port, path: text("path") })
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn client_configuration_names_a_url_or_a_service() {
        let check = |config: Value, expect: Result<Backend, ClientConfigError>| {
            assert_eq!(Destination::of(&config).map(|destination| destination.backend), expect);
        };
        let service = |port, path: &str| {
            let (namespace, name) = ("ns".to_owned(), "s".to_owned());
            Ok(Backend::Service { namespace, name, port, path: path.to_owned() })
        };
        check(value!({"url": "https://a.example/x"}), Ok(Backend::Url("https://a.example/x".parse().unwrap())));
        check(value!({"service": {"namespace": "ns", "name": "s"}}), service(443, ""));
        check(value!({"service": {"namespace": "ns", "name": "s", "port": 8443, "path": "/p"}}), service(8443, "/p"));
        check(value!({}), Err(ClientConfigError::Neither));
        check(value!({"url": "http://a"}), Err(ClientConfigError::Url("http://a".into())));
        check(value!({"service": {"port": 0}}), Err(ClientConfigError::Port(0)));
        check(value!({"url": "https://a", "caBundle": "%"}), Err(ClientConfigError::Bundle));
    }
}
