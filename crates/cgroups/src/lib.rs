//! Cgroups: v1 and v2 through their filesystems, and slices and scopes through systemd.

mod cgroup;
mod controllers;
pub mod systemd;

pub use cgroup::{Cgroup, Pressure, Stall, Usage};
pub use controllers::{Controller, Controllers};
