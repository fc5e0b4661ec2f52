//! Node IPAM: allocates a pod CIDR to every node.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::resources::{EVENTS, NODES};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, EventType, Patch, Plan, Preconditions, Regarding, Write, kinds};

/// The only key: all nodes are allocated in one decision.
const ALL: &str = "all nodes";

/// A CIDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub first: IpAddr,
    /// The prefix length.
    pub bits: u8,
}

/// The CIDRs to allocate from. Without a configuration no CIDR is allocated.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster CIDRs, at most one of each IP family, each with the prefix length of a node's CIDR.
    pub ranges: Vec<(Range, u8)>,
    /// CIDRs that are not for pods.
    pub taken: Vec<Range>,
}

pub struct NodeIpam;

pub struct Observation<'a> {
    nodes: Vec<&'a Value>,
    config: &'a Config,
}

impl Controller for NodeIpam {
    type Observed<'a> = Observation<'a>;
    type Config = Option<Config>;
    type Effect = Infallible;
    const NAME: &'static str = "node-ipam-controller";
    const READS: &'static [GroupResource] = &[NODES];
    const WRITES: &'static [Write] = &[(NODES, ""), (EVENTS, "")];

    fn affected_keys(_: &Cache, _: GroupResource, _: &Value, keys: &mut Vec<Key>) {
        keys.push(Key::cluster(ALL));
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Option<Config>, key: &Key) -> Option<Observation<'a>> {
        if key.name != ALL {
            return None;
        }
        Some(Observation { nodes: cache.of(NODES).iter().map(|it| &it.value).collect(), config: config.as_ref()? })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let mut plan = Plan::default();
        let mut used: Vec<Range> = observed.config.taken.clone();
        used.extend(observed.nodes.iter().flat_map(|node| ranges_of(node)));
        let without =
            observed.nodes.iter().filter(|node| ranges_of(node).next().is_none() && !Meta::of(node).is_deleting());
        let mut next = vec![0u128; observed.config.ranges.len()];
        for node in without {
            let found: Option<Vec<Range>> = observed
                .config
                .ranges
                .iter()
                .zip(&mut next)
                .map(|((range, bits), next)| first_free(*range, *bits, next, &used))
                .collect();
            match found {
                Some(ranges) => {
                    used.extend(&ranges);
                    plan.push(assign_cidrs(node, &ranges));
                }
                None => plan.push(Action::Event {
                    regarding: Regarding::object(node),
                    kind: EventType::Normal,
                    reason: "CIDRNotAvailable",
                    message: format!("Node {} status is now: CIDRNotAvailable", Meta::of(node).name()),
                }),
            }
        }
        plan
    }
}

impl Range {
    /// Parses a CIDR such as `10.0.0.0/8`.
    pub fn parse(text: &str) -> Option<Self> {
        let (first, bits) = text.split_once('/')?;
        let (first, bits): (IpAddr, u8) = (first.parse().ok()?, bits.parse().ok()?);
        (bits <= width(first)).then_some(Self { first, bits })
    }

    pub fn overlaps(self, other: Self) -> bool {
        if self.first.is_ipv4() != other.first.is_ipv4() {
            return false;
        }
        let shift = u32::from(width(self.first) - self.bits.min(other.bits));
        number(self.first).checked_shr(shift) == number(other.first).checked_shr(shift)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.first, self.bits)
    }
}

fn ranges_of(node: &Value) -> impl Iterator<Item = Range> {
    let all = node.list_at(&["spec", "podCIDRs"]).iter().filter_map(Value::as_str);
    all.chain(node.str_at(&["spec", "podCIDR"])).filter_map(Range::parse)
}

/// Returns the first unused node CIDR of a range, starting at index `next`.
fn first_free(range: Range, bits: u8, next: &mut u128, used: &[Range]) -> Option<Range> {
    let size = 1u128.checked_shl(u32::from(width(range.first).checked_sub(bits)?))?;
    let count = 1u128.checked_shl(u32::from(bits.checked_sub(range.bits)?))?;
    // Used CIDRs of the same size are found by lookup instead of comparison.
    let taken: BTreeSet<IpAddr> = used.iter().filter(|it| it.bits == bits).map(|it| it.first).collect();
    while *next < count {
        let share = Range { first: address(range.first, number(range.first) + *next * size), bits };
        *next += 1;
        let free = !taken.contains(&share.first) && !used.iter().any(|it| it.bits != bits && it.overlaps(share));
        if free {
            return Some(share);
        }
    }
    None
}

fn assign_cidrs(node: &Value, ranges: &[Range]) -> Action {
    let all: Vec<Value> = ranges.iter().map(|range| range.to_string().into()).collect();
    let first = all.first().cloned().unwrap_or_default();
    Action::Patch {
        resource: kinds::NODES.clone(),
        key: Key::of(node),
        subresource: "",
        only_if: Preconditions::same(node),
        patch: Patch::Strategic(value!({"spec": {"podCIDR": first, "podCIDRs": all}})),
    }
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn address(like: IpAddr, number: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties_with, run_until_stable_with};
    use proptest::prelude::*;

    use super::*;

    fn range(text: &str) -> Range {
        Range::parse(text).unwrap()
    }

    fn config() -> Option<Config> {
        let ranges = vec![(range("10.244.0.0/16"), 24), (range("fd00::/48"), 64)];
        Some(Config { ranges, taken: vec![range("10.244.1.0/25")] })
    }

    fn new_cluster(nodes: usize) -> FakeCluster {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        for at in 0..nodes {
            cluster.add(&kinds::NODES, value!({"metadata": {"name": (format!("n{at}"))}}));
        }
        cluster
    }

    fn given(cluster: &FakeCluster) -> Vec<String> {
        cluster.of(NODES).iter().map(|it| it.value["spec"]["podCIDRs"].to_string()).collect()
    }

    #[test]
    fn every_node_gets_a_unique_cidr_of_each_ip_family() {
        let mut cluster = new_cluster(2);
        check_properties_with::<NodeIpam>(&config(), &cluster, |_| false);
        run_until_stable_with::<NodeIpam>(&config(), &mut cluster, |_| false);
        assert_eq!(given(&cluster), [r#"["10.244.0.0/24","fd00::/64"]"#, r#"["10.244.2.0/24","fd00:0:0:1::/64"]"#]);
        cluster.remove(&kinds::NODES, &Key::cluster("n0"));
        cluster.add(&kinds::NODES, value!({"metadata": {"name": "n9"}}));
        run_until_stable_with::<NodeIpam>(&config(), &mut cluster, |_| false);
        assert_eq!(given(&cluster)[1], r#"["10.244.0.0/24","fd00::/64"]"#, "what is free again is given again");
    }

    #[test]
    fn exhausted_cluster_cidr_is_reported() {
        let mut cluster = new_cluster(3);
        let config = Some(Config { ranges: vec![(range("10.0.0.0/23"), 24)], taken: Vec::new() });
        run_until_stable_with::<NodeIpam>(&config, &mut cluster, |_| false);
        assert!(cluster.log.last().unwrap().contains("CIDRNotAvailable"), "{:?}", cluster.log);
    }

    proptest! {
        #[test]
        fn no_two_node_cidrs_overlap(before in 0..6usize, removed_nodes in prop::collection::btree_set(0..6usize, 0..4), more in 0..6usize) {
            let mut cluster = new_cluster(before);
            run_until_stable_with::<NodeIpam>(&config(), &mut cluster, |_| false);
            for at in removed_nodes.iter().filter(|at| **at < before) {
                cluster.remove(&kinds::NODES, &Key::cluster(format!("n{at}")));
            }
            for at in 0..more {
                cluster.add(&kinds::NODES, value!({"metadata": {"name": (format!("m{at}"))}}));
            }
            run_until_stable_with::<NodeIpam>(&config(), &mut cluster, |_| false);
            let nodes = cluster.of(NODES);
            let all: Vec<Range> = nodes.iter().flat_map(|it| it.value.list_at(&["spec", "podCIDRs"]).iter().filter_map(|it| Range::parse(it.as_str()?)).collect::<Vec<_>>()).collect();
            prop_assert_eq!(all.len(), 2 * nodes.len());
            for (at, one) in all.iter().enumerate() {
                prop_assert!(all[..at].iter().all(|other| !one.overlaps(*other)));
            }
        }
    }
}
