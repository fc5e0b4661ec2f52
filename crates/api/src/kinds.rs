//! Table of all built-in kinds.

use std::sync::Arc;

use crate::kind::Kind;

/// Groups in discovery order.
const GROUPS: &[&[fn() -> Kind]] = &[
    crate::core::KINDS,
    crate::apiregistration::KINDS,
    crate::apps::KINDS,
    crate::events::KINDS,
    crate::authentication::KINDS,
    crate::authorization::KINDS,
    crate::autoscaling::KINDS,
    crate::batch::KINDS,
    crate::certificates::KINDS,
    crate::networking::KINDS,
    crate::policy::KINDS,
    crate::rbac::KINDS,
    crate::storage::KINDS,
    crate::admissionregistration::KINDS,
    crate::apiextensions::KINDS,
    crate::scheduling::KINDS,
    crate::coordination::KINDS,
    crate::node::KINDS,
    crate::discovery::KINDS,
    crate::resource::KINDS,
    crate::flowcontrol::KINDS,
    crate::internal_apiserver::KINDS,
    crate::storagemigration::KINDS,
];

pub fn all() -> Vec<Arc<Kind>> {
    GROUPS.iter().flat_map(|group| group.iter()).map(|kind| Arc::new(kind())).collect()
}

#[cfg(test)]
mod tests;
