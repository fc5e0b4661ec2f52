//! The kinds of networking.k8s.io.

pub mod ingress;
pub mod ingress_class;
pub mod ip_address;
pub mod network_policy;
pub mod service_cidr;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] =
    &[ingress::kind, ingress_class::kind, ip_address::kind, network_policy::kind, service_cidr::kind];
