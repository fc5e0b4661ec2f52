//! A container and its life: the bundle, the shim that keeps it, its cgroup and its log.
//!
//! ```text
//! daemon ──unix socket──> shim (one per sandbox, one thread, outlives the daemon)
//!                           ├── pause: holds the sandbox's namespaces
//!                           ├── worker (forked per start or exec): the OCI runtime library, or runc by path
//!                           └── containers: their output goes through the shim into the log
//! ```
//!
//! The OCI runtime library forks and must not run where other threads are, so only the shim's workers call it. The shim reaps
//! everything of its sandbox, writes each exit to a file before it tells anybody, and answers questions about what runs; a
//! daemon that comes back asks it, or reads the file where the shim is gone.

pub mod cgroup;
mod client;
mod devices;
mod entering;
mod executor;
mod log;
mod namespace;
pub mod private;
mod program;
pub mod protocol;
mod seccomp;
mod shim;
pub mod systemd;

pub use client::{AttachedIo, Client, ClientError, Events, ExecHandle, ExecIo, Running, spawn};
pub use program::Program;
pub use seccomp::{SeccompError, default_profile};
pub use shim::{ShimError, run};
