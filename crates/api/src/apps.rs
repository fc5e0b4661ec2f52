//! API kinds of the apps group.

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] =
    &[controller_revision::kind, daemon_set::kind, deployment::kind, replica_set::kind, stateful_set::kind];
