//! Cgroups: v1 and v2 through their filesystems, and slices and scopes through systemd.

mod cgroup;
pub mod systemd;

pub use cgroup::{Cgroup, Pressure, Stall, Usage};
