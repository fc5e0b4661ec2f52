//! Location of proxied requests: a port of a pod, or an endpoint of a service.

use std::net::IpAddr;

use api::view::{EndpointSlice, Service};
use apimachinery::Value;
use apimachinery::status::Status;

/// The scheme of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    /// TLS without certificate verification.
    Https,
}

/// A proxy name: `name`, `name:port` or `scheme:name:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// Defaults to `http`.
    pub scheme: Scheme,
    pub name: &'a str,
    /// A port number or name; may be empty.
    pub port: &'a str,
}

impl<'a> Name<'a> {
    /// Parses a name. `kind` appears in the error message.
    pub fn parse(text: &'a str, kind: &str) -> Result<Self, Status> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => ("?", "", ""),
        };
        let scheme = match scheme {
            "" | "http" => Some(Scheme::Http),
            "https" => Some(Scheme::Https),
            _ => None,
        };
        match scheme.filter(|_| !name.is_empty()) {
            Some(scheme) => Ok(Self { scheme, name, port }),
            None => Err(Status::bad_request(format!("invalid {kind} request {}", apimachinery::go::quote(text)))),
        }
    }
}

impl Scheme {
    /// Returns the scheme of the URL, for example `https`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn port(self) -> &'static str {
        match self {
            Self::Http => "80",
            Self::Https => "443",
        }
    }
}

/// Returns `address:port` of a pod: the named port, or the first that the pod declares.
pub fn pod_port(pod: &Value, name: &Name<'_>) -> Result<String, Status> {
    let declared = || {
        let containers = pod.at(&["spec", "containers"])?.as_array()?;
        let ports = containers.iter().filter_map(|container| container.get("ports")?.as_array()?.first());
        ports.filter_map(|port| port.get("containerPort")?.as_int()).next()
    };
    let port = match name.port {
        "" => declared().map_or_else(|| name.scheme.port().to_owned(), |port| port.to_string()),
        port => port.to_owned(),
    };
    let address = pod.text_at(&["status", "podIP"]);
    if !is_proxyable(address) {
        return Err(Status::bad_request("address not allowed"));
    }
    Ok(join(address, &port))
}

/// Returns the ready endpoints of a service port, with the pods they belong to.
pub fn endpoints<'s>(service: &Value, slices: &'s [Value], name: &Name<'_>) -> Result<Vec<Endpoint<'s>>, Status> {
    let port_name = port_name(service, name)?;
    let mut found = Vec::new();
    for slice in slices.iter().map(EndpointSlice) {
        let Some(port) = slice.port(port_name) else { continue };
        let ready = slice.ready_endpoints();
        found.extend(ready.filter_map(|it| Some(Endpoint { address: it.address()?, port, pod: it.pod()? })));
    }
    Ok(found)
}

/// Returns the first endpoint, starting at a random index, whose pod has that address. The check prevents users who can
/// write EndpointSlices from redirecting the proxy elsewhere.
pub fn endpoint(
    endpoints: &[Endpoint<'_>],
    name: &Name<'_>,
    pick: usize,
    pod: impl Fn(&str, &str) -> Option<Value>,
) -> Result<String, Status> {
    let count = endpoints.len();
    let drawn = (0..count).map(|step| &endpoints[(pick % count + step) % count]);
    let mut valid = drawn
        .filter(|endpoint| pod(endpoint.pod.0, endpoint.pod.1).is_some_and(|pod| has_address(&pod, endpoint.address)));
    match valid.next() {
        Some(endpoint) if is_proxyable(endpoint.address) => Ok(join(endpoint.address, &endpoint.port.to_string())),
        Some(_) => Err(Status::bad_request("address not allowed")),
        None => {
            let name = apimachinery::go::quote(name.name);
            Err(Status::service_unavailable(format!("no endpoints available for service {name}")))
        }
    }
}

/// An endpoint of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint<'s> {
    address: &'s str,
    port: i64,
    /// Namespace and name of the endpoint's target pod.
    pod: (&'s str, &'s str),
}

/// Whether the proxy may connect to an address: not if it is loopback, link-local, multicast, broadcast or unspecified.
pub fn is_proxyable(address: &str) -> bool {
    match address.parse() {
        Ok(IpAddr::V4(ip)) => {
            !(ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_unspecified() || ip.is_broadcast())
        }
        Ok(IpAddr::V6(ip)) => {
            !(ip.is_loopback() || ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified())
        }
        Err(_) => false,
    }
}

pub(super) fn join(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns the name of a service port, which identifies the port in EndpointSlices. A number is the service's port
/// number.
fn port_name<'n>(service: &'n Value, name: &Name<'n>) -> Result<&'n str, Status> {
    let Ok(number) = name.port.parse::<i64>() else { return Ok(name.port) };
    Service(service).port_name(number).ok_or_else(|| {
        let name = apimachinery::go::quote(name.name);
        Status::service_unavailable(format!("no service port {number} found for service {name}"))
    })
}

fn has_address(pod: &Value, address: &str) -> bool {
    let all = pod.list_at(&["status", "podIPs"]);
    all.iter().any(|ip| ip.str_at(&["ip"]) == Some(address)) || pod.str_at(&["status", "podIP"]) == Some(address)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn proxy_names_have_optional_schemes_and_ports() {
        let check = |text: &str, expect: &str| {
            let found = Name::parse(text, "pod").map_or_else(
                |status| status.message,
                |Name { scheme, name, port }| format!("{} {name} {port}", scheme.name()),
            );
            assert_eq!(found, expect);
        };
        check("a", "http a ");
        check("a:80", "http a 80");
        check("https:a:web", "https a web");
        check("ftp:a:web", "invalid pod request \"ftp:a:web\"");
        check(":80", "invalid pod request \":80\"");
        check("a:b:c:d", "invalid pod request \"a:b:c:d\"");
    }

    #[test]
    fn pod_port_is_the_named_or_first_declared_one() {
        let check = |text: &str, address: &str, expect: &str| {
            let pod = value!({
                "spec": {"containers": [{"name": "none"}, {"ports": [{"containerPort": 8080}, {"containerPort": 9}]}]},
                "status": {"podIP": address},
            });
            let found = pod_port(&pod, &Name::parse(text, "pod").unwrap());
            assert_eq!(found.unwrap_or_else(|status| status.message), expect);
        };
        check("p", "10.0.0.1", "10.0.0.1:8080");
        check("https:p:444", "fd00::1", "[fd00::1]:444");
        check("p", "127.0.0.1", "address not allowed");
        check("p", "169.254.169.254", "address not allowed");
        check("p", "", "address not allowed");
    }

    #[test]
    fn endpoint_must_be_ready_have_the_port_and_match_its_pod() {
        let service = value!({"spec": {"ports": [{"name": "web", "port": 80}]}});
        let endpoint_of = |address: &str, ready: bool, pod: &str| {
            value!({
                "addresses": [address], "conditions": {"ready": ready},
                "targetRef": {"kind": "Pod", "namespace": "n", "name": pod},
            })
        };
        let slices = [value!({
            "ports": [{"name": "web", "port": 8080}],
            "endpoints": [
                (endpoint_of("10.0.0.1", false, "a")), (endpoint_of("10.0.0.9", true, "b")),
                (endpoint_of("10.0.0.2", true, "b")),
            ],
        })];
        let pods = |_: &str, name: &str| {
            let address = if name == "a" { "10.0.0.1" } else { "10.0.0.2" };
            Some(value!({"status": {"podIPs": [{"ip": address}]}}))
        };
        let check = |text: &str, expect: &str| {
            let name = Name::parse(text, "service").unwrap();
            let found = endpoints(&service, &slices, &name).and_then(|found| endpoint(&found, &name, 7, pods));
            assert_eq!(found.unwrap_or_else(|status| status.message), expect, "{text}");
        };
        check("s:80", "10.0.0.2:8080");
        check("s:web", "10.0.0.2:8080");
        check("s:81", "no service port 81 found for service \"s\"");
        check("s", "no endpoints available for service \"s\"");
    }
}
