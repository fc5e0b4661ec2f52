//! Discovery and OpenAPI documents, generated from the kind table.
//!
//! Built-in kinds and custom resources are both rows of [`Table`]. Documents are generated on request;
//! [`CompressedDocument`] holds one in compressed form.

pub mod discovery;
pub mod merged;
mod operations;
mod packed;
mod schemas;
mod served_kinds;
pub mod v2;
pub mod v3;

pub use packed::{CompressedDocument, etag};
pub use served_kinds::Table;
