//! Images on disk: pulled, imported, verified, unpacked into layers, and collected when nobody uses them.
//!
//! ```text
//! registry, archive, layout, directory ──> blobs (by digest) ──> layers (by diff id, overlay form) ──> lower directories
//!                                              │
//!                                              └──> index (names -> image), one small durable file
//! ```
//!
//! Nothing enters the store without its digest having been computed here; nothing of an archive is written outside the
//! directory it is unpacked into; nothing is deleted while the index or a caller refers to it.

mod archive;
mod blobs;
mod build;
mod builtin;
#[doc(hidden)]
pub mod canary;
mod digest;
mod durable;
mod export;
mod import;
mod index;
mod layers;
mod manifest;
mod name;
mod pull;
mod store;
mod unpack;

pub use blobs::BlobError;
pub use build::{BuildError, Recipe};
pub use builtin::{BUILTIN, Builtin};
pub use digest::{Digest, DigestError};
pub use export::ExportError;
pub use import::ImportError;
pub use index::{Image, IndexError};
pub use layers::LayerError;
pub use manifest::{Config, Descriptor, ImageConfig, Manifest, ManifestError, Platform};
pub use name::{Name, NameError};
pub use pull::{Credentials, Host, PullError, Registries, Step, Tell};
pub use store::{Store, StoreError, Usage};
pub use unpack::UnpackError;
