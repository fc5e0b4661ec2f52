//! Nodes, services and endpoint slices, condensed to the fields that kube-proxy needs.

use std::net::IpAddr;

use api::view;
use apimachinery::meta::Meta;
use apimachinery::{Key, Value};
use netlink::{Cidr, Protocol};

/// Label of services that another proxy implements.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// Default `timeoutSeconds` of session affinity: three hours.
const AFFINITY_SECONDS: u32 = 10_800;

/// The node of this proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub zone: String,
}

/// A service to proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub cluster_ips: Vec<IpAddr>,
    pub external_ips: Vec<IpAddr>,
    pub load_balancer_ips: Vec<IpAddr>,
    /// `loadBalancerSourceRanges`; empty allows all sources.
    pub source_ranges: Vec<Cidr>,
    pub ports: Vec<ServicePort>,
    /// Whether `internalTrafficPolicy` is `Local`.
    pub internal_local: bool,
    /// Whether `externalTrafficPolicy` is `Local`.
    pub external_local: bool,
    /// Timeout of session affinity; `None` without affinity.
    pub affinity_seconds: Option<u32>,
    /// `healthCheckNodePort`.
    pub health_check_port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// The name used in endpoint slices.
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
    pub node_port: Option<u16>,
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub service: Key,
    pub endpoints: Vec<Endpoint>,
    /// Name, protocol and port.
    pub ports: Vec<(String, Protocol, u16)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub ip: IpAddr,
    pub ready: bool,
    /// Whether the endpoint accepts traffic, even if it is terminating.
    pub serving: bool,
    pub terminating: bool,
    pub node: String,
    /// Zone hints; `None` if not set.
    pub for_zones: Option<Vec<String>>,
    /// Node hints; `None` if not set.
    pub for_nodes: Option<Vec<String>>,
}

impl Service {
    /// Condenses a service; `None` if this proxy does not implement it.
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
            let seconds = spec.int_at(&["sessionAffinityConfig", "clientIP", "timeoutSeconds"]);
            seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(AFFINITY_SECONDS)
        });
        let ranges = spec.list_at(&["loadBalancerSourceRanges"]);
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
            name: value.text_at(&["name"]).to_owned(),
            protocol: Protocol::parse(value.text_at(&["protocol"]))?,
            port: port(value.get("port"))?,
            node_port: port(value.get("nodePort")),
        })
    }
}

impl Slice {
    /// Condenses a slice; `None` if it belongs to no service or to another proxy. Omits endpoints without an IP
    /// address.
    pub fn read(object: &Value) -> Option<Self> {
        let slice = view::EndpointSlice(object);
        if slice.meta().label(OTHER_PROXY).is_some() {
            return None;
        }
        let one = |value: &Value| {
            let protocol = Protocol::parse(value.text_at(&["protocol"]))?;
            Some((value.text_at(&["name"]).to_owned(), protocol, port(value.get("port"))?))
        };
        Some(Self {
            service: slice.service()?,
            endpoints: slice.endpoints().filter_map(Endpoint::read).collect(),
            ports: slice.ports().iter().filter_map(one).collect(),
        })
    }
}

impl Endpoint {
    fn read(endpoint: view::Endpoint<'_>) -> Option<Self> {
        let hints = |name: &str| {
            let hints = endpoint.0.at(&["hints", name])?.as_array()?;
            Some(hints.iter().filter_map(|hint| hint.str_at(&["name"])).map(str::to_owned).collect())
        };
        Some(Self {
            ip: endpoint.address()?.parse().ok()?,
            ready: endpoint.is_ready(),
            serving: endpoint.is_serving(),
            terminating: endpoint.is_terminating(),
            node: endpoint.0.text_at(&["nodeName"]).to_owned(),
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

/// Returns the load balancer addresses with `ipMode: VIP`; with `Proxy`, the load balancer terminates the traffic
/// itself.
fn load_balancer_ips(object: &Value) -> Vec<IpAddr> {
    let ingress = list(object.at(&["status", "loadBalancer", "ingress"]));
    let vips = ingress.iter().filter(|one| one.str_at(&["ipMode"]) != Some("Proxy"));
    vips.filter_map(|one| one.str_at(&["ip"])?.parse().ok()).collect()
}
