//! Operator tools: diagnosis of a host and cluster, and causal traces of objects.
//!
//! [`checkup`] evaluates observations of a host and its cluster. [`chain`] orders the information in objects, events
//! and records of nodes by time. [`static_pods`] builds the manifests of a control plane in static pods. The `knarr`
//! binary does all I/O.
//!
//! # Invariants
//!
//! - Problems that prevent a start are reported with their remedy. Checks change nothing on the host. *Enforced by*
//!   `host_problems_are_detected_with_their_severity`, `disk_check_leaves_no_files`,
//!   `doctor_finds_the_cluster_well`.
//! - A trace is ordered so that causes precede their effects, whatever the resolution of the timestamps. *Enforced by*
//!   `deployment_trace_runs_from_create_to_installed_rules`, `deployment_is_traced_from_creation_to_rules`.

pub mod chain;
pub mod checkup;
pub mod static_pods;
