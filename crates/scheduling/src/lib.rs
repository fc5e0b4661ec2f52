//! The scheduler's shell: feeds the engine from watches, and turns its steps into requests.
//!
//! Nothing is decided here. One task owns the [`scheduler::Engine`]; caches tell it which objects changed, and requests
//! run beside it, at most so many at once: while all are busy no further decision is made.

mod devices;
pub mod events;
mod execute;
pub mod extenders;
pub mod metrics;
mod shell;
mod volumes;

pub use extenders::Extenders;
pub use metrics::Metrics;
pub use shell::{Config, Shell};
