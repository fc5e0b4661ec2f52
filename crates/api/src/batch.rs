//! API kinds of the batch group.

pub mod cron_job;
pub mod job;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[cron_job::kind, job::kind];
