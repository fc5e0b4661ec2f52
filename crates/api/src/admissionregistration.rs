//! The kinds of admissionregistration.k8s.io.

mod binding;
pub mod client_config;
mod expressions;
mod match_conditions;
mod match_resources;
pub mod mutating_admission_policy;
pub mod mutating_admission_policy_binding;
pub mod mutating_webhook_configuration;
mod policy;
pub mod validating_admission_policy;
pub mod validating_admission_policy_binding;
pub mod validating_webhook_configuration;
mod webhooks;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[
    mutating_admission_policy::kind,
    mutating_admission_policy_binding::kind,
    mutating_webhook_configuration::kind,
    validating_admission_policy::kind,
    validating_admission_policy_binding::kind,
    validating_webhook_configuration::kind,
];
