//! kube-proxy: computes packet forwarding for services as data and applies each change in one transaction.
//!
//! ```text
//! services, slices ──> model ──> choose (which endpoints) ──> rules (frontends and backends) ──> engine: nftables, iptables, userspace
//! ```
//!
//! [`rules::Rules`] is a pure function of the observed objects; only the differences are sent to the kernel.

pub mod announce;
pub mod choose;
pub mod config;
pub mod engine;
pub mod follow;
pub mod health;
pub mod iptables;
pub mod mesh;
pub mod metrics;
pub mod model;
pub mod nftables;
pub mod policy;
pub mod rules;
pub mod userspace;

pub use model::{Node, Service};
pub use rules::{Changes, Rules};
