//! The pod network: addresses, packet rules and CNI.
//!
//! [`network::Network`] is the interface for container runtimes. [`routed::RoutedNetwork`] is the built-in network,
//! [`cni::Cni`] calls CNI plugins, and [`select::Auto`] selects between both. All of them use [`netlink`] in the
//! network namespace of the calling thread.
//!
//! # Invariants
//!
//! - No address has two owners, and a lease is on disk before its address is used. A removed pod or network leaves no
//!   traces. *Enforced by* `no_address_has_two_owners`, `addresses_survive_a_restart_and_are_released`,
//!   `pods_reach_each_other_the_node_and_outside_and_leave_no_traces`.
//! - A pod is detached by the network that attached it, even if another network is configured meanwhile. *Enforced by*
//!   `configuration_selects_the_network_of_new_pods_and_old_pods_keep_theirs_until_detached`.

pub mod cni;
pub mod ipam;
pub mod mesh;
pub mod network;
pub mod plugin;
pub mod pod_rules;
mod port_mapping;
pub mod routed;
pub mod select;

pub use cni::Cni;
pub use network::{Attachment, Loopback, Network, NetworkError, NetworkFuture};
pub use port_mapping::PortMapping;
pub use routed::RoutedNetwork;
pub use select::Auto;
