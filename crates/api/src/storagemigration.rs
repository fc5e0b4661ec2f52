//! API kinds of the storagemigration.k8s.io group.

pub mod storage_version_migration;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[storage_version_migration::kind];
