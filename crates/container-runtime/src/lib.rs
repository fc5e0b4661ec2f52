//! The built-in container runtime: the CRI services for images, sandboxes and containers.
//!
//! ```text
//! CRI request ──> service ──> sandboxes, containers ──> shim (one per sandbox) ──> processes
//!                                │                         │
//!                                └── record (a file each)   └── exits, as events and as files
//! ```
//!
//! The shims own the processes. The runtime can be killed at any moment: it recovers from its records and from the
//! shims. Every operation is completed or undone, even if the requesting client disconnects.
//!
//! # Invariants
//!
//! - A mount propagates only as its own container's mount requests, independent of the other mounts of the container.
//!   *Enforced by* `later_mounts_are_visible_only_with_mount_propagation`.

mod archives;
mod blocking;
mod cdi;
mod cleanup;
mod containers;
mod cri_service;
mod error;
mod exec;
mod ids;
mod image_service;
mod metrics;
mod persisted;
pub mod registries;
mod rootfs;
mod sandboxes;
mod serve;
mod signal;
mod spec;
mod state;
mod stats;
mod streaming_server;
mod tickets;
mod ulimit;
mod user;
mod user_namespace;

pub use error::Error;
pub use serve::{ServeError, serve};
pub use state::{Config, Runtime};
pub use ulimit::{Ulimit, UlimitError};
