//! The built-in kinds of Kubernetes: the catalogue of their types, and what is particular to each.

pub mod catalogue;
pub mod codec;
pub mod config;
