//! The pod network: links, routes, addresses, packet rules and CNI.
//!
//! [`network::Network`] is the interface for container runtimes. [`routed::Routed`] is the built-in network,
//! [`cni::Cni`] the one by CNI plugins, and [`auto::Auto`] selects between both. All of it uses [`netlink`] in the
//! network namespace of the calling thread.

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
