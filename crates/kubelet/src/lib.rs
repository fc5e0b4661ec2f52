//! The kubelet: runs the pods of a node through CRI.
//!
//! ```text
//!   API server ──watch──> pods ──> one worker per pod: observe ──> plan ──> execute ──> CRI
//!                                        ^                                   │
//!        status, once per change <───────┴──── events, timers, probes <──────┘
//! ```
//!
//! Decisions are pure functions: [`plan`] returns the next actions of a pod and [`status`] its status; the modules
//! around them build CRI messages. The workers that execute actions make no decisions.

pub mod admission;
pub mod backoff;
mod blocking;
pub mod bootstrap;
pub mod changes;
mod checkpoint;
pub mod config;
pub mod container;
pub mod context;
mod counters;
pub mod cpus;
pub mod devices;
pub mod dns;
mod drivers;
pub mod environment;
pub mod eviction;
mod groups;
mod hooks;
mod housekeeping;
mod images;
mod kernel;
mod kubelet;
pub mod logs;
pub mod memory;
pub mod node;
mod numa;
mod objects;
pub mod observed;
pub mod plan;
pub mod pod;
mod pod_resources;
mod pods;
mod probe;
pub mod resize;
pub mod resources;
mod runtime;
pub mod sandbox;
pub mod security;
mod server;
pub mod shutdown;
pub mod standalone;
mod static_pods;
pub mod status;
pub mod swap;
mod tell;
pub mod terminate;
pub mod topology;
mod usage;
mod users;
pub mod volumes;
mod web;
mod worker;

pub use config::Config;
pub use kubelet::{Kubelet, StartError};
pub use runtime::Runtime;
pub use server::{ServeError, TlsError};
