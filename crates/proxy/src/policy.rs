//! Network policies on a node: who may talk to whom, decided as data, and as packet rules.
//!
//! A pod that no policy selects may talk to everyone. One that some select may talk to whom one of them allows. [`decide`]
//! gives for each pod of this node what it is limited to, with peers by name of the list that they are in; [`state`] says what a
//! decision changes, and [`table`] makes rules of that.
//!
//! Rules go by addresses, which the runtime gives. A kubelet in the same process has its pods wait at a [`gate`] until the rules know them.
// DEVIATION: a pod of a kubelet that runs in a process of its own is limited from when its address is in its status, which may be moments after its first container started.

pub mod follow;
pub mod gate;
mod model;
pub mod state;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use machinery::Key;
use net::Protocol;

pub use model::{Direction, Pod, Policy, PortWish, Rule, Who};

/// An unbroken range of addresses of one family, both ends included.
pub type Range = (IpAddr, IpAddr);

/// What pods of a node are limited to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Who is in the lists that limits name.
    pub peers: BTreeMap<PeersId, Vec<Range>>,
    /// By address; those that no policy selects are not there.
    pub pods: BTreeMap<IpAddr, Limits>,
    /// The addresses of the DNS service that nodes answer for; see [`Cluster::serve_dns`].
    pub dns: BTreeSet<IpAddr>,
}

/// Which list of peers: the same however its members change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeersId {
    /// The policy.
    pub policy: Key,
    /// Of its rules for this side.
    pub direction: Direction,
    /// The rule so far from the first.
    pub rule: usize,
    /// Only those whose port of a name has this number.
    pub at: Option<Ports>,
}

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
    /// With those of this list; with everyone if there is nothing.
    pub peers: Option<PeersId>,
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
    pub namespaces: BTreeMap<Key, machinery::Object>,
    /// All pods that have addresses.
    pub pods: BTreeMap<Key, Pod>,
    /// All policies.
    pub policies: BTreeMap<Key, Policy>,
    /// The addresses of the DNS service, if each node answers for it.
    dns: BTreeSet<IpAddr>,
}

impl Cluster {
    /// Says that nodes themselves answer at these addresses of the DNS service.
    ///
    /// Policies do not apply to what pods send to their own node, and they must to DNS: who denies all egress denies it, and who allows
    /// DNS allows pods of kube-system that are labelled `k8s-app: kube-dns`. So the service is such a pod to policies.
    pub fn serve_dns(&mut self, addresses: &[IpAddr]) {
        self.dns = addresses.iter().copied().collect();
        if !addresses.is_empty() {
            let pod = machinery::value!({"metadata": {"labels": {"k8s-app": "kube-dns"}}, "spec": {"containers": [
                {"ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"}]}]}});
            // No pod of the API can have this name.
            self.pods.insert(Key::new("kube-system", "(dns)"), Pod::at(&pod, addresses.to_vec()));
        }
    }
}

/// What each pod of a node is limited to.
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

/// A decision under way: what many pods have in common is found out once.
struct Deciding<'a> {
    cluster: &'a Cluster,
    peers: BTreeMap<PeersId, Vec<Range>>,
    /// What the rules for where one goes allow, which is the same for whoever goes.
    egress: BTreeMap<PeersId, Vec<Allow>>,
}

impl Deciding<'_> {
    /// What some policies allow; nothing if none of them limits this side.
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

    /// What a rule allows to come to a pod, whose own ports its names are.
    fn who_comes(&mut self, id: &PeersId, rule: &Rule, pod: &Pod) -> Option<Allow> {
        let ports = match &rule.ports {
            None => None,
            Some(wishes) => {
                let numbers = wishes.iter().flat_map(|wish| match wish {
                    PortWish::Numbers(ports) => vec![*ports],
                    PortWish::Name(protocol, name) => pod.named(*protocol, name),
                });
                Some(numbers.collect::<Vec<_>>()).filter(|numbers| !numbers.is_empty())
            }
        };
        // None of the names that the rule wishes for is one of this pod's.
        if ports.is_none() && rule.ports.is_some() {
            return None;
        }
        Some(Allow { peers: self.everyone_of(id, rule), ports })
    }

    /// Where a rule allows to go. A port by name is another number on each pod that has it, so that it is a list for each number.
    fn where_to(&mut self, id: &PeersId, rule: &Rule) -> Vec<Allow> {
        if let Some(known) = self.egress.get(id) {
            return known.clone();
        }
        let mut allows = Vec::new();
        let mut by_number: BTreeMap<Ports, Vec<Range>> = BTreeMap::new();
        let mut numbers = Vec::new();
        for wish in rule.ports.iter().flatten() {
            match wish {
                PortWish::Numbers(ports) => numbers.push(*ports),
                PortWish::Name(protocol, name) => {
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

    /// The list of all peers of a rule; none if it means everyone.
    fn everyone_of(&mut self, id: &PeersId, rule: &Rule) -> Option<PeersId> {
        let peers = rule.peers.as_ref()?;
        let cluster = self.cluster;
        self.peers.entry(id.clone()).or_insert_with(|| ranges(cluster, &id.policy.namespace, peers));
        Some(id.clone())
    }
}

/// Whether one of the peers of a rule is this pod, by whatever it is described.
fn is_meant(cluster: &Cluster, namespace: &str, rule: &Rule, key: &Key, pod: &Pod) -> bool {
    let Some(peers) = &rule.peers else { return true };
    peers.iter().any(|who| match who {
        Who::Pods { .. } => who.is(cluster, namespace, key, pod),
        Who::Block { .. } => {
            who.block_ranges().iter().any(|(first, last)| pod.ips.iter().any(|ip| first <= ip && ip <= last))
        }
    })
}

fn ranges(cluster: &Cluster, namespace: &str, peers: &[Who]) -> Vec<Range> {
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
