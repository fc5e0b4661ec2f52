//! A cluster in a process: a store, an API server and controllers, each cluster its own, on a port of its own.

mod cluster;
mod manager;

pub use cluster::Cluster;
pub use manager::{Binder, control, manage, manage_with};
