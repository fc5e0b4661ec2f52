//! The control loops of Kubernetes, one module each: what to do about an object, decided and nothing else.
//!
//! A module holds one [`reconcile::Controller`]. Modules without one hold what several controllers have in common.

pub mod claim;
pub mod condition;
pub mod deployment;
pub mod garbage;
pub mod namespace;
pub mod pod;
pub mod replicaset;
pub mod revision;
pub mod share;
pub mod statefulset;
pub mod table;
