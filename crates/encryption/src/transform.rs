//! Values as the store keeps them: a prefix that says how they were encrypted, and the rest.

use std::borrow::Cow;

use machinery::time::Time;

use crate::aes::{self, Cbc, DerivedGcm, Gcm};
use crate::config::{self, Key};
use crate::kms::{self, KeyRequest, Keyring};
use crate::secretbox::{self, Secretbox};
use crate::{Configuration, Random};

/// What every encrypted value begins with; JSON and protobuf values never do.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// How the values of one resource are written and read.
#[derive(Debug)]
pub struct Transformers {
    providers: Vec<Provider>,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened<'a> {
    /// What it is.
    Value {
        /// Its bytes, which are those that were stored if they are not encrypted.
        bytes: Cow<'a, [u8]>,
        /// Whether it should be written again, because another key or provider writes now.
        stale: bool,
    },
    /// First a key management service must decrypt the key of this value. Once the answer is in the [`Keyring`] the value can be
    /// read.
    NeedsKey(KeyRequest),
}

/// A value as it is stored: the value itself if it is not encrypted.
pub type Sealed<'a> = Cow<'a, [u8]>;

/// Why a value cannot be read or written. The words are those of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No provider knows its prefix.
    #[error("no matching prefix found")]
    NoPrefix,
    /// Its provider has no key of that name.
    #[error("no matching key was found for the provided {0} transformer")]
    NoKey(&'static str),
    /// It is too short.
    #[error("the stored data was shorter than the required size")]
    TooShort,
    /// It does not consist of whole blocks.
    #[error("the stored data is not a multiple of the block size")]
    BlockSize,
    /// Its last byte is no padding.
    #[error("invalid PKCS7 data (empty or not padded)")]
    NotPadded,
    /// Its padding is not all the same.
    #[error("invalid padding on input")]
    Padding,
    /// Another key encrypted it, it was changed, or it was moved.
    #[error("cipher: message authentication failed")]
    Authentication,
    /// Another key encrypted it, or it was changed.
    #[error("output array was not large enough for encryption")]
    Secretbox,
    /// The library refused.
    #[error("the cipher failed")]
    Cipher,
    /// The envelope of a key management service is broken, or there is no key to write with.
    #[error(transparent)]
    Kms(#[from] kms::Error),
    /// Several providers failed.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Several(Vec<Error>),
}

#[derive(Debug)]
struct Provider {
    prefix: Vec<u8>,
    cipher: Cipher,
}

#[derive(Debug)]
enum Cipher {
    AesGcm(Vec<(Vec<u8>, Gcm)>),
    AesCbc(Vec<(Vec<u8>, Cbc)>),
    Secretbox(Vec<(Vec<u8>, Secretbox)>),
    Kms(machinery::Str),
    Identity,
}

impl Transformers {
    /// The transformers for a resource. One that the configuration does not name is not encrypted, and encrypted values of it
    /// are refused rather than taken for objects.
    pub fn for_resource(configuration: &Configuration, group: &str, resource: &str) -> Self {
        let providers = configuration.providers(group, resource);
        let mut providers: Vec<Provider> = providers.into_iter().map(Provider::new).collect();
        if providers.is_empty() {
            providers.push(Provider { prefix: Vec::new(), cipher: Cipher::Identity });
        }
        Self { providers }
    }

    /// Encrypts a value that is to be stored under `path`, by the first provider's first key.
    pub fn seal<'a>(
        &self,
        value: &'a [u8],
        path: &[u8],
        keyring: &Keyring,
        random: &mut impl Random,
        now: Time,
    ) -> Result<Sealed<'a>, Error> {
        let provider = self.providers.first().expect("there is always a provider");
        let mut out = Vec::with_capacity(provider.prefix.len() + value.len() + 128);
        out.extend(&provider.prefix);
        match &provider.cipher {
            Cipher::Identity => return Ok(value.into()),
            Cipher::AesGcm(keys) => {
                let (name, key) = keys.first().ok_or(Error::NoKey("AES"))?;
                out.extend(name);
                key.seal(value, path, draw::<{ aes::NONCE }>(random), &mut out)?;
            }
            Cipher::AesCbc(keys) => {
                let (name, key) = keys.first().ok_or(Error::NoKey("AES"))?;
                out.extend(name);
                key.seal(value, draw::<{ aes::BLOCK }>(random), &mut out)?;
            }
            Cipher::Secretbox(keys) => {
                let (name, key) = keys.first().ok_or(Error::NoKey("Secretbox"))?;
                out.extend(name);
                key.seal(value, draw::<{ secretbox::NONCE }>(random), &mut out)?;
            }
            Cipher::Kms(name) => {
                let seed = keyring.writer(name, now)?;
                let mut data = Vec::with_capacity(value.len() + 64);
                let draws = (draw::<{ aes::INFO }>(random), draw::<{ aes::NONCE }>(random));
                seed.cipher.seal(value, path, draws, &mut data)?;
                out.extend(seed.envelope(data).encode());
            }
        }
        Ok(out.into())
    }

    /// Reads a value that was stored under `path`, by whichever provider and key wrote it.
    pub fn open<'a>(&self, stored: &'a [u8], path: &[u8], keyring: &Keyring) -> Result<Opened<'a>, Error> {
        let mut errors = Vec::new();
        for (at, provider) in self.providers.iter().enumerate() {
            let Some(rest) = stored.strip_prefix(provider.prefix.as_slice()) else { continue };
            match provider.open(rest, path, keyring) {
                Ok(Opened::Value { bytes, stale }) => return Ok(Opened::Value { bytes, stale: stale || at > 0 }),
                Ok(needs @ Opened::NeedsKey(_)) => return Ok(needs),
                // What is encrypted is not for the provider that does not encrypt; a later one may know it.
                Err(Error::NoPrefix) => {}
                Err(error) => errors.push(error),
            }
        }
        Err(match errors.len() {
            0 => Error::NoPrefix,
            1 => errors.swap_remove(0),
            _ => Error::Several(errors),
        })
    }
}

impl Provider {
    fn new(provider: &config::Provider) -> Self {
        let (prefix, cipher) = match provider {
            config::Provider::AesGcm(keys) => ("k8s:enc:aesgcm:v1:".to_owned(), Cipher::AesGcm(named(keys, Gcm::new))),
            config::Provider::AesCbc(keys) => ("k8s:enc:aescbc:v1:".to_owned(), Cipher::AesCbc(named(keys, Cbc::new))),
            config::Provider::Secretbox(keys) => {
                ("k8s:enc:secretbox:v1:".to_owned(), Cipher::Secretbox(named(keys, Secretbox::new)))
            }
            config::Provider::Kms(kms) => (format!("k8s:enc:kms:v2:{}:", kms.name), Cipher::Kms(kms.name.clone())),
            config::Provider::Identity => (String::new(), Cipher::Identity),
        };
        Self { prefix: prefix.into_bytes(), cipher }
    }

    fn open<'a>(&self, rest: &'a [u8], path: &[u8], keyring: &Keyring) -> Result<Opened<'a>, Error> {
        match &self.cipher {
            Cipher::Identity if rest.starts_with(ENCRYPTED) => Err(Error::NoPrefix),
            Cipher::Identity => Ok(Opened::Value { bytes: rest.into(), stale: false }),
            Cipher::AesGcm(keys) => open_named(keys, rest, "AES", |key, sealed| key.open(sealed, path)),
            Cipher::AesCbc(keys) => open_named(keys, rest, "AES", Cbc::open),
            Cipher::Secretbox(keys) => open_named(keys, rest, "Secretbox", Secretbox::open),
            Cipher::Kms(name) => keyring.open(name, rest, path),
        }
    }
}

/// Tries each key whose name stands before the value: the same name may stand for several secrets while one is replaced.
fn open_named<K>(
    keys: &[(Vec<u8>, K)],
    rest: &[u8],
    what: &'static str,
    open: impl Fn(&K, &[u8]) -> Result<Vec<u8>, Error>,
) -> Result<Opened<'static>, Error> {
    let mut errors = Vec::new();
    for (at, (name, key)) in keys.iter().enumerate() {
        let Some(sealed) = rest.strip_prefix(name.as_slice()) else { continue };
        match open(key, sealed) {
            Ok(bytes) => return Ok(Opened::Value { bytes: bytes.into(), stale: at > 0 }),
            Err(error) => errors.push(error),
        }
    }
    Err(match errors.len() {
        0 => Error::NoKey(what),
        1 => errors.swap_remove(0),
        _ => Error::Several(errors),
    })
}

/// Keys with their names as they stand before values. Their lengths were validated.
fn named<K>(keys: &[Key], make: impl Fn(&[u8]) -> Option<K>) -> Vec<(Vec<u8>, K)> {
    let one = |key: &Key| Some((format!("{}:", key.name).into_bytes(), make(key.secret())?));
    keys.iter().filter_map(one).collect()
}

fn draw<const N: usize>(random: &mut impl Random) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes
}

/// What a seed makes of data, and where a value encrypted with a key of the older form is read.
#[derive(Debug)]
pub(crate) enum DataKey {
    /// One key for all values.
    Plain(Gcm),
    /// A key for each value.
    Derived(Box<DerivedGcm>),
}

impl DataKey {
    pub(crate) fn open(&self, data: &[u8], path: &[u8]) -> Result<Vec<u8>, Error> {
        match self {
            Self::Plain(key) => key.open(data, path),
            Self::Derived(key) => key.open(data, path),
        }
    }
}

#[cfg(test)]
mod tests;
