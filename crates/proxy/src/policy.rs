//! Network policies on a node: who may talk to whom, decided as data, and as packet rules.
//!
//! A pod that no policy selects may talk to everyone. One that some select may talk to whom one of them allows. [`decide`]
//! gives for each pod of this node what it is limited to; [`table`] makes rules of it, which are replaced as a whole.

pub mod follow;
mod model;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use machinery::Key;
use net::Protocol;

pub use model::{Direction, Pod, Policy, PortWish, Rule, Who};

/// An unbroken range of addresses of one family, both ends included.
pub type Range = (IpAddr, IpAddr);

/// What one pod of this node is limited to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limits {
    /// Who may come; everyone if there is nothing.
    pub ingress: Option<Vec<Allow>>,
    /// Where it may go; everywhere if there is nothing.
    pub egress: Option<Vec<Allow>>,
}

/// Something that is allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allow {
    /// With these; with everyone if there is nothing.
    pub peers: Option<Vec<Range>>,
    /// At these ports; at all if there is nothing.
    pub ports: Option<Vec<Ports>>,
}

/// Ports of a protocol, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ports {
    /// The protocol.
    pub protocol: Protocol,
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// What policies are decided from.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The labels of namespaces.
    pub namespaces: BTreeMap<String, machinery::Object>,
    /// All pods that have addresses.
    pub pods: BTreeMap<Key, Pod>,
    /// All policies.
    pub policies: BTreeMap<Key, Policy>,
}

/// What each pod of a node is limited to, by address; those that no policy selects are not there.
pub fn decide(cluster: &Cluster, node: &str) -> BTreeMap<IpAddr, Limits> {
    let mut limits = BTreeMap::new();
    let own = cluster.pods.iter().filter(|(_, pod)| pod.node == node && !pod.host_network);
    for (key, pod) in own {
        let selected = cluster.policies.iter().filter(|(policy_key, policy)| {
            policy_key.namespace == key.namespace && policy.selector.matches_labels(Some(&pod.labels))
        });
        let selected: Vec<(&Key, &Policy)> = selected.collect();
        let side = |direction: Direction| {
            let rules: Vec<(&Key, &[Rule])> =
                selected.iter().filter_map(|(key, policy)| Some((*key, policy.rules(direction)?))).collect();
            (!rules.is_empty()).then(|| allowed(cluster, &rules, direction, pod))
        };
        let mine = Limits { ingress: side(Direction::Ingress), egress: side(Direction::Egress) };
        if mine != Limits::default() {
            limits.extend(pod.ips.iter().map(|ip| (*ip, mine.clone())));
        }
    }
    limits
}

fn allowed(cluster: &Cluster, policies: &[(&Key, &[Rule])], direction: Direction, pod: &Pod) -> Vec<Allow> {
    let mut allows = BTreeSet::new();
    for (key, rules) in policies {
        for rule in *rules {
            allows.extend(of_rule(cluster, &key.namespace, rule, direction, pod));
        }
    }
    allows.into_iter().collect()
}

/// What a rule allows. A port by name is another number on each pod that has it, so that it is a rule for each number.
fn of_rule(cluster: &Cluster, namespace: &str, rule: &Rule, direction: Direction, pod: &Pod) -> Vec<Allow> {
    let peers: Option<Vec<&Who>> = rule.peers.as_ref().map(|peers| peers.iter().collect());
    let everyone = |who: &Option<Vec<&Who>>| who.as_ref().map(|who| ranges(cluster, namespace, who));
    let Some(wishes) = &rule.ports else { return vec![Allow { peers: everyone(&peers), ports: None }] };
    let mut numbers = Vec::new();
    let mut by_number: BTreeMap<Ports, Vec<Range>> = BTreeMap::new();
    for wish in wishes {
        match (wish, direction) {
            (PortWish::Numbers(ports), _) => numbers.push(*ports),
            (PortWish::Name(protocol, name), Direction::Ingress) => numbers.extend(pod.named(*protocol, name)),
            (PortWish::Name(protocol, name), Direction::Egress) => {
                for peer in cluster.pods.iter().filter(|(key, other)| is_meant(cluster, namespace, &peers, key, other))
                {
                    for ports in peer.1.named(*protocol, name) {
                        by_number.entry(ports).or_default().extend(peer.1.ips.iter().map(|ip| (*ip, *ip)));
                    }
                }
            }
        }
    }
    let mut allows = Vec::new();
    if !numbers.is_empty() {
        allows.push(Allow { peers: everyone(&peers), ports: Some(numbers) });
    }
    let named = by_number.into_iter();
    allows.extend(named.map(|(ports, ips)| Allow { peers: Some(merged(ips)), ports: Some(vec![ports]) }));
    allows
}

/// Whether one of the peers of a rule is this pod, by whatever it is described.
fn is_meant(cluster: &Cluster, namespace: &str, peers: &Option<Vec<&Who>>, key: &Key, pod: &Pod) -> bool {
    let Some(peers) = peers else { return true };
    peers.iter().any(|who| match who {
        Who::Pods { .. } => who.is(cluster, namespace, key, pod),
        Who::Block { .. } => {
            who.block_ranges().iter().any(|(first, last)| pod.ips.iter().any(|ip| first <= ip && ip <= last))
        }
    })
}

fn ranges(cluster: &Cluster, namespace: &str, peers: &[&Who]) -> Vec<Range> {
    let mut ranges = Vec::new();
    for who in peers {
        ranges.extend(who.block_ranges());
        let pods = cluster.pods.iter().filter(|(key, pod)| !pod.host_network && who.is(cluster, namespace, key, pod));
        ranges.extend(pods.flat_map(|(_, pod)| pod.ips.iter().map(|ip| (*ip, *ip))));
    }
    merged(ranges)
}

/// The same addresses in as few ranges as there can be, in order: the kernel takes no ranges that overlap.
pub fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if before.0.is_ipv4() == first.is_ipv4() && touches(before.1, first) => {
                before.1 = before.1.max(last);
            }
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// Whether a range that begins here goes on where one that ended there ended.
fn touches(end: IpAddr, start: IpAddr) -> bool {
    start <= end || after(end) == Some(start)
}

/// The next address.
pub fn after(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(ip) => u128::from(ip).checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

#[cfg(test)]
mod tests;
