//! Settings of the packet rules.

use std::net::IpAddr;

use netlink::Cidr;

/// Settings of the packet rules that do not depend on services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Pod CIDRs; empty if unknown.
    pub pods: Vec<Cidr>,
    /// Node addresses that serve NodePorts.
    pub node_addresses: Vec<IpAddr>,
    /// Whether all current and future node addresses serve NodePorts; iptables only.
    pub every_address: bool,
    /// Whether loopback addresses serve NodePorts.
    pub localhost: bool,
    /// Mask of the packet mark bit that requests masquerading.
    pub mark: u32,
}
