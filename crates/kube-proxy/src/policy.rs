//! NetworkPolicies on a node: allowed traffic, computed as data and converted to packet rules.
//!
//! A pod that no policy selects is not restricted. A pod that policies select may communicate as any of them allows.
//! [`decide`] returns the limits of each pod of this node, with peers by list name. [`state`] computes the changes that
//! a decision requires, and [`ruleset`] converts them to rules.
//!
//! Rules match addresses, which the container runtime allocates. A kubelet in the same process makes its pods wait at a
//! [`gate`] until the rules include them.
// DEVIATION: pods of a kubelet in a separate process are restricted only once their address is in the pod status, which
// may be shortly after the first container started.

pub mod gate;
mod model;
pub mod ruleset;
pub mod state;
pub mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use apimachinery::Key;
use netlink::Protocol;

pub use model::{Direction, Peer, Pod, Policy, PolicyPort, Rule};

/// An address range of one family, both ends included.
pub type Range = (IpAddr, IpAddr);

/// Limits of the pods of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Members of the peer lists that limits name.
    pub peers: BTreeMap<PeersId, Vec<Range>>,
    /// By address; pods that no policy selects are absent.
    pub pods: BTreeMap<IpAddr, Limits>,
    /// Addresses of the DNS service served by the node itself; see [`Cluster::serve_dns`].
    pub dns: BTreeSet<IpAddr>,
}

/// Identity of a peer list, independent of its members.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeersId {
    pub policy: Key,
    pub direction: Direction,
    /// Index of the rule.
    pub rule: usize,
    /// Only pods whose named port has this number.
    pub at: Option<Ports>,
}

/// Limits of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limits {
    /// `None` allows all ingress.
    pub ingress: Option<Vec<Allow>>,
    /// `None` allows all egress.
    pub egress: Option<Vec<Allow>>,
}

/// Allowed traffic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allow {
    /// `None` allows all peers.
    pub peers: Option<PeersId>,
    /// `None` allows all ports.
    pub ports: Option<Vec<Ports>>,
}

/// A port range of a protocol, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ports {
    pub protocol: Protocol,
    pub first: u16,
    pub last: u16,
}

/// Objects that policies depend on.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Labels by namespace.
    pub namespaces: BTreeMap<Key, apimachinery::Object>,
    /// All pods with addresses.
    pub pods: BTreeMap<Key, Pod>,
    pub policies: BTreeMap<Key, Policy>,
    /// Addresses of the DNS service, if each node serves it itself.
    dns: BTreeSet<IpAddr>,
}

impl Cluster {
    /// Declares that nodes themselves serve these addresses of the DNS service.
    ///
    /// Policies do not apply to traffic from pods to their own node, but must apply to DNS: a policy that denies all
    /// egress denies it, and a policy that allows DNS selects pods of kube-system with the label `k8s-app: kube-dns`.
    /// The service is therefore represented as such a pod.
    pub fn serve_dns(&mut self, addresses: &[IpAddr]) {
        self.dns = addresses.iter().copied().collect();
        if !addresses.is_empty() {
            let pod = apimachinery::value!({"metadata": {"labels": {"k8s-app": "kube-dns"}}, "spec": {"containers": [
                {"ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"}]}]}});
            // Not a valid pod name, so it cannot collide.
            self.pods.insert(Key::new("kube-system", "(dns)"), Pod::at(&pod, addresses.to_vec()));
        }
    }
}

/// Returns the limits of each pod of a node.
pub fn decide(cluster: &Cluster, node: &str) -> Decision {
    let mut deciding = Deciding { cluster, peers: BTreeMap::new(), egress: BTreeMap::new() };
    let mut pods = BTreeMap::new();
    let own = cluster.pods.iter().filter(|(_, pod)| pod.node == node && !pod.host_network);
    for (key, pod) in own {
        let selected = cluster.policies.iter().filter(|(policy_key, policy)| {
            policy_key.namespace == key.namespace && policy.selector.matches_labels(Some(&pod.labels))
        });
        let selected: Vec<(&Key, &Policy)> = selected.collect();
        let mine = Limits {
            ingress: deciding.side(&selected, Direction::Ingress, pod),
            egress: deciding.side(&selected, Direction::Egress, pod),
        };
        if mine != Limits::default() {
            pods.extend(pod.ips.iter().map(|ip| (*ip, mine.clone())));
        }
    }
    Decision { peers: deciding.peers, pods, dns: cluster.dns.clone() }
}

/// State of a decision: results shared by many pods are computed once.
struct Deciding<'a> {
    cluster: &'a Cluster,
    peers: BTreeMap<PeersId, Vec<Range>>,
    /// Egress rules, which are the same for all pods that a policy selects.
    egress: BTreeMap<PeersId, Vec<Allow>>,
}

impl Deciding<'_> {
    /// Returns the traffic that the policies allow in one direction; `None` if none of them restricts it.
    fn side(&mut self, policies: &[(&Key, &Policy)], direction: Direction, pod: &Pod) -> Option<Vec<Allow>> {
        let limiting: Vec<(&Key, &[Rule])> =
            policies.iter().filter_map(|(key, policy)| Some((*key, policy.rules(direction)?))).collect();
        if limiting.is_empty() {
            return None;
        }
        let mut allows = BTreeSet::new();
        for (policy, rules) in limiting {
            for (number, rule) in rules.iter().enumerate() {
                let id = PeersId { policy: policy.clone(), direction, rule: number, at: None };
                match direction {
                    Direction::Ingress => allows.extend(self.who_comes(&id, rule, pod)),
                    Direction::Egress => allows.extend(self.where_to(&id, rule)),
                }
            }
        }
        Some(allows.into_iter().collect())
    }

    /// Returns the traffic that an ingress rule allows; port names refer to ports of the pod.
    fn who_comes(&mut self, id: &PeersId, rule: &Rule, pod: &Pod) -> Option<Allow> {
        let ports = match &rule.ports {
            None => None,
            Some(port_rules) => {
                let numbers = port_rules.iter().flat_map(|port_rule| match port_rule {
                    PolicyPort::Numbers(ports) => vec![*ports],
                    PolicyPort::Name(protocol, name) => pod.named(*protocol, name),
                });
                Some(numbers.collect::<Vec<_>>()).filter(|numbers| !numbers.is_empty())
            }
        };
        // The pod has none of the named ports of the rule.
        if ports.is_none() && rule.ports.is_some() {
            return None;
        }
        Some(Allow { peers: self.everyone_of(id, rule), ports })
    }

    /// Returns the traffic that an egress rule allows. A named port may have another number on each pod, so there is
    /// one peer list per number.
    fn where_to(&mut self, id: &PeersId, rule: &Rule) -> Vec<Allow> {
        if let Some(known) = self.egress.get(id) {
            return known.clone();
        }
        let mut allows = Vec::new();
        let mut by_number: BTreeMap<Ports, Vec<Range>> = BTreeMap::new();
        let mut numbers = Vec::new();
        for port_rule in rule.ports.iter().flatten() {
            match port_rule {
                PolicyPort::Numbers(ports) => numbers.push(*ports),
                PolicyPort::Name(protocol, name) => {
                    let meant =
                        |(key, pod): &(&Key, &Pod)| is_meant(self.cluster, &id.policy.namespace, rule, key, pod);
                    for (_, pod) in self.cluster.pods.iter().filter(meant) {
                        for ports in pod.named(*protocol, name) {
                            by_number.entry(ports).or_default().extend(pod.ips.iter().map(|ip| (*ip, *ip)));
                        }
                    }
                }
            }
        }
        if rule.ports.is_none() || !numbers.is_empty() {
            let ports = rule.ports.is_some().then_some(numbers);
            allows.push(Allow { peers: self.everyone_of(id, rule), ports });
        }
        for (ports, ips) in by_number {
            let list = PeersId { at: Some(ports), ..id.clone() };
            self.peers.insert(list.clone(), merged(ips));
            allows.push(Allow { peers: Some(list), ports: Some(vec![ports]) });
        }
        self.egress.insert(id.clone(), allows.clone());
        allows
    }

    /// Returns the list of all peers of a rule; `None` if the rule allows all peers.
    fn everyone_of(&mut self, id: &PeersId, rule: &Rule) -> Option<PeersId> {
        let peers = rule.peers.as_ref()?;
        let cluster = self.cluster;
        self.peers.entry(id.clone()).or_insert_with(|| ranges(cluster, &id.policy.namespace, peers));
        Some(id.clone())
    }
}

/// Whether a pod is a peer of a rule.
fn is_meant(cluster: &Cluster, namespace: &str, rule: &Rule, key: &Key, pod: &Pod) -> bool {
    let Some(peers) = &rule.peers else { return true };
    peers.iter().any(|who| match who {
        Peer::Pods { .. } => who.is(cluster, namespace, key, pod),
        Peer::Block { .. } => {
            who.block_ranges().iter().any(|(first, last)| pod.ips.iter().any(|ip| first <= ip && ip <= last))
        }
    })
}

fn ranges(cluster: &Cluster, namespace: &str, peers: &[Peer]) -> Vec<Range> {
    let mut ranges = Vec::new();
    for who in peers {
        ranges.extend(who.block_ranges());
        let pods = cluster.pods.iter().filter(|(key, pod)| !pod.host_network && who.is(cluster, namespace, key, pod));
        ranges.extend(pods.flat_map(|(_, pod)| pod.ips.iter().map(|ip| (*ip, *ip))));
    }
    merged(ranges)
}

/// Merges ranges into the fewest disjoint ones, sorted: the kernel rejects overlapping ranges.
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

/// Whether a range that starts at `start` overlaps or adjoins one that ends at `end`.
fn touches(end: IpAddr, start: IpAddr) -> bool {
    start <= end || after(end) == Some(start)
}

/// Returns the next address; `None` after the last.
pub fn after(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(ip) => u128::from(ip).checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

#[cfg(test)]
mod tests;
