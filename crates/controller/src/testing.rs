//! Test support: a model of the API server, and the properties that every controller must have.

mod properties;
mod world;

pub use properties::{check_properties, run_until_stable};
pub use world::{FakeCluster, WriteError, kubelet};
