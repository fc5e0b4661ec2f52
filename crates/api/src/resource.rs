//! API kinds of the resource.k8s.io group (dynamic resource allocation).

mod allocation;
mod claim;
mod common;
mod conversion;
mod device;
pub mod device_class;
pub mod device_taint_rule;
mod request_policy;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_pool_status_request;
pub mod resource_slice;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[
    device_class::kind,
    device_taint_rule::kind,
    resource_claim::kind,
    resource_claim_template::kind,
    resource_pool_status_request::kind,
    resource_slice::kind,
];
