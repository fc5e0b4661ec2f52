//! The Kubernetes controllers, one module each: pure decision functions without I/O.
//!
//! A module holds one [`controller::Controller`]. Modules without one hold helpers shared by several controllers.
//!
//! # Invariants
//!
//! - Every controller of the table has the properties of `controller::testing` in clusters with objects of every kind.
//!   *Enforced by* `properties_of_every_controller_hold_in_mixed_clusters`,
//!   `every_upstream_controller_is_implemented_or_listed_as_absent`.
//! - `affected_keys` misses no relevant change: a controller converges if it processes only the keys that this function
//!   adds. *Enforced by* `properties_of_every_controller_hold_in_mixed_clusters`.
//! - Every controller has an upstream name. *Enforced by* `row_names_are_upstream_names_and_unique`.
//! - A pod of a Job is counted exactly once, even if the controller is killed at any time. *Enforced by*
//!   `jobs_complete_fail_and_are_counted_once`, `properties_hold_in_generated_clusters`.
//! - Revisions of a StatefulSet have upstream's names, so that either controller manager can continue the other's work.
//!   *Enforced by* `controller_revision_hash_equals_upstreams`.
//! - The garbage collector deletes no object that has an owner, and an owner of a kind that is not served does not
//!   count as absent. *Enforced by* `any_ownership_forest_loses_exactly_its_unowned_objects`,
//!   `dependents_of_an_unserved_kind_are_not_deleted`.
//! - EndpointSlices contain every endpoint once and stay within the size limit. No PersistentVolume has two claims. Pod
//!   CIDRs of nodes do not overlap. *Enforced by* `slices_hold_every_endpoint_once_within_the_limit`,
//!   `no_volume_has_two_claims_and_matching_claims_are_bound`, `no_two_node_cidrs_overlap`.
//! - Warnings about the expressions of a ValidatingAdmissionPolicy are reported in its status and have no other effect.
//!   *Enforced by* `type_checking_warnings_and_observed_generation_are_reported`.
//! - A certificate is signed only if the signer's rules allow it, with proof of possession of the key, and not beyond
//!   the lifetime of the CA. A rejection is reported in a condition. *Enforced by* `signer_rules_are_applied`,
//!   `requests_that_break_signer_rules_fail_with_the_reason`, `forged_and_invalid_requests_are_rejected`.
//! - The certificate of a node component names its node and is approved only for that node. *Enforced by*
//!   `component_csr_is_approved_only_for_its_own_node`, `bootstrap_token_gets_no_component_certificate`,
//!   `node_components_have_a_per_node_identity`.
//! - No object outlives its namespace, even of a kind whose CRD has just been created. *Enforced by*
//!   `namespace_deletion_removes_all_content_including_custom_resources`.
//! - No Service gets a node port that the nodes themselves use. *Enforced by* `reserved_node_ports_are_not_assigned`.

pub mod adoption;
pub mod attach_detach;
pub mod bootstrap_signer;
pub mod clusterrole_aggregation;
pub mod condition;
pub mod cronjob;
pub mod csr;
pub mod csr_approver;
pub mod csr_cleaner;
pub mod csr_signer;
pub mod daemonset;
pub mod deployment;
pub mod device_taint_eviction;
pub mod disruption;
mod endpoint_slices;
pub mod endpoints;
pub mod endpointslice;
pub mod endpointslice_mirroring;
pub mod ephemeral_volume;
mod finalizer;
pub mod garbage_collector;
pub mod horizontal_pod_autoscaler;
pub mod int_or_percent;
pub mod job;
pub mod legacy_token_cleaner;
pub mod local_path;
pub mod names;
pub mod namespace;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod node_ttl;
pub mod pod;
pub mod podgc;
pub mod pv_binder;
pub mod pv_expander;
pub mod pv_protection;
pub mod pvc_protection;
pub mod registry;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resource_claim;
pub mod resourcequota;
pub mod revision;
pub mod root_ca;
mod scale_target;
mod service;
pub mod service_cidr;
pub mod service_lb;
pub mod serviceaccount;
pub mod serviceaccount_token;
pub mod statefulset;
pub mod storage_version_migrator;
pub mod taint_eviction;
pub mod token_cleaner;
pub mod trust_bundle;
pub mod ttl_after_finished;
pub mod vac_protection;
pub mod validating_admission_policy_status;
