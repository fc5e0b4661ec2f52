//! API kinds of the internal.apiserver.k8s.io group.

pub mod storage_version;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[storage_version::kind];
