//! Encryption at rest: which values are encrypted by what, and their form in the store.
//!
//! A [`Configuration`] says for each resource which providers there are. [`Transformers`] made of it turn a value into what is
//! stored and back: the first provider writes, all of them read, and what was read by another than the first is stale, so
//! that a rewrite encrypts it anew. The form is that of kube-apiserver, byte for byte, so that either reads what the
//! other wrote.
//!
//! Nothing here draws random bytes or talks to a key management service. Randomness is handed in as a [`Random`]; a key that
//! only such a service can decrypt is a result, [`Opened::NeedsKey`], and is told with [`kms::Keyring::learn`].

mod aes;
pub mod config;
pub mod kms;
mod secretbox;
pub mod transform;

pub use config::{Configuration, GroupResource};
pub use transform::{Error, Opened, Sealed, Transformers};

/// A source of random bytes that nobody can foretell.
pub trait Random {
    /// Fills all of `bytes`.
    fn fill(&mut self, bytes: &mut [u8]);
}
