//! The pod network: links, routes, addresses, packet rules and CNI.
//!
//! [`network::Network`] is what a runtime asks for; [`routed::Routed`] is the built-in network, [`cni::Cni`] the one by
//! plug-ins, and [`auto::Auto`] the one of the two that a node has. All of it speaks to the kernel over [`netlink`], in whatever network namespace the calling thread is.

pub mod announce;
pub mod auto;
pub mod cidr;
pub mod cni;
pub mod conntrack;
pub mod leases;
pub mod link;
pub mod mesh;
pub mod namespace;
pub mod netlink;
pub mod network;
pub mod nft;
pub mod plugin;
pub mod routed;
pub mod shape;
pub mod table;

pub use auto::Auto;
pub use cidr::Cidr;
pub use cni::Cni;
pub use network::{Attachment, Loopback, Network, NetworkError, NetworkFuture, PortMapping, Protocol};
pub use routed::Routed;
