//! Pods and NetworkPolicies, condensed to the fields that enforcement needs.

use std::net::IpAddr;

use apimachinery::labels::{self, Selector};
use apimachinery::meta::Meta;
use apimachinery::{Key, Object, Value};
use netlink::{Cidr, Protocol};

use super::{Cluster, Ports, Range, after};

/// Direction of traffic, as seen from the selected pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    Ingress,
    Egress,
}

/// A pod with addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    pub labels: Object,
    pub ips: Vec<IpAddr>,
    pub node: String,
    pub host_network: bool,
    /// Named ports.
    pub ports: Vec<(String, Protocol, u16)>,
}

/// A NetworkPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// `podSelector`.
    pub selector: Selector,
    ingress: Option<Vec<Rule>>,
    egress: Option<Vec<Rule>>,
}

/// An ingress or egress rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// `None` allows all peers.
    pub peers: Option<Vec<Peer>>,
    /// `None` allows all ports.
    pub ports: Option<Vec<PolicyPort>>,
}

/// A `NetworkPolicyPeer`.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    /// An `ipBlock`.
    Block {
        block: Cidr,
        /// Excluded parts of the block.
        except: Vec<Cidr>,
    },
    /// Pods selected by labels.
    Pods {
        /// `None` selects the namespace of the policy.
        namespaces: Option<Selector>,
        /// `None` selects all pods.
        pods: Option<Selector>,
    },
}

/// A `NetworkPolicyPort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyPort {
    Numbers(Ports),
    /// A named container port.
    Name(Protocol, String),
}

impl Pod {
    /// Condenses a pod; `None` if it has no address or has terminated.
    pub fn read(object: &Value) -> Option<Self> {
        if api::view::Pod(object).is_terminal() {
            return None;
        }
        let ips = list(object.at(&["status", "podIPs"])).iter();
        let mut ips: Vec<IpAddr> = ips.filter_map(|ip| ip.str_at(&["ip"])?.parse().ok()).collect();
        if ips.is_empty() {
            ips.push(object.str_at(&["status", "podIP"])?.parse().ok()?);
        }
        Some(Self::at(object, ips))
    }

    /// Condenses a pod with these addresses, regardless of its status.
    pub fn at(object: &Value, ips: Vec<IpAddr>) -> Self {
        let containers = list(object.at(&["spec", "containers"])).iter();
        let ports = containers.flat_map(|container| list(container.get("ports"))).filter_map(|port| {
            let protocol = Protocol::parse(port.text_at(&["protocol"]))?;
            let number = u16::try_from(port.get("containerPort")?.as_int()?).ok()?;
            Some((port.str_at(&["name"])?.to_owned(), protocol, number))
        });
        Self {
            labels: Meta::of(object).labels().cloned().unwrap_or_default(),
            ips,
            node: object.text_at(&["spec", "nodeName"]).to_owned(),
            host_network: object.at(&["spec", "hostNetwork"]).and_then(Value::as_bool).unwrap_or_default(),
            ports: ports.collect(),
        }
    }

    /// Returns the numbers of a named port.
    pub fn named(&self, protocol: Protocol, name: &str) -> Vec<Ports> {
        let ports = self.ports.iter().filter(|(have, kind, _)| have == name && *kind == protocol);
        ports.map(|(_, _, number)| Ports { protocol, first: *number, last: *number }).collect()
    }
}

impl Policy {
    /// Condenses a policy; `None` if it is invalid, which the API server prevents.
    pub fn read(object: &Value) -> Option<Self> {
        let spec = object.get("spec")?;
        let types: Vec<&str> = list(spec.get("policyTypes")).iter().filter_map(Value::as_str).collect();
        let rules = |field: &str, side: &str| {
            let rules = list(spec.get(field)).iter().map(|rule| Rule::read(rule, side)).collect::<Option<Vec<_>>>();
            rules.unwrap_or_default()
        };
        // Without policyTypes the policy restricts ingress, and egress if it has an egress section.
        let has = |name: &str, usual: bool| if types.is_empty() { usual } else { types.contains(&name) };
        let has_egress = spec.get("egress").is_some_and(|egress| !egress.is_null());
        Some(Self {
            selector: labels::from_object(Some(spec.get("podSelector").unwrap_or(&Value::object()))).ok()?,
            ingress: has("Ingress", true).then(|| rules("ingress", "from")),
            egress: has("Egress", has_egress).then(|| rules("egress", "to")),
        })
    }

    /// Returns the rules of a direction; `None` if the policy does not restrict it.
    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }
}

impl Rule {
    fn read(value: &Value, side: &str) -> Option<Self> {
        // An empty list means the same as an absent one.
        let some = |field: &str| Some(list(value.get(field))).filter(|list| !list.is_empty());
        let peers = match some(side) {
            Some(peers) => Some(peers.iter().map(Peer::read).collect::<Option<Vec<_>>>()?),
            None => None,
        };
        let ports = match some("ports") {
            Some(ports) => Some(ports.iter().map(PolicyPort::read).collect::<Option<Vec<_>>>()?),
            None => None,
        };
        Some(Self { peers, ports })
    }
}

impl Peer {
    fn read(value: &Value) -> Option<Self> {
        if let Some(block) = value.get("ipBlock").filter(|block| !block.is_null()) {
            let except = list(block.get("except")).iter().filter_map(Value::as_str);
            return Some(Self::Block {
                block: block.str_at(&["cidr"])?.parse().ok()?,
                except: except.filter_map(|text| text.parse().ok()).collect(),
            });
        }
        let selector = |field: &str| match value.get(field).filter(|it| !it.is_null()) {
            Some(selector) => labels::from_object(Some(selector)).ok().map(Some),
            None => Some(None),
        };
        Some(Self::Pods { namespaces: selector("namespaceSelector")?, pods: selector("podSelector")? })
    }

    /// Whether the peer selects a pod, for a policy in this namespace.
    pub fn is(&self, cluster: &Cluster, namespace: &str, key: &Key, pod: &Pod) -> bool {
        let Self::Pods { namespaces, pods } = self else { return false };
        let there = match namespaces {
            None => key.namespace == namespace,
            Some(selector) => selector.matches_labels(cluster.namespaces.get(&Key::cluster(key.namespace.clone()))),
        };
        there && pods.as_ref().is_none_or(|selector| selector.matches_labels(Some(&pod.labels)))
    }

    /// Returns the ranges of a block without its exceptions; empty for pods.
    pub fn block_ranges(&self) -> Vec<Range> {
        let Self::Block { block, except } = self else { return Vec::new() };
        let mut holes: Vec<Range> = except.iter().map(|hole| (hole.base(), hole.last())).collect();
        holes.sort_unstable();
        let (mut start, end) = (Some(block.base()), block.last());
        let mut ranges = Vec::new();
        for (first, last) in holes {
            let Some(from) = start.filter(|from| *from <= end && first.is_ipv4() == from.is_ipv4()) else { break };
            if let Some(before) = before(first).filter(|before| from <= *before && first <= end) {
                ranges.push((from, before));
            }
            if last >= from {
                start = after(last);
            }
        }
        if let Some(from) = start.filter(|from| *from <= end) {
            ranges.push((from, end));
        }
        ranges
    }
}

impl PolicyPort {
    fn read(value: &Value) -> Option<Self> {
        let protocol = Protocol::parse(value.text_at(&["protocol"]))?;
        let number = |field: &str| value.get(field).and_then(Value::as_int).and_then(|port| u16::try_from(port).ok());
        if let Some(name) = value.str_at(&["port"]) {
            return Some(Self::Name(protocol, name.to_owned()));
        }
        let (first, last) = match number("port") {
            Some(first) => (first, number("endPort").unwrap_or(first)),
            None => (0, u16::MAX),
        };
        Some(Self::Numbers(Ports { protocol, first, last }))
    }
}

fn before(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).checked_sub(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(ip) => u128::from(ip).checked_sub(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}
