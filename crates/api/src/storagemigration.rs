//! The kinds of storagemigration.k8s.io.

pub mod storage_version_migration;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[storage_version_migration::kind];
