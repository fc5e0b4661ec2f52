//! Resolves a backend to the cluster IP of a Service or to one of its endpoints.

use std::net::SocketAddr;

use api::view::{EndpointSlice, Service};
use apimachinery::Value;
use http::Uri;

use super::{Backend, Route};

/// Lookup of Services and EndpointSlices.
pub trait Directory: Sync {
    fn service(&self, namespace: &str, name: &str) -> Option<Value>;

    /// Returns the EndpointSlices of a Service.
    fn slices(&self, namespace: &str, service: &str) -> Vec<Value>;
}

/// Service routing options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// `--enable-aggregator-routing`: dial an endpoint instead of the cluster IP.
    pub to_endpoints: bool,
    /// The listen address of this server, which is dialed instead of the Service `kubernetes`.
    pub own: Option<SocketAddr>,
}

/// Reasons why a backend cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("service {0:?} not found")]
    NoService(String),
    #[error("cannot route to service with ClusterIP {0:?}")]
    NoAddress(String),
    #[error("no service port {port} found for service {name:?}")]
    NoPort {
        /// The requested Service port.
        port: u16,
        name: String,
    },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    #[error("unsupported service type {0:?}")]
    Type(String),
    /// The Service's address cannot be parsed.
    #[error("{0:?} is not an address")]
    Address(String),
}

/// Resolves a backend. `pick` selects among the endpoints.
pub fn resolve(
    backend: &Backend,
    routing: Routing,
    directory: &dyn Directory,
    pick: usize,
) -> Result<Route, ResolveError> {
    match backend {
        Backend::Url(url) => {
            let host = url.host().unwrap_or_default();
            let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
            let server_name = host.trim_matches(['[', ']']).to_owned();
            Ok(Route { url: url.clone(), dial: format!("{host}:{port}"), server_name })
        }
        Backend::Service { namespace, name, port, path } => {
            let server_name = format!("{name}.{namespace}.svc");
            let slash = if path.starts_with('/') { "" } else { "/" };
            let text = format!("https://{server_name}:{port}{slash}{path}");
            let url = Uri::try_from(&text).map_err(|_| ResolveError::Address(text))?;
            let own = routing.own.filter(|_| namespace == "default" && name == "kubernetes" && *port == 443);
            let dial = match own {
                Some(own) => own.to_string(),
                None => address(directory, routing, (namespace, name, *port), pick)?,
            };
            Ok(Route { url, dial, server_name })
        }
    }
}

fn address(
    directory: &dyn Directory,
    routing: Routing,
    (namespace, name, port): (&str, &str, u16),
    pick: usize,
) -> Result<String, ResolveError> {
    let service = directory.service(namespace, name).ok_or_else(|| ResolveError::NoService(name.to_owned()))?;
    let text = |field: &str| service.str_at(&["spec", field]).unwrap_or_default();
    let port_name = || {
        let found = Service(&service).port_name(port.into());
        found.ok_or_else(|| ResolveError::NoPort { port, name: name.to_owned() })
    };
    match text("type") {
        "" | "ClusterIP" | "NodePort" | "LoadBalancer" if routing.to_endpoints => {
            let port_name = port_name()?;
            endpoint(&directory.slices(namespace, name), port_name, pick)
                .ok_or_else(|| ResolveError::NoEndpoints(name.to_owned()))
        }
        "" | "ClusterIP" | "NodePort" | "LoadBalancer" => {
            port_name()?;
            match text("clusterIP") {
                ip @ ("" | "None") => Err(ResolveError::NoAddress(ip.to_owned())),
                ip => Ok(join(ip, port.into())),
            }
        }
        "ExternalName" if !routing.to_endpoints => Ok(join(text("externalName"), port.into())),
        other => Err(ResolveError::Type(other.to_owned())),
    }
}

/// Returns the address of one of the ready endpoints that have the port.
fn endpoint(slices: &[Value], port_name: &str, pick: usize) -> Option<String> {
    let mut ready = Vec::new();
    for slice in slices.iter().map(EndpointSlice) {
        let Some(port) = slice.port(port_name) else { continue };
        ready.extend(slice.ready_endpoints().filter_map(|endpoint| Some(join(endpoint.address()?, port))));
    }
    let count = ready.len();
    (count > 0).then(|| ready.swap_remove(pick % count))
}

fn join(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    struct One {
        spec: Value,
        slices: Vec<Value>,
    }

    impl Directory for One {
        fn service(&self, _: &str, name: &str) -> Option<Value> {
            (name == "s").then(|| value!({"spec": (self.spec.clone())}))
        }

        fn slices(&self, _: &str, _: &str) -> Vec<Value> {
            self.slices.clone()
        }
    }

    fn backend(name: &str, port: u16) -> Backend {
        Backend::Service { namespace: "ns".into(), name: name.into(), port, path: "p".into() }
    }

    fn dial(one: &One, to_endpoints: bool, name: &str, port: u16) -> String {
        let routing = Routing { to_endpoints, own: None };
        match resolve(&backend(name, port), routing, one, 1) {
            Ok(route) => {
                assert_eq!(route.url, format!("https://{name}.ns.svc:{port}/p").parse::<Uri>().unwrap());
                assert_eq!(route.server_name, format!("{name}.ns.svc"));
                route.dial
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn service_is_dialed_at_its_cluster_ip() {
        let check = |spec: Value, name: &str, expect: &str| {
            assert_eq!(dial(&One { spec, slices: Vec::new() }, false, name, 443), expect);
        };
        let ports = value!([{"port": 443}]);
        let with_ip = |ip: &str| value!({"type": "ClusterIP", "clusterIP": ip, "ports": (ports.clone())});
        check(with_ip("10.0.0.1"), "s", "10.0.0.1:443");
        check(with_ip("fd00::1"), "s", "[fd00::1]:443");
        check(with_ip("None"), "s", "cannot route to service with ClusterIP \"None\"");
        check(with_ip("10.0.0.1"), "other", "service \"other\" not found");
        check(value!({"type": "ClusterIP"}), "s", "no service port 443 found for service \"s\"");
        check(value!({"type": "ExternalName", "externalName": "a.example"}), "s", "a.example:443");
    }

    #[test]
    fn only_ready_endpoints_with_the_port_are_dialed() {
        let spec = value!({"type": "ClusterIP", "clusterIP": "None", "ports": [{"name": "web", "port": 443}]});
        let slice = |port: &str, ready: bool| {
            value!({
                "ports": [{"name": port, "port": 8443}],
                "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": ready}}, {"addresses": ["10.1.0.2"]}],
            })
        };
        let check = |slices: &[Value], expect: &str| {
            assert_eq!(dial(&One { spec: spec.clone(), slices: slices.to_vec() }, true, "s", 443), expect);
        };
        check(&[slice("web", true)], "10.1.0.2:8443");
        check(&[slice("web", false), slice("other", true)], "10.1.0.2:8443");
        check(&[slice("other", true)], "no endpoints available for service \"s\"");
        let external = One { spec: value!({"type": "ExternalName", "externalName": "a"}), slices: Vec::new() };
        assert_eq!(dial(&external, true, "s", 443), "unsupported service type \"ExternalName\"");
    }

    #[test]
    fn url_is_dialed_directly_and_the_kubernetes_service_at_the_listen_address() {
        let none = One { spec: Value::Null, slices: Vec::new() };
        let url =
            |text: &str| resolve(&Backend::Url(text.parse().unwrap()), Routing::default(), &none, 0).unwrap().dial;
        assert_eq!(url("https://a.example/x"), "a.example:443");
        assert_eq!(url("https://[::1]:8443/x"), "[::1]:8443");
        let (namespace, name) = ("default".to_owned(), "kubernetes".to_owned());
        let own = Backend::Service { namespace, name, port: 443, path: String::new() };
        let routing = Routing { own: Some("127.0.0.1:7000".parse().unwrap()), ..Routing::default() };
        assert_eq!(resolve(&own, routing, &none, 0).unwrap().dial, "127.0.0.1:7000");
    }
}
