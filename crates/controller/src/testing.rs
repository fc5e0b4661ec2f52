//! Test support: a model of the API server, and the properties that every controller must have.

mod fake_cluster;
mod properties;

pub use fake_cluster::{FakeCluster, WriteError, kubelet};
pub use properties::{check_properties, check_properties_with, run_until_stable, run_until_stable_with};
