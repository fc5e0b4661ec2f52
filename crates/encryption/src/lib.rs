//! Encryption at rest: selects encryption providers and transforms stored values.
//!
//! A [`Configuration`] lists the providers of each resource. [`Transformers`] encrypt and decrypt the values of one
//! resource: the first provider encrypts, all decrypt. A value that another provider decrypted is stale, so that a
//! rewrite encrypts it again. The format is that of kube-apiserver, byte for byte, so that each can read the other's
//! values.
//!
//! This crate neither generates random bytes nor calls KMS plugins. Randomness is passed in as a [`Random`]. A key that
//! only a plugin can decrypt is returned as [`Decryption::NeedsKey`] and supplied with [`kms::Keyring::learn`].
//!
//! # Invariants
//!
//! - Reading stored bytes never panics. Providers with an authentication tag detect any changed byte. *Enforced by*
//!   `changed_byte_is_detected`.

mod aes;
pub mod config;
mod error;
pub mod kms;
mod secretbox;
pub mod transform;

pub use config::{Configuration, GroupResource};
pub use error::Error;
pub use kms::Decryption;
pub use transform::{StoredBytes, Transformers};

/// A source of cryptographically secure random bytes.
pub trait Random {
    /// Fills all of `bytes`.
    fn fill(&mut self, bytes: &mut [u8]);
}
