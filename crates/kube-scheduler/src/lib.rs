//! The scheduler's runtime: feeds the engine from watches and executes its steps as API requests.
//!
//! This crate makes no decisions. One task owns the [`scheduler::Engine`]; caches notify it of changed objects.
//! Requests run concurrently up to a limit; while all slots are busy, no further pod is scheduled.

mod devices;
pub mod events;
mod execute;
pub mod extenders;
pub mod metrics;
mod run;
mod volumes;

pub use extenders::Extenders;
pub use metrics::Metrics;
pub use run::{Config, Runner};
