//! Image store: images are pulled or imported, verified, unpacked into layers, and garbage collected when unused.
//!
//! ```text
//! registry, archive, layout, directory ──> blobs (by digest) ──> layers (by diff id, overlay form) ──> lower directories
//!                                              │
//!                                              └──> index (names -> image), one small durable file
//! ```
//!
//! All content is stored only after its digest was computed here. Unpacking an archive writes only inside its target
//! directory. Content is deleted only if neither the index nor a caller refers to it.

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
