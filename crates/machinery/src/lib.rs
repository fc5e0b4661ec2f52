//! The laws every Kubernetes object obeys: pure, synchronous, over one JSON tree.
//!
//! Nothing here knows a kind. [`Value`] is the tree, [`schema`] says what a tree must look like, and the other modules are
//! the operations that every object goes through on its way from a client to the store and back.

pub mod json;
pub mod patch;
pub mod path;
pub mod schema;
pub mod value;

pub use path::Path;
pub use schema::Schema;
pub use value::{Object, Str, Value};
