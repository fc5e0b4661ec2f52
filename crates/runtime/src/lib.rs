//! The CRI services over images and containers: a container runtime that knows no pods.
//!
//! ```text
//! CRI request ──> service ──> sandboxes, containers ──> shim (one per sandbox) ──> processes
//!                                │                         │
//!                                └── record (a file each)   └── exits, as events and as files
//! ```
//!
//! What runs belongs to the shims. The runtime can be killed at any moment: its records and the shims' answers are all it
//! needs to go on. Whatever it begins it finishes or undoes, even when the client that asked has gone.

mod blocking;
mod cdi;
mod containers;
mod error;
mod exec;
mod image_service;
mod metrics;
mod record;
mod rootfs;
mod runtime;
mod sandboxes;
mod serve;
mod service;
mod signal;
mod spec;
mod stats;
mod streaming;
mod ulimit;
mod user;
mod user_namespace;

pub use error::Error;
pub use runtime::{Config, Runtime};
pub use serve::{ServeError, serve};
pub use spdy;
pub use ulimit::{Ulimit, UlimitError};
