//! API kinds of the events.k8s.io group.

pub mod event;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[event::kind];
