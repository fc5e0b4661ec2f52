//! Tests that policy changes lead to the decided state.

use proptest::prelude::*;

use super::super::{Allow, Limits};
use super::*;

/// Applies a change like the kernel, which rejects adding existing elements, deleting missing ones and deleting chains
/// in use.
fn apply(state: &mut State, change: &Change) {
    state.chains.extend(change.chains.clone());
    for removed in &change.pods.removed {
        assert!(state.pods.remove(removed), "{removed:?} is not there");
    }
    for removed in &change.peers.removed {
        assert!(state.peers.remove(removed), "{removed:?} is not there");
    }
    for new in &change.pods.new {
        assert!(state.chains.contains_key(&new.2), "{new:?} leads nowhere");
        let twice = state.pods.iter().any(|(direction, ip, _)| (*direction, *ip) == (new.0, new.1));
        assert!(!twice && state.pods.insert(*new), "{new:?} is there already");
    }
    for new in &change.peers.new {
        assert!(state.peers.insert(*new), "{new:?} is there already");
    }
    for removed in &change.removed_chains {
        assert!(state.pods.iter().all(|(_, _, chain)| chain != removed), "chain {removed} is in use");
        assert!(state.chains.remove(removed).is_some(), "chain {removed} is not there");
    }
}

/// Formats a state without IDs.
fn format_state(state: &State) -> Vec<String> {
    let peers = |number: u32| -> Vec<Range> {
        state.peers.iter().filter(|(of, _)| *of == number).map(|(_, range)| *range).collect()
    };
    let pods = state.pods.iter().map(|(direction, ip, chain)| {
        let chain = &state.chains[chain];
        assert_eq!(chain.direction, *direction);
        let passes = chain.passes.iter().map(|pass| format!("{:?} at {:?}", pass.peers.map(peers), pass.ports));
        format!("{direction:?} {ip} {}", passes.collect::<Vec<_>>().join("; "))
    });
    pods.collect()
}

fn ip(last: u8) -> IpAddr {
    if last < 128 { [10, 0, 0, last].into() } else { [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)].into() }
}

/// Generates pods with limits from a few policies and peer lists.
fn decision() -> impl Strategy<Value = Decision> {
    let allow = (0..3_usize, any::<bool>(), prop::option::of(0..3_u16));
    let side = prop::option::of(prop::collection::vec(allow, 0..3));
    let pods = prop::collection::btree_map(any::<u8>().prop_map(ip), (side.clone(), side), 0..6);
    let members = prop::collection::vec(prop::collection::btree_set(any::<u8>(), 0..4), 6);
    (pods, members).prop_map(|(pods, members)| {
        let mut decision = Decision::default();
        let id = |direction, rule| PeersId { policy: apimachinery::Key::new("x", "p"), direction, rule, at: None };
        for (ip_of_pod, (ingress, egress)) in pods {
            let mut side = |direction, allows: Option<Vec<(usize, bool, Option<u16>)>>| {
                let one = |(rule, everyone, port): (usize, bool, Option<u16>)| {
                    let list = id(direction, rule);
                    let peers = (!everyone).then(|| {
                        let at = rule + if direction == Direction::Egress { 3 } else { 0 };
                        let ranges = members[at].iter().map(|last| (ip(*last), ip(*last))).collect();
                        decision.peers.insert(list.clone(), ranges);
                        list.clone()
                    });
                    let tcp = |port| Ports { protocol: netlink::Protocol::Tcp, first: port, last: port };
                    Allow { peers, ports: port.map(|port| vec![tcp(port)]) }
                };
                Some(allows?.into_iter().map(one).collect::<Vec<_>>())
            };
            let limits = Limits { ingress: side(Direction::Ingress, ingress), egress: side(Direction::Egress, egress) };
            decision.pods.insert(ip_of_pod, limits);
        }
        decision
    })
}

proptest! {
    #[test]
    fn successive_changes_lead_to_the_decided_state(decisions in prop::collection::vec(decision(), 1..6)) {
        let mut numbers = Numbers::default();
        let mut kernel = State::default();
        for decision in decisions {
            let desired = numbers.state_of(&decision);
            let change = kernel.change_to(&desired);
            apply(&mut kernel, &change);
            prop_assert_eq!(&kernel, &desired);
            prop_assert_eq!(format_state(&kernel), format_state(&Numbers::default().state_of(&decision)), "like a state without rules");
            prop_assert!(kernel.change_to(&numbers.state_of(&decision)).is_empty(), "applying the same state changes nothing");
        }
    }
}

#[test]
fn new_pod_adds_elements_to_matching_peer_lists() {
    let id = PeersId { policy: apimachinery::Key::new("x", "p"), direction: Direction::Ingress, rule: 0, at: None };
    let decision = |members: &[u8]| {
        let allow = Allow { peers: Some(id.clone()), ports: None };
        let limits = Limits { ingress: Some(vec![allow]), egress: None };
        Decision {
            peers: [(id.clone(), members.iter().map(|last| (ip(*last), ip(*last))).collect())].into(),
            pods: [(ip(1), limits.clone()), (ip(2), limits)].into(),
            ..Decision::default()
        }
    };
    let mut numbers = Numbers::default();
    let before = numbers.state_of(&decision(&[5, 7]));
    let after = numbers.state_of(&decision(&[5, 9]));
    let change = before.change_to(&after);
    let peers = Difference { removed: vec![(0, (ip(7), ip(7)))], new: vec![(0, (ip(9), ip(9)))] };
    assert_eq!(change, Change { peers, ..Change::default() });
}
