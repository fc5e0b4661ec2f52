//! API kinds of the admissionregistration.k8s.io group.

mod binding;
pub mod client_config;
mod expressions;
mod match_conditions;
mod match_resources;
pub mod mutating_admission_policy;
pub mod mutating_admission_policy_binding;
pub mod mutating_webhook_configuration;
mod policy;
pub mod type_check;
pub mod validating_admission_policy;
pub mod validating_admission_policy_binding;
pub mod validating_webhook_configuration;
mod webhooks;

use apimachinery::GroupVersion;

use crate::kind::{Kind, Persistence};

pub const KINDS: &[fn() -> Kind] = &[
    mutating_admission_policy::kind,
    mutating_admission_policy_binding::kind,
    mutating_webhook_configuration::kind,
    validating_admission_policy::kind,
    validating_admission_policy_binding::kind,
    validating_webhook_configuration::kind,
];

/// Stores a kind as v1beta1: after a rollback, the previous release may not be able to read v1.
fn stored_as_beta(prefix: &str) -> Persistence {
    let version = GroupVersion { group: "admissionregistration.k8s.io".into(), version: "v1beta1".into() };
    Persistence::Stored { prefix: prefix.into(), version, expires: false }
}
