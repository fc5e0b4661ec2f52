//! The kinds of internal.apiserver.k8s.io.

pub mod storage_version;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[storage_version::kind];
