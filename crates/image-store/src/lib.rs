//! Image store: images are pulled or imported, verified, unpacked into layers, and garbage collected when unused.
//!
//! ```text
//! registry, archive, layout, directory ──> blobs (by digest) ──> layers (by diff ID, overlay form) ──> lowerdirs
//!                                              │
//!                                              └──> index (names -> image), one small durable file
//! ```
//!
//! All content is stored only after its digest was computed here. Unpacking an archive writes only inside its target
//! directory. Content is deleted only if neither the index nor a caller refers to it.
//!
//! # Invariants
//!
//! - Unpacking writes nothing outside the layer, and content with a wrong digest is not stored. *Enforced by*
//!   `paths_that_leave_the_root_are_rejected`, `content_with_wrong_digest_is_not_stored`.
//! - A hostile image is rejected with a message, writes nothing outside its directory, and cannot fill the disk.
//!   *Enforced by* `hostile_image_is_rejected_with_a_message_and_writes_nothing`, `decompression_bomb_is_rejected`,
//!   `layer_size_is_limited_by_ratio_maximum_and_disk`.
//! - A built-in image runs without a registry and consists of hard links where the file system allows them. *Enforced
//!   by* `built_in_images_run_without_a_registry`, `built_in_image_links_its_files_and_is_rebuilt_after_changes`.
//! - Credentials, client certificates and further headers are sent only to the host that they belong to. *Enforced by*
//!   `credentials_go_to_the_host_that_they_belong_to`, `redirect_target_and_mirror_get_no_credentials`.
//! - A built image keeps modes, owners, hard links and capabilities. *Enforced by*
//!   `built_image_keeps_modes_owners_links_and_capabilities`.

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
mod registries;
mod registry;
mod store;
mod tar_header;
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
pub use pull::{PullError, PullProgress, Tell};
pub use registries::{
    ANY, Credentials, EndpointError, Host, HostSettings, Mirrors, PemError, Registries, Rewrite, Tls,
};
pub use registry::RegistryError;
pub use store::{Store, StoreError, Usage};
pub use unpack::UnpackError;
