//! Test support: a model of the API server, and the properties that every controller must have.

mod laws;
mod world;

pub use laws::{obeys_laws, settle};
pub use world::{Refused, World, kubelet};
