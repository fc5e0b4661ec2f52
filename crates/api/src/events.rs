//! The kinds of events.k8s.io.

pub mod event;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[event::kind];
