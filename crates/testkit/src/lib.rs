//! In-process test clusters: a store, an API server on its own port, and controllers.

mod cluster;
mod manager;

pub use cluster::Cluster;
pub use manager::{Binder, control, manage, manage_with};
