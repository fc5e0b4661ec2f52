//! The kinds of certificates.k8s.io.

pub mod certificate_signing_request;
pub mod cluster_trust_bundle;
pub mod pod_certificate_request;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] =
    &[certificate_signing_request::kind, cluster_trust_bundle::kind, pod_certificate_request::kind];
