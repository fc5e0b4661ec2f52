//! Endpoint selection: readiness, termination, topology hints and traffic policies.

use std::net::IpAddr;

use netlink::Protocol;

use crate::service::{Endpoint, Node, ServicePort, Slice};

/// Address and port of an endpoint.
pub type EndpointAddr = (IpAddr, u16);

/// Selected endpoints of one port and one address family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedEndpoints {
    /// For traffic policy `Cluster`.
    pub anywhere: Vec<EndpointAddr>,
    /// For traffic policy `Local`.
    pub here: Vec<EndpointAddr>,
    /// Whether any node has an endpoint. If so, traffic with policy `Local` is dropped on nodes without one, instead of
    /// rejected.
    pub any: bool,
}

/// Selects among the endpoints of a service's slices.
pub fn choose(slices: &[&Slice], port: &ServicePort, ipv4: bool, node: &Node) -> SelectedEndpoints {
    let all = places(slices, &port.name, port.protocol, ipv4);
    let here: Vec<_> = all.iter().filter(|(endpoint, _)| endpoint.node == node.name).copied().collect();
    let anywhere = usable(&preferred(&all, node), &all);
    let here = usable(&here, &here);
    SelectedEndpoints { any: !anywhere.is_empty(), anywhere, here }
}

/// Returns ready endpoints; without any, those that are serving while they terminate.
fn usable(from: &[(&Endpoint, u16)], otherwise: &[(&Endpoint, u16)]) -> Vec<EndpointAddr> {
    let mut places: Vec<EndpointAddr> =
        from.iter().filter(|(it, _)| it.ready).map(|(endpoint, port)| (endpoint.ip, *port)).collect();
    if places.is_empty() {
        let going = otherwise.iter().filter(|(it, _)| it.serving && it.terminating);
        places = going.map(|(endpoint, port)| (endpoint.ip, *port)).collect();
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// Returns the endpoints whose hints include this node, otherwise its zone. Returns all if a ready endpoint has no hint
/// or no hint includes this node.
fn preferred<'a>(all: &[(&'a Endpoint, u16)], node: &Node) -> Vec<(&'a Endpoint, u16)> {
    type Hints = fn(&Endpoint) -> Option<&[String]>;
    let choices: [(Hints, &str); 2] =
        [(|it| it.for_nodes.as_deref(), &node.name), (|it| it.for_zones.as_deref(), &node.zone)];
    let ready: Vec<_> = all.iter().filter(|(it, _)| it.ready).copied().collect();
    for (hints, own_name) in choices {
        let hinted =
            !own_name.is_empty() && ready.iter().all(|(it, _)| hints(it).is_some_and(|hints| !hints.is_empty()));
        let meant: Vec<_> = ready
            .iter()
            .filter(|(it, _)| hints(it).is_some_and(|hints| hints.iter().any(|name| name == own_name)))
            .copied()
            .collect();
        if hinted && !meant.is_empty() {
            return meant;
        }
    }
    all.to_vec()
}

fn places<'a>(slices: &[&'a Slice], name: &str, protocol: Protocol, ipv4: bool) -> Vec<(&'a Endpoint, u16)> {
    let mut places = Vec::new();
    for slice in slices {
        let ports = slice.ports.iter().filter(|(have, kind, _)| have == name && *kind == protocol);
        for (_, _, port) in ports {
            let family = slice.endpoints.iter().filter(|endpoint| endpoint.ip.is_ipv4() == ipv4);
            places.extend(family.map(|endpoint| (endpoint, *port)));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use apimachinery::Key;

    use super::*;

    /// Parses `1 ready a` or `2 going b zone=x`: last part of the address, state, node, hints.
    fn endpoint(text: &str) -> Endpoint {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let hint = |name: &str| {
            let text = fields.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
            Some(text.split(',').map(str::to_owned).collect())
        };
        Endpoint {
            ip: IpAddr::from([10, 0, 0, fields[0].parse().unwrap()]),
            ready: fields[1] == "ready",
            serving: fields[1] != "failing",
            terminating: fields[1] == "going",
            node: fields[2].to_owned(),
            for_zones: hint("zone"),
            for_nodes: hint("node"),
        }
    }

    fn check(endpoints: &[&str], expect: &str) {
        let slice = Slice {
            service: Key::new("a", "b"),
            endpoints: endpoints.iter().map(|text| endpoint(text)).collect(),
            ports: vec![("http".into(), Protocol::Tcp, 80), ("http".into(), Protocol::Udp, 81)],
        };
        let port = ServicePort { name: "http".into(), protocol: Protocol::Tcp, port: 1, node_port: None };
        let node = Node { name: "a".into(), zone: "x".into() };
        let chosen = choose(&[&slice], &port, true, &node);
        let last = |places: &[EndpointAddr]| {
            let parts = places.iter().map(|(ip, port)| {
                assert_eq!(*port, 80);
                ip.to_string().rsplit('.').next().unwrap().to_owned()
            });
            parts.collect::<Vec<_>>().join(",")
        };
        assert_eq!(format!("{} here {}", last(&chosen.anywhere), last(&chosen.here)), expect, "{endpoints:?}");
    }

    #[test]
    fn traffic_goes_to_ready_endpoints() {
        check(&["1 ready a", "2 ready b", "3 failing a"], "1,2 here 1");
        check(&["1 ready b", "2 going a"], "1 here 2");
        check(&["1 going a", "2 failing a"], "1 here 1");
        check(&["2 failing b"], " here ");
        check(&["2 ready b", "2 ready b"], "2 here ");
    }

    #[test]
    fn hints_apply_if_all_ready_endpoints_have_them_and_some_match() {
        check(&["1 ready a zone=x", "2 ready b zone=y"], "1 here 1");
        check(&["1 ready a zone=x", "2 ready b"], "1,2 here 1");
        check(&["1 ready c zone=y", "2 ready b zone=y"], "1,2 here ");
        check(&["1 ready a zone=x node=b", "2 ready b zone=y node=a"], "2 here 1");
        check(&["1 ready b zone=x node=b", "2 ready b zone=y node=b"], "1 here ");
        check(&["1 failing a zone=x", "2 ready b zone=y"], "2 here ");
    }
}
