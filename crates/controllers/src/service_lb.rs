//! Service load balancer: assigns pool or node addresses to Services of type `LoadBalancer`.
//!
//! The nodes announce pool addresses on their network, as listed in the Service's status. With node addresses, a port
//! can belong to one Service only: the oldest one gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::resources::{EVENTS, NODES, SERVICES};
use api::view::Node;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, EventType, Patch, Plan, Preconditions, Regarding, Write, kinds};

/// The loadBalancerClass of this controller, which also handles Services without a class.
pub const CLASS: &str = "knarr.dev/load-balancer";
/// The only key: all Services are assigned in one decision.
const ALL: &str = "all services";
/// Nodes with this label receive no external traffic.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Maximum node addresses in a status.
const NODES_MAX: usize = 64;

/// The source of addresses. Without a configuration no address is assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Inclusive address ranges. If empty, node addresses are assigned.
    pub pool: Vec<(IpAddr, IpAddr)>,
    /// Ports used by the nodes themselves, which no Service gets when node addresses are shared.
    pub reserved: BTreeSet<i64>,
}

pub struct ServiceLb;

pub struct Observation<'a> {
    services: Vec<&'a Value>,
    nodes: Vec<&'a Value>,
    config: &'a Config,
}

impl Controller for ServiceLb {
    type Observed<'a> = Observation<'a>;
    type Config = Option<Config>;
    type Effect = Infallible;
    const NAME: &'static str = "service-lb-controller";
    const READS: &'static [GroupResource] = &[SERVICES, NODES];
    const WRITES: &'static [Write] = &[(SERVICES, "status"), (EVENTS, "")];

    fn affected_keys(_: &Cache, _: GroupResource, _: &Value, keys: &mut Vec<Key>) {
        keys.push(Key::cluster(ALL));
    }

    /// Ignores node heartbeats, which arrive every few seconds, and Services of other types.
    fn is_relevant_change(kind: GroupResource, old: &Value, new: &Value) -> bool {
        match kind {
            NODES => {
                let seen = |node| (addresses_of(node), takes_traffic(node), kubelet_port(node));
                seen(old) != seen(new)
            }
            _ => is_balanced(old) || is_balanced(new) || !given(new).is_empty(),
        }
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Option<Config>, key: &Key) -> Option<Observation<'a>> {
        if key.name != ALL {
            return None;
        }
        let config = config.as_ref()?;
        let all = |kind| cache.of(kind).iter().map(|it| &it.value).collect::<Vec<_>>();
        Some(Observation { services: all(SERVICES), nodes: all(NODES), config })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let mut plan = Plan::default();
        let (mut own_services, others): (Vec<&Value>, Vec<&Value>) =
            observed.services.iter().partition(|it| is_own_service(it));
        for service in others.into_iter().filter(|it| !is_balanced(it) && !given(it).is_empty()) {
            plan.push(set(service, &[]));
        }
        // The oldest Services come first, so that a new Service never takes an address or port from an existing one.
        own_services.sort_by_key(|service| (service.text_at(&["metadata", "creationTimestamp"]), Key::of(service)));
        let desired = match observed.config.pool.is_empty() {
            true => of_nodes(&own_services, &observed.nodes, &observed.config.reserved),
            false => of_pool(&own_services, &observed.config.pool),
        };
        for (service, desired) in own_services.iter().zip(desired) {
            match desired {
                Ok(addresses) if addresses == given(service) => {}
                Ok(addresses) => {
                    plan.push(set(service, &addresses));
                    plan.push(service_event(
                        service,
                        EventType::Normal,
                        "EnsuredLoadBalancer",
                        "Ensured load balancer".into(),
                    ));
                }
                Err(cause) => {
                    if !given(service).is_empty() {
                        plan.push(set(service, &[]));
                    }
                    let message = format!("Error syncing load balancer: {cause}");
                    plan.push(service_event(service, EventType::Warning, "SyncLoadBalancerFailed", message));
                }
            }
        }
        plan
    }
}

impl Config {
    /// Parses a pool such as `192.0.2.10-192.0.2.20,198.51.100.0/28,2001:db8::5`; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Some(Self { pool: parts.map(range).collect::<Option<_>>()?, reserved: BTreeSet::new() })
    }
}

fn range(text: &str) -> Option<(IpAddr, IpAddr)> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last): (IpAddr, IpAddr) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        return (first.is_ipv4() == last.is_ipv4() && first <= last).then_some((first, last));
    }
    let Some((first, bits)) = text.split_once('/') else { return text.parse().ok().map(|ip| (ip, ip)) };
    let (first, bits): (IpAddr, u32) = (first.parse().ok()?, bits.parse().ok()?);
    match first {
        IpAddr::V4(ip) => {
            let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
            let base = u32::from(ip) & !rest;
            (bits <= 32).then(|| (Ipv4Addr::from(base).into(), Ipv4Addr::from(base | rest).into()))
        }
        IpAddr::V6(ip) => {
            let rest = u128::MAX.checked_shr(bits).unwrap_or(0);
            let base = u128::from(ip) & !rest;
            (bits <= 128).then(|| (Ipv6Addr::from(base).into(), Ipv6Addr::from(base | rest).into()))
        }
    }
}

/// The addresses of each Service, or an error message.
type DesiredAddresses = Vec<Result<Vec<IpAddr>, String>>;

fn of_nodes(services: &[&Value], nodes: &[&Value], reserved: &BTreeSet<i64>) -> DesiredAddresses {
    let kubelets: BTreeSet<i64> = nodes.iter().filter_map(|node| kubelet_port(node)).collect();
    let takers = nodes.iter().filter(|node| takes_traffic(node)).take(NODES_MAX);
    let addresses: Vec<IpAddr> = takers.flat_map(|node| addresses_of(node)).collect();
    let mut taken: BTreeMap<(&str, i64), Key> = BTreeMap::new();
    let mut desired = DesiredAddresses::with_capacity(services.len());
    for service in services {
        let ports: Vec<(&str, i64)> = ports(service).collect();
        if let Some((_, port)) = ports.iter().find(|(_, port)| reserved.contains(port) || kubelets.contains(port)) {
            desired.push(Err(format!("port {port} is reserved for the nodes")));
            continue;
        }
        if let Some((port, by)) = ports.iter().find_map(|port| Some((port, taken.get(port)?))) {
            desired.push(Err(format!("port {}/{} of the nodes belongs to {by}", port.1, port.0)));
            continue;
        }
        taken.extend(ports.into_iter().map(|port| (port, Key::of(service))));
        let families = families(service);
        let mut own: Vec<IpAddr> = addresses.iter().filter(|ip| families.contains(&ip.is_ipv4())).copied().collect();
        own.sort_unstable();
        own.dedup();
        desired.push(Ok(own));
    }
    desired
}

fn of_pool(services: &[&Value], pool: &[(IpAddr, IpAddr)]) -> DesiredAddresses {
    let within =
        |ip: &IpAddr| pool.iter().any(|(first, last)| first.is_ipv4() == ip.is_ipv4() && first <= ip && ip <= last);
    // Assigned addresses are kept, and requested addresses are not given to other Services.
    let reserved: BTreeSet<IpAddr> = services.iter().filter_map(|service| requested_ip(service)).collect();
    let mut taken = BTreeSet::new();
    let mut retained: Vec<Vec<IpAddr>> = Vec::with_capacity(services.len());
    for service in services {
        let (families, requested) = (families(service), requested_ip(service));
        let keeps = |ip: &IpAddr| {
            within(ip) && families.contains(&ip.is_ipv4()) && requested.is_none_or(|requested| requested == *ip)
        };
        retained.push(given(service).into_iter().filter(keeps).filter(|ip| taken.insert(*ip)).collect());
    }
    let mut desired = DesiredAddresses::with_capacity(services.len());
    for (service, mut own) in services.iter().zip(retained) {
        let requested = requested_ip(service);
        let mut missing = Vec::new();
        for ipv4 in families(service) {
            if own.iter().any(|ip| ip.is_ipv4() == ipv4) {
                continue;
            }
            let found = match requested {
                Some(ip) if ip.is_ipv4() == ipv4 => Some(ip).filter(|ip| within(ip) && !taken.contains(ip)),
                Some(_) => continue,
                None => first_free(pool, ipv4, |ip| !taken.contains(ip) && !reserved.contains(ip)),
            };
            match found {
                Some(ip) => {
                    taken.insert(ip);
                    own.push(ip);
                }
                None => missing.push(if ipv4 { "IPv4" } else { "IPv6" }),
            }
        }
        own.sort_unstable();
        // A dual-stack Service gets one address if the other family has none left.
        desired.push(match (own.is_empty(), requested) {
            (false, _) => Ok(own),
            (true, Some(ip)) => Err(format!("the address {ip} is not in the pool, or is taken")),
            (true, None) => Err(format!("the pool has no free {} address", missing.join(" or "))),
        });
    }
    desired
}

/// Returns the first free address. The search inspects at most one address more than are taken.
fn first_free(pool: &[(IpAddr, IpAddr)], ipv4: bool, is_free: impl Fn(&IpAddr) -> bool) -> Option<IpAddr> {
    for (first, last) in pool.iter().filter(|(first, _)| first.is_ipv4() == ipv4) {
        let mut next = Some(*first);
        while let Some(ip) = next.filter(|ip| ip <= last) {
            if is_free(&ip) {
                return Some(ip);
            }
            next = match ip {
                IpAddr::V4(ip) => u32::from(ip).checked_add(1).map(|bits| IpAddr::V4(bits.into())),
                IpAddr::V6(ip) => u128::from(ip).checked_add(1).map(|bits| IpAddr::V6(bits.into())),
            };
        }
    }
    None
}

fn is_balanced(service: &Value) -> bool {
    service.text_at(&["spec", "type"]) == "LoadBalancer"
}

/// Whether this controller handles the Service.
fn is_own_service(service: &Value) -> bool {
    let class = service.str_at(&["spec", "loadBalancerClass"]);
    is_balanced(service) && class.is_none_or(|class| class == CLASS) && !Meta::of(service).is_deleting()
}

/// Returns the addresses in the Service's status, sorted.
fn given(service: &Value) -> Vec<IpAddr> {
    let ingress = service.list_at(&["status", "loadBalancer", "ingress"]).iter();
    let mut ips: Vec<IpAddr> = ingress.filter_map(|one| one.text_at(&["ip"]).parse().ok()).collect();
    ips.sort_unstable();
    ips
}

/// Returns `spec.loadBalancerIP`.
fn requested_ip(service: &Value) -> Option<IpAddr> {
    service.text_at(&["spec", "loadBalancerIP"]).parse().ok()
}

fn ports(service: &Value) -> impl Iterator<Item = (&str, i64)> {
    let one = |port| {
        let protocol = Some(Value::text_at(port, &["protocol"])).filter(|it| !it.is_empty()).unwrap_or("TCP");
        Some((protocol, port.at(&["port"])?.as_int()?))
    };
    service.list_at(&["spec", "ports"]).iter().filter_map(one)
}

/// Returns whether each family is IPv4, the primary family first.
fn families(service: &Value) -> Vec<bool> {
    let named: Vec<bool> =
        service.list_at(&["spec", "ipFamilies"]).iter().filter_map(Value::as_str).map(|it| it == "IPv4").collect();
    if named.is_empty() { vec![true] } else { named }
}

/// Returns the node's external addresses, or else its internal ones.
fn addresses_of(node: &Value) -> Vec<IpAddr> {
    let of = |kind: &str| {
        let all = node.list_at(&["status", "addresses"]).iter().filter(|one| one.text_at(&["type"]) == kind);
        all.filter_map(|one| one.text_at(&["address"]).parse().ok()).collect::<Vec<IpAddr>>()
    };
    let external = of("ExternalIP");
    if external.is_empty() { of("InternalIP") } else { external }
}

fn kubelet_port(node: &Value) -> Option<i64> {
    node.at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"])?.as_int()
}

fn takes_traffic(node: &Value) -> bool {
    let meta = Meta::of(node);
    Node(node).is_ready() && meta.label(EXCLUDED).is_none() && !meta.is_deleting()
}

fn set(service: &Value, addresses: &[IpAddr]) -> Action {
    let one = |ip: &IpAddr| value!({"ip": (ip.to_string()), "ipMode": "VIP"});
    let ingress = match addresses {
        [] => Value::Null,
        addresses => Value::Array(addresses.iter().map(one).collect()),
    };
    Action::Patch {
        resource: kinds::SERVICES.clone(),
        key: Key::of(service),
        subresource: "status",
        // The pool is shared: the precondition protects the decision against concurrent changes.
        only_if: Preconditions::unchanged(service),
        patch: Patch::Merge(value!({"status": {"loadBalancer": {"ingress": ingress}}})),
    }
}

fn service_event(service: &Value, kind: EventType, reason: &'static str, message: String) -> Action {
    Action::Event { regarding: Regarding::object(service), kind, reason, message }
}

#[cfg(test)]
mod tests;
