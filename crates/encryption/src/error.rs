//! Errors of encryption and decryption.

use apimachinery::Str;
use apimachinery::time::Time;

/// Reasons why a value cannot be encrypted or decrypted, with kube-apiserver's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No provider has the value's prefix.
    #[error("no matching prefix found")]
    NoPrefix,
    /// The provider has no key of that name.
    #[error("no matching key was found for the provided {0} transformer")]
    NoKey(&'static str),
    #[error("the stored data was shorter than the required size")]
    TooShort,
    #[error("the stored data is not a multiple of the block size")]
    BlockSize,
    #[error("invalid PKCS7 data (empty or not padded)")]
    NotPadded,
    /// The padding bytes differ.
    #[error("invalid padding on input")]
    Padding,
    /// The value was encrypted with another key, modified, or moved to another path.
    #[error("cipher: message authentication failed")]
    Authentication,
    /// The value was encrypted with another key, or modified.
    #[error("output array was not large enough for encryption")]
    Secretbox,
    /// The cryptography library returned an error.
    #[error("the cipher failed")]
    Cipher,
    /// The KMS envelope is invalid, or there is no key to encrypt with.
    #[error(transparent)]
    Kms(#[from] KmsError),
    /// Several providers failed.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Several(Vec<Error>),
}

/// Reasons why a plugin or its keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KmsError {
    #[error("kmsv2 Provider {name} is not healthy, error: {problem}")]
    Unhealthy {
        /// The plugin's name.
        name: Str,
        problem: String,
    },
    /// There is no seed yet.
    #[error("got unexpected nil transformer")]
    NoSeed,
    /// The plugin did not confirm its key ID within the seed's lifetime.
    #[error("encryptedDEKSource with keyID hash {hash:?} expired at {expired} (current time is {now})")]
    Expired {
        /// The hash of the key ID.
        hash: String,
        expired: Time,
        /// The time of the write.
        now: Time,
    },
    /// The plugin encrypted with another key than its status reports.
    #[error("failed to rotate DEK, statusKeyIDHash={status:?}, encryptKeyIDHash={encrypted:?}")]
    KeyMismatch {
        /// The hash of the key ID in the status.
        status: String,
        /// The hash of the key ID in the Encrypt response.
        encrypted: String,
    },
    /// The envelope is not valid protobuf.
    #[error("proto: cannot parse the encrypted object")]
    Malformed,
    #[error("unknown encryptedDEKSourceType: {0}")]
    UnknownSource(u64),
    #[error("encrypted data is empty")]
    NoData,
    #[error("failed to validate encrypted DEK source: encrypted DEK source is empty")]
    NoKey,
    #[error(
        "failed to validate encrypted DEK source: encrypted DEK source is {0} bytes, which exceeds the max size of 1024"
    )]
    KeyTooLarge(usize),
    #[error("failed to validate key id: keyID is empty")]
    NoKeyId,
    #[error("failed to validate key id: keyID is {0} bytes, which exceeds the max size of 1024")]
    KeyIdTooLong(usize),
    /// The annotations are too large or have invalid keys.
    #[error("failed to validate annotations: {0}")]
    Annotations(String),
    /// The plugin returned a key of the wrong length.
    #[error("invalid seed length {0} used for key generation")]
    SeedLength(usize),
}
