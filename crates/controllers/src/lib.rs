//! The control loops of Kubernetes, one module each: what to do about an object, decided and nothing else.
//!
//! A module holds one [`reconcile::Controller`]. Modules without one hold what several controllers have in common.

pub mod claim;
pub mod clusterrole_aggregation;
pub mod condition;
pub mod cronjob;
pub mod csr_cleaner;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod endpoints;
pub mod endpointslice;
pub mod endpointslice_mirroring;
pub mod ephemeral_volume;
mod finalizer;
pub mod garbage;
pub mod horizontal_pod_autoscaler;
pub mod job;
pub mod names;
pub mod namespace;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod placement;
pub mod pod;
pub mod podgc;
pub mod pv_binder;
pub mod pv_protection;
pub mod pvc_protection;
mod read;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resourcequota;
pub mod revision;
pub mod root_ca;
mod service;
pub mod service_cidr;
pub mod serviceaccount;
pub mod serviceaccount_token;
pub mod share;
mod slices;
pub mod statefulset;
pub mod table;
pub mod taint_eviction;
pub mod token_cleaner;
pub mod ttl_after_finished;
pub mod vac_protection;
pub mod validating_admission_policy_status;
