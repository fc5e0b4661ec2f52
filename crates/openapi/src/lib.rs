//! What the server says it serves: discovery and OpenAPI, made from the table of kinds.
//!
//! A built-in kind and one that a CustomResourceDefinition makes are the same row here. No document is made before it
//! is asked for; [`Packed`] keeps one the way clients like to get it.

pub mod discovery;
pub mod merged;
mod operations;
mod packed;
mod schemas;
mod table;
pub mod v2;
pub mod v3;

pub use packed::{Packed, etag};
pub use table::Table;
