//! Routes to the pods of other nodes: plain routes between nodes on one segment, otherwise a VXLAN tunnel.
//!
//! All parameters are derived from the other node's addresses and pod CIDRs: the MAC address of a tunnel end is derived
//! from the first pod CIDR. Nodes therefore agree without exchanging messages.

use std::net::IpAddr;

use netlink::Error;
use netlink::cidr::Cidr;
use netlink::link::{Address, Hop, Links, Neighbour, Route, Routes, hardware_of};

pub const TUNNEL: &str = "knarr-vxlan";
/// Bytes that a tunnel adds to a packet: VXLAN, UDP, IPv6 (larger than IPv4) and Ethernet headers.
pub const OVERHEAD: u32 = 8 + 8 + 40 + 14;
/// VXLAN network identifier, the same on all nodes.
const TUNNEL_ID: u32 = 1;
/// Default VXLAN port of the Linux kernel, which is older than the standard port 4789. Most cluster firewalls allow it.
pub(crate) const TUNNEL_PORT: u16 = 8472;

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Addresses, preferred first.
    pub addresses: Vec<IpAddr>,
    pub pod_cidrs: Vec<Cidr>,
}

/// The path to a pod CIDR.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MeshRoute {
    pub to: Cidr,
    pub way: Forwarding,
}

/// Path to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forwarding {
    /// The node is on a directly connected segment.
    Direct {
        index: u32,
        /// Address of the node on that segment.
        neighbour: IpAddr,
    },
    /// The node is behind routers.
    Tunnel {
        node: IpAddr,
        /// MAC address of the remote tunnel end.
        hardware: [u8; 6],
    },
}

/// Computes the paths to the pods of other nodes, given the addresses of this node.
pub fn plan(own: &[Address], peers: &[Peer]) -> Vec<MeshRoute> {
    let mut reaches = Vec::new();
    for peer in peers {
        for to in &peer.pod_cidrs {
            let same_family = peer.addresses.iter().filter(|ip| ip.is_ipv4() == to.is_ipv4());
            let mut direct = same_family.filter_map(|ip| {
                let on_link = own.iter().find(|own| shares_segment(own, *ip))?;
                Some(Forwarding::Direct { index: on_link.index, neighbour: *ip })
            });
            let tunnel = || {
                let hardware = hardware_of(peer.pod_cidrs.first()?.base());
                Some(Forwarding::Tunnel { node: *peer.addresses.first()?, hardware })
            };
            // A node without addresses is not reachable yet.
            if let Some(way) = direct.next().or_else(tunnel) {
                reaches.push(MeshRoute { to: *to, way });
            }
        }
    }
    reaches.sort();
    reaches
}

/// Replaces the kernel's routes to the pods of other nodes. `own` are the pod CIDRs of this node. `mtu` is the MTU of
/// the tunnel; `None` uses the uplink's MTU minus the overhead.
pub fn apply(reaches: &[MeshRoute], own: &[Cidr], mtu: Option<u32>) -> Result<(), Error> {
    let mut links = Links::open()?;
    let mtu = match mtu {
        Some(mtu) => mtu,
        None => links.outward_mtu()?.saturating_sub(OVERHEAD),
    };
    let tunnels = reaches.iter().any(|reach| matches!(reach.way, Forwarding::Tunnel { .. }));
    let tunnel = match own.first() {
        Some(first) if tunnels => Some(tunnel(&mut links, first.base(), own, mtu)?),
        _ => None,
    };
    let mut desired = Vec::new();
    for reach in reaches {
        let hop = match (reach.way, tunnel) {
            (Forwarding::Direct { index, neighbour }, _) => Hop::Via { index, neighbour },
            (Forwarding::Tunnel { node, hardware }, Some(index)) => {
                // The first address of a block is never allocated, so it can represent the remote tunnel end.
                let ip = reach.to.base();
                links.add_neighbour(index, &Neighbour::Address { ip, hardware })?;
                links.add_neighbour(index, &Neighbour::Tunnel { ip: node, hardware })?;
                Hop::Via { index, neighbour: ip }
            }
            (Forwarding::Tunnel { .. }, None) => continue,
        };
        desired.push(Route { to: reach.to, hop });
    }
    for route in &desired {
        links.add_route(route)?;
    }
    for old in links.routes(Routes::Managed)? {
        // Excludes the default route, which exists if the node itself runs in a namespace.
        let is_to_pods = matches!(old.hop, Hop::Via { .. }) && old.to.prefix() > 0;
        if is_to_pods && !desired.contains(&old) {
            links.delete_route(&old)?;
        }
    }
    if tunnel.is_none() {
        links.delete(TUNNEL)?;
    }
    Ok(())
}

/// Creates the tunnel end of this node with the node's own address in the tunnel; returns the index of the link.
fn tunnel(links: &mut Links, first: IpAddr, own: &[Cidr], mtu: u32) -> Result<u32, Error> {
    let link = links.ensure_vxlan(TUNNEL, TUNNEL_ID, TUNNEL_PORT, mtu, hardware_of(first))?;
    for block in own {
        let prefix = if block.is_ipv4() { 32 } else { 128 };
        links.add_address(&Address { index: link.index, ip: block.base(), prefix })?;
    }
    Ok(link.index)
}

/// Whether an address is on the segment of this own address. A host address has no segment.
fn shares_segment(own: &Address, ip: IpAddr) -> bool {
    let alone = if ip.is_ipv4() { 32 } else { 128 };
    own.prefix < alone && own.ip != ip && Cidr::around(own.ip, own.prefix).contains(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(addresses: &[&str], pods: &str) -> Peer {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Peer { addresses, pod_cidrs: Cidr::parse_list(pods).unwrap() }
    }

    fn own(ip: &str, prefix: u8) -> Address {
        Address { index: 7, ip: ip.parse().unwrap(), prefix }
    }

    fn format_plan(own: &[Address], peer: &Peer) -> Vec<String> {
        let reaches = plan(own, std::slice::from_ref(peer));
        let line = |reach: &MeshRoute| match reach.way {
            Forwarding::Direct { neighbour, .. } => format!("{} via {neighbour}", reach.to),
            Forwarding::Tunnel { node, .. } => format!("{} through {node}", reach.to),
        };
        reaches.iter().map(line).collect()
    }

    #[test]
    fn nodes_on_one_segment_are_routed_and_others_tunneled() {
        let here = [own("192.0.2.1", 24), own("2001:db8::1", 64), own("10.9.9.9", 32)];
        let near = peer(&["192.0.2.2", "2001:db8::2"], "10.244.2.0/24,fd00:2::/64");
        assert_eq!(format_plan(&here, &near), ["10.244.2.0/24 via 192.0.2.2", "fd00:2::/64 via 2001:db8::2"]);
        let far = peer(&["198.51.100.2"], "10.244.3.0/24,fd00:3::/64");
        assert_eq!(
            format_plan(&here, &far),
            ["10.244.3.0/24 through 198.51.100.2", "fd00:3::/64 through 198.51.100.2"]
        );
        let half = peer(&["192.0.2.3"], "10.244.4.0/24,fd00:4::/64");
        assert_eq!(format_plan(&here, &half), ["10.244.4.0/24 via 192.0.2.3", "fd00:4::/64 through 192.0.2.3"]);
        assert!(format_plan(&here, &peer(&[], "10.244.5.0/24")).is_empty(), "it has no address yet");
        assert!(format_plan(&here, &peer(&["192.0.2.9"], "")).is_empty(), "it has no pods yet");
    }
}
