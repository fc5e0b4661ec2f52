//! The control loops of Kubernetes, one module each: what to do about an object, decided and nothing else.
//!
//! A module holds one [`reconcile::Controller`]. Modules without one hold what several controllers have in common.

pub mod claim;
pub mod clusterrole_aggregation;
pub mod condition;
pub mod daemonset;
pub mod deployment;
pub mod endpoints;
pub mod endpointslice;
pub mod endpointslice_mirroring;
pub mod garbage;
pub mod names;
pub mod namespace;
pub mod placement;
pub mod pod;
mod read;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resourcequota;
pub mod revision;
pub mod root_ca;
mod service;
pub mod serviceaccount;
pub mod share;
mod slices;
pub mod statefulset;
pub mod table;
