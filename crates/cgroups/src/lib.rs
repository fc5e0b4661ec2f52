//! Control groups: cgroup v1 and v2 by file, and slices and scopes by systemd.

mod cgroup;
pub mod systemd;

pub use cgroup::{Cgroup, Pressure, Stall, Usage};
