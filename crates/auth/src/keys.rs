//! Keys that sign and check tokens: read from PEM, written as JSON Web Keys, named as Kubernetes names them.
//!
//! A public key is kept as its numbers, so that one read from a certificate, from a key file or from a key set is the
//! same key and has the same name.

mod der;
mod jwk;
mod pem;

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, KeyPair, RsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use machinery::Str;

pub use jwk::{KeySet, jwk, jwks};
pub use pem::{Block, blocks, certificates};

/// Why keys cannot be used. No message shows a part of a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No block of a PEM file is a private key.
    #[error("data does not contain a valid RSA or ECDSA private key")]
    NoPrivateKey,
    /// No block of a PEM file is or holds a public key.
    #[error("data does not contain any valid RSA or ECDSA public keys")]
    NoPublicKey,
    /// The key is of a kind that tokens are not signed with.
    #[error("unknown private key curve, must be 256, 384, or 521")]
    Curve,
    /// A key set is not what it should be.
    #[error("the key set is not a JSON Web Key Set")]
    KeySet,
    /// The signature could not be made.
    #[error("the key cannot sign")]
    Sign,
    /// The signature is not this key's signature of the message.
    #[error("error in cryptographic primitive")]
    Signature,
}

/// How a signature is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// RSA as in PKCS #1 with SHA-256.
    Rs256,
    /// RSA as in PKCS #1 with SHA-384.
    Rs384,
    /// RSA as in PKCS #1 with SHA-512.
    Rs512,
    /// RSA-PSS with SHA-256.
    Ps256,
    /// RSA-PSS with SHA-384.
    Ps384,
    /// RSA-PSS with SHA-512.
    Ps512,
    /// The curve P-256 with SHA-256.
    Es256,
    /// The curve P-384 with SHA-384.
    Es384,
    /// The curve P-521 with SHA-512.
    Es512,
}

/// An elliptic curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// NIST's P-256.
    P256,
    /// NIST's P-384.
    P384,
    /// NIST's P-521.
    P521,
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// Numbers in big-endian bytes without leading zeros.
    Rsa {
        /// The modulus.
        modulus: Vec<u8>,
        /// The exponent.
        exponent: Vec<u8>,
    },
    /// A point of a curve, uncompressed.
    Elliptic {
        /// The curve.
        curve: Curve,
        /// `04`, then both coordinates in full length.
        point: Vec<u8>,
    },
}

/// A private key, with the public one that belongs to it.
pub struct PrivateKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Rsa(RsaKeyPair),
    Elliptic(EcdsaKeyPair),
}

impl Algorithm {
    /// The name that a token's header has for it.
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

    /// The algorithm of a name. `none` and shared secrets have no place here: whoever checks would also be able to
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
    /// The name that a JSON Web Key has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        }
    }

    /// How long a coordinate is, in bytes.
    pub const fn coordinate_len(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }
}

impl PublicKey {
    /// Reads every public key of a PEM file: public keys, certificates, and the public half of private keys.
    pub fn all_from_pem(text: &str) -> Result<Vec<Self>, Error> {
        let keys: Vec<Self> = blocks(text).filter_map(|block| Self::from_block(&block)).collect();
        if keys.is_empty() { Err(Error::NoPublicKey) } else { Ok(keys) }
    }

    /// Reads a `SubjectPublicKeyInfo`, the form that certificates and `PUBLIC KEY` blocks hold.
    pub fn from_spki(spki: &[u8]) -> Option<Self> {
        der::read_spki(spki)
    }

    /// The `SubjectPublicKeyInfo` of this key.
    pub fn to_spki(&self) -> Vec<u8> {
        der::write_spki(self)
    }

    /// The name that tokens and key sets have for this key: a hash, from which the key cannot be had.
    pub fn id(&self) -> Str {
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &self.to_spki())).into()
    }

    /// The algorithm that service account tokens of this key are signed with. RSA has one, whatever its size.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa { .. } => Algorithm::Rs256,
            Self::Elliptic { curve: Curve::P256, .. } => Algorithm::Es256,
            Self::Elliptic { curve: Curve::P384, .. } => Algorithm::Es384,
            Self::Elliptic { curve: Curve::P521, .. } => Algorithm::Es512,
        }
    }

    /// Checks that `signature` is this key's signature of `message`. An algorithm of another kind of key is refused.
    // DEVIATION: RSA keys under 2,048 bits are refused; upstream takes them from 1,024 bits on.
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

    /// The public key that belongs to it.
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs by the key's own algorithm.
    ///
    /// A signature on a curve contains a number that the primitive draws itself; nothing is decided by it.
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

    /// Which curve it is, the key knows: only one of them reads it.
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

/// Shows which key it is and nothing of it.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PrivateKey({})", self.public.id())
    }
}

#[cfg(test)]
pub(crate) mod tests;
