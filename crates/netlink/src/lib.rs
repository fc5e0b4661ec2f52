//! Kernel networking over netlink: links, routes, addresses, nf_tables, conntrack and network namespaces.
//!
//! Mechanism only: which links and rules exist is decided by the crates that use it. All of it acts in the network
//! namespace of the calling thread.

pub mod announce;
pub mod bandwidth;
pub mod cidr;
pub mod conntrack;
pub mod link;
pub mod namespace;
pub mod nft;
mod protocol;
pub mod socket;

pub use cidr::Cidr;
pub use protocol::Protocol;
pub use socket::Error;
