//! Built-in Kubernetes kinds: the schema catalogue, and kind-specific defaulting and validation.
//!
//! # Invariants
//!
//! - Names of kinds are unique. Defaulting is idempotent, and validating an empty object does not panic. *Enforced by*
//!   `names_are_unique`, `empty_objects_are_defaulted_and_validated_without_panic`.
//! - A malformed CRD does not panic and is rejected with an error message. *Enforced by* `malformed_crds_do_not_panic`,
//!   `hostile_crds_are_rejected_with_a_message`.
//! - kubectl explains every kind and prints the columns of its row. *Enforced by*
//!   `kubectl_explains_and_prints_every_kind`.

pub mod admissionregistration;
pub mod amounts;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod authentication;
pub mod authorization;
pub mod autoscaling;
pub mod batch;
pub mod catalogue;
pub mod certificates;
pub mod codec;
pub mod config;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod events;
pub mod field_rules;
pub mod flowcontrol;
pub mod formats;
pub mod go_form;
pub mod internal_apiserver;
pub mod kind;
pub mod kinds;
pub mod networking;
pub mod node;
pub mod policy;
pub mod quota;
pub mod rbac;
pub mod resource;
pub mod resources;
pub mod scheduling;
pub mod status;
pub mod storage;
pub mod storagemigration;
#[cfg(test)]
mod validation;
pub mod version_priority;
pub mod view;
pub mod workload;

pub use kind::Kind;
