//! A small API server as a model, and the laws that every controller obeys in any world.

mod laws;
mod world;

pub use laws::{obeys_laws, settle};
pub use world::{Refused, World, kubelet};
