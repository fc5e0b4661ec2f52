//! The kinds of batch.

pub mod cron_job;
pub mod job;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[cron_job::kind, job::kind];
