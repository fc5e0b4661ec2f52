//! What a proxy needs to know of nodes, services and endpoint slices.

use std::net::IpAddr;

use machinery::meta::Meta;
use machinery::{Key, Value};
use net::{Cidr, Protocol};

/// The label of a slice that says whose endpoints it has.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of what another proxy takes care of.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// How long a client sticks to an endpoint if the service does not say: three hours.
const AFFINITY_SECONDS: u32 = 10_800;

/// The node that the proxy is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub zone: String,
}

/// A service that is proxied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its own addresses.
    pub cluster_ips: Vec<IpAddr>,
    /// Addresses from outside that lead here.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of load balancers that lead here.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Who may come by a load balancer; everyone if there is none.
    pub source_ranges: Vec<Cidr>,
    /// What goes where.
    pub ports: Vec<ServicePort>,
    /// Inside traffic stays on the node.
    pub internal_local: bool,
    /// Outside traffic stays on the node.
    pub external_local: bool,
    /// How long a client sticks to an endpoint, in seconds.
    pub affinity_seconds: Option<u32>,
    /// Where load balancers ask whether this node has endpoints.
    pub health_check_port: Option<u16>,
}

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name, by which slices know it.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The port of every node that leads here.
    pub node_port: Option<u16>,
}

/// Some endpoints of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The service.
    pub service: Key,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Ports by name and protocol.
    pub ports: Vec<(String, Protocol, u16)>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is.
    pub ip: IpAddr,
    /// It takes traffic.
    pub ready: bool,
    /// It works, though it may be about to go.
    pub serving: bool,
    /// It is about to go.
    pub terminating: bool,
    /// The node that it is on.
    pub node: String,
    /// The zones that should use it; nothing if nobody says.
    pub for_zones: Option<Vec<String>>,
    /// The nodes that should use it; nothing if nobody says.
    pub for_nodes: Option<Vec<String>>,
}

impl Service {
    /// Reads a service; none if it is not ours to proxy.
    pub fn read(object: &Value) -> Option<Self> {
        if Meta::of(object).label(OTHER_PROXY).is_some() {
            return None;
        }
        let spec = object.get("spec")?;
        if spec.str_at(&["type"]) == Some("ExternalName") || spec.str_at(&["clusterIP"]) == Some("None") {
            return None;
        }
        let mut cluster_ips = addresses(spec.get("clusterIPs"));
        if cluster_ips.is_empty() {
            cluster_ips.extend(spec.str_at(&["clusterIP"]).and_then(|text| text.parse::<IpAddr>().ok()));
        }
        if cluster_ips.is_empty() {
            return None;
        }
        let affinity = (spec.str_at(&["sessionAffinity"]) == Some("ClientIP")).then(|| {
            let seconds = spec.at(&["sessionAffinityConfig", "clientIP", "timeoutSeconds"]).and_then(Value::as_int);
            seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(AFFINITY_SECONDS)
        });
        let ranges = spec.get("loadBalancerSourceRanges").and_then(Value::as_array).unwrap_or_default();
        let external_local = spec.str_at(&["externalTrafficPolicy"]) == Some("Local");
        Some(Self {
            cluster_ips,
            external_ips: addresses(spec.get("externalIPs")),
            load_balancer_ips: load_balancer_ips(object),
            source_ranges: ranges
                .iter()
                .filter_map(Value::as_str)
                .filter_map(|text| text.trim().parse().ok())
                .collect(),
            ports: list(spec.get("ports")).iter().filter_map(ServicePort::read).collect(),
            internal_local: spec.str_at(&["internalTrafficPolicy"]) == Some("Local"),
            external_local,
            affinity_seconds: affinity,
            health_check_port: port(spec.get("healthCheckNodePort")).filter(|_| external_local),
        })
    }
}

impl ServicePort {
    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            name: value.str_at(&["name"]).unwrap_or_default().to_owned(),
            protocol: Protocol::parse(value.str_at(&["protocol"]).unwrap_or_default())?,
            port: port(value.get("port"))?,
            node_port: port(value.get("nodePort")),
        })
    }
}

impl Slice {
    /// Reads a slice; none if it belongs to no service, or holds names.
    pub fn read(object: &Value) -> Option<Self> {
        let meta = Meta::of(object);
        if meta.label(OTHER_PROXY).is_some() {
            return None;
        }
        let service = Key::new(meta.namespace(), meta.label(SERVICE_NAME)?);
        let one = |value: &Value| {
            let protocol = Protocol::parse(value.str_at(&["protocol"]).unwrap_or_default())?;
            Some((value.str_at(&["name"]).unwrap_or_default().to_owned(), protocol, port(value.get("port"))?))
        };
        Some(Self {
            service,
            endpoints: list(object.get("endpoints")).iter().filter_map(Endpoint::read).collect(),
            ports: list(object.get("ports")).iter().filter_map(one).collect(),
        })
    }
}

impl Endpoint {
    fn read(value: &Value) -> Option<Self> {
        let ip = value.get("addresses")?.as_array()?.first()?.as_str()?.parse().ok()?;
        let condition = |name: &str| value.at(&["conditions", name]).and_then(Value::as_bool);
        let hints = |name: &str| {
            let hints = value.at(&["hints", name])?.as_array()?;
            Some(hints.iter().filter_map(|hint| hint.str_at(&["name"])).map(str::to_owned).collect())
        };
        let ready = condition("ready").unwrap_or(true);
        Some(Self {
            ip,
            ready,
            serving: condition("serving").unwrap_or(ready),
            terminating: condition("terminating").unwrap_or(false),
            node: value.str_at(&["nodeName"]).unwrap_or_default().to_owned(),
            for_zones: hints("forZones"),
            for_nodes: hints("forNodes"),
        })
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

fn addresses(value: Option<&Value>) -> Vec<IpAddr> {
    list(value).iter().filter_map(Value::as_str).filter_map(|text| text.parse().ok()).collect()
}

fn port(value: Option<&Value>) -> Option<u16> {
    value.and_then(Value::as_int).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

/// Those whose packets reach the node as they came; the others are answered by the balancer's own proxy.
fn load_balancer_ips(object: &Value) -> Vec<IpAddr> {
    let ingress = list(object.at(&["status", "loadBalancer", "ingress"]));
    let ours = ingress.iter().filter(|one| one.str_at(&["ipMode"]) != Some("Proxy"));
    ours.filter_map(|one| one.str_at(&["ip"])?.parse().ok()).collect()
}
