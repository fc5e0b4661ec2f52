//! Keys that sign and verify tokens: PEM, JSON Web Keys, and Kubernetes' key IDs.
//!
//! A public key is stored as modulus and exponent, or as the point of its curve. So a key from a certificate, a key
//! file or a key set is equal and has the same ID.

mod der;
mod jwk;
mod pem;

use std::fmt;

use apimachinery::Str;
use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, KeyPair, RsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub use jwk::{KeySet, jwk, jwks};
pub use pem::{Block, blocks, certificates};

/// A key cannot be used. No message contains a part of a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("data does not contain a valid RSA or ECDSA private key")]
    NoPrivateKey,
    #[error("data does not contain any valid RSA or ECDSA public keys")]
    NoPublicKey,
    #[error("unknown private key curve, must be 256, 384, or 521")]
    Curve,
    #[error("the key set is not a JSON Web Key Set")]
    KeySet,
    #[error("the key cannot sign")]
    Sign,
    /// The signature is not valid for this key and message.
    #[error("error in cryptographic primitive")]
    Signature,
}

/// A signature algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSA-PSS with SHA-256.
    Ps256,
    /// RSA-PSS with SHA-384.
    Ps384,
    /// RSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    P256,
    P384,
    P521,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    Rsa {
        /// Big-endian bytes without leading zeros.
        modulus: Vec<u8>,
        /// Big-endian bytes without leading zeros.
        exponent: Vec<u8>,
    },
    /// An elliptic curve key.
    Elliptic {
        curve: Curve,
        /// The uncompressed point: `04`, then both coordinates in full length.
        point: Vec<u8>,
    },
}

/// A private key with its public key.
pub struct PrivateKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Rsa(RsaKeyPair),
    Elliptic(EcdsaKeyPair),
}

impl Algorithm {
    /// Returns the `alg` header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
        }
    }

    /// Returns the algorithm of an `alg` header. `none` and HMAC are not supported: with HMAC a verifier could also
    /// sign.
    pub fn named(name: &str) -> Option<Self> {
        const ALL: [Algorithm; 9] = [
            Algorithm::Rs256,
            Algorithm::Rs384,
            Algorithm::Rs512,
            Algorithm::Ps256,
            Algorithm::Ps384,
            Algorithm::Ps512,
            Algorithm::Es256,
            Algorithm::Es384,
            Algorithm::Es512,
        ];
        ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

impl Curve {
    /// Returns the `crv` parameter of a JSON Web Key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        }
    }

    /// Returns the length of a coordinate in bytes.
    pub const fn coordinate_len(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }
}

impl PublicKey {
    /// Reads every public key of a PEM file: public keys, certificates, and the public part of private keys.
    pub fn all_from_pem(text: &str) -> Result<Vec<Self>, Error> {
        let keys: Vec<Self> = blocks(text).filter_map(|block| Self::from_block(&block)).collect();
        if keys.is_empty() { Err(Error::NoPublicKey) } else { Ok(keys) }
    }

    /// Reads a `SubjectPublicKeyInfo`, as in certificates and `PUBLIC KEY` blocks.
    pub fn from_spki(spki: &[u8]) -> Option<Self> {
        der::read_spki(spki)
    }

    /// Returns the `SubjectPublicKeyInfo` of this key.
    pub fn to_spki(&self) -> Vec<u8> {
        der::write_spki(self)
    }

    /// Returns the key ID in tokens and key sets: the SHA-256 hash of the key.
    pub fn id(&self) -> Str {
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &self.to_spki())).into()
    }

    /// Returns the algorithm for service account tokens: RS256 for every RSA key.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa { .. } => Algorithm::Rs256,
            Self::Elliptic { curve: Curve::P256, .. } => Algorithm::Es256,
            Self::Elliptic { curve: Curve::P384, .. } => Algorithm::Es384,
            Self::Elliptic { curve: Curve::P521, .. } => Algorithm::Es512,
        }
    }

    /// Verifies a signature. An algorithm of another key type is rejected.
    // DEVIATION: RSA keys below 2,048 bits are rejected; upstream accepts them from 1,024 bits.
    pub fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> Result<(), Error> {
        match self {
            Self::Rsa { modulus, exponent } => {
                let parameters = match algorithm {
                    Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    Algorithm::Es256 | Algorithm::Es384 | Algorithm::Es512 => return Err(Error::Signature),
                };
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, message, signature).map_err(|_| Error::Signature)
            }
            Self::Elliptic { point, .. } => {
                if algorithm != self.algorithm() {
                    return Err(Error::Signature);
                }
                let parameters = match algorithm {
                    Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
                    Algorithm::Es512 => &signature::ECDSA_P521_SHA512_FIXED,
                    _ => &signature::ECDSA_P256_SHA256_FIXED,
                };
                UnparsedPublicKey::new(parameters, point).verify(message, signature).map_err(|_| Error::Signature)
            }
        }
    }

    fn from_block(block: &Block) -> Option<Self> {
        match block.label.as_str() {
            "CERTIFICATE" => {
                let (_, certificate) = x509_parser::parse_x509_certificate(&block.bytes).ok()?;
                Self::from_spki(certificate.tbs_certificate.subject_pki.raw)
            }
            "RSA PUBLIC KEY" => der::read_rsa(&block.bytes),
            label if label.ends_with("PRIVATE KEY") => Some(PrivateKey::from_block(block)?.public),
            _ => Self::from_spki(&block.bytes),
        }
    }
}

impl PrivateKey {
    /// Reads the first private key of a PEM file: PKCS #1, PKCS #8 or SEC 1.
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        blocks(text).find_map(|block| Self::from_block(&block)).ok_or(Error::NoPrivateKey)
    }

    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs with the key's own algorithm.
    ///
    /// An ECDSA signature contains a random nonce drawn by the library. No decision depends on it.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut out).map_err(|_| Error::Sign)?;
                Ok(out)
            }
            Pair::Elliptic(pair) => {
                pair.sign(&random, message).map(|made| made.as_ref().to_vec()).map_err(|_| Error::Sign)
            }
        }
    }

    fn from_block(block: &Block) -> Option<Self> {
        let bytes = &block.bytes;
        match block.label.as_str() {
            "RSA PRIVATE KEY" => Self::rsa(RsaKeyPair::from_der(bytes).ok()?),
            "EC PRIVATE KEY" => Self::elliptic(bytes),
            "PRIVATE KEY" => match RsaKeyPair::from_pkcs8(bytes) {
                Ok(pair) => Self::rsa(pair),
                Err(_) => Self::elliptic(bytes),
            },
            _ => None,
        }
    }

    fn rsa(pair: RsaKeyPair) -> Option<Self> {
        let public = der::read_rsa(pair.public_key().as_ref())?;
        Some(Self { pair: Pair::Rsa(pair), public })
    }

    /// Reads an EC key by trying each curve: only the key's own curve accepts it.
    fn elliptic(bytes: &[u8]) -> Option<Self> {
        let curves = [
            (Curve::P256, &signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            (Curve::P384, &signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            (Curve::P521, &signature::ECDSA_P521_SHA512_FIXED_SIGNING),
        ];
        curves.into_iter().find_map(|(curve, algorithm)| {
            let pair = EcdsaKeyPair::from_private_key_der(algorithm, bytes).ok()?;
            let point = pair.public_key().as_ref().to_vec();
            Some(Self { pair: Pair::Elliptic(pair), public: PublicKey::Elliptic { curve, point } })
        })
    }
}

/// Prints the key ID and no part of the private key.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PrivateKey({})", self.public.id())
    }
}

#[cfg(test)]
pub(crate) mod tests;
