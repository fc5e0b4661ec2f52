//! API kinds of the core group.

pub mod access_modes;
pub mod binding;
pub mod component_status;
pub mod config_map;
pub mod endpoints;
pub mod event;
pub mod limit_range;
pub mod namespace;
pub mod node;
pub mod node_selector;
pub(crate) mod object_meta;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
mod pod_spec;
pub mod pod_template;
pub mod pod_template_spec;
pub mod replication_controller;
pub mod resource_names;
pub mod resource_quota;
pub mod secret;
pub mod service;
pub mod service_account;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[
    binding::kind,
    component_status::kind,
    config_map::kind,
    endpoints::kind,
    event::kind,
    limit_range::kind,
    namespace::kind,
    node::kind,
    persistent_volume::kind,
    persistent_volume_claim::kind,
    pod::kind,
    pod_template::kind,
    replication_controller::kind,
    resource_quota::kind,
    secret::kind,
    service::kind,
    service_account::kind,
];
