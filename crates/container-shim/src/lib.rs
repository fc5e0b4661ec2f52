//! Containers: OCI bundle, shim, cgroup and log.
//!
//! ```text
//! container runtime ──unix socket──> shim (one per sandbox, one thread, outlives the container runtime)
//!                                      ├── pause: holds the sandbox's namespaces
//!                                      ├── worker (forked per start or exec): the OCI runtime library, or runc by path
//!                                      └── containers: their output goes through the shim into the log
//! ```
//!
//! The OCI runtime library forks and must not run in a multi-threaded process, so only the shim's workers call it. The
//! shim reaps all processes of its sandbox, writes each exit to a file before reporting it, and serves the current
//! state. A restarted container runtime queries the shim, or reads the file if the shim has exited.
//!
//! # Invariants
//!
//! - An exit is on disk before it is reported. *Enforced by* `restarted_runtime_finds_its_containers_and_missed_exits`.
//! - A container can use only its own devices, on cgroup v1 and v2, and does not start without a device filter.
//!   *Enforced by* `container_can_use_only_its_own_devices`, `container_without_device_filter_does_not_start`.

mod client;
mod connection;
mod devices;
mod exec_namespaces;
mod executor;
mod log;
mod namespace;
pub mod private;
mod program;
pub mod protocol;
mod seccomp;
mod shim;
mod stdio;

pub use client::{AttachedIo, Client, ClientError, Events, ExecHandle, ExecIo, Running, spawn};
pub use program::Program;
pub use seccomp::{SeccompError, default_profile};
pub use shim::{ShimError, run};
