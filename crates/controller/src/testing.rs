//! Test support: a model of the API server, and the properties that every controller must have.

mod laws;
mod world;

pub use laws::{check_properties, settle};
pub use world::{FakeCluster, Refused, kubelet};
