//! Stored value format: a prefix that identifies provider and key, and the encrypted value.

use std::borrow::Cow;

use apimachinery::time::Time;

use crate::aes::{self, Cbc, Gcm};
use crate::config::{self, Key};
use crate::error::Error;
use crate::kms::{Decryption, Keyring};
use crate::secretbox::{self, Secretbox};
use crate::{Configuration, Random};

/// The prefix of every encrypted value; JSON and protobuf values never start with it.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// Encrypts and decrypts the values of one resource.
#[derive(Debug)]
pub struct Transformers {
    providers: Vec<Provider>,
}

/// A value in its stored form; an unencrypted value is borrowed.
pub type StoredBytes<'a> = Cow<'a, [u8]>;

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
    Kms(apimachinery::Str),
    Identity,
}

impl Transformers {
    /// Returns the transformers of a resource. A resource that the configuration does not list is not encrypted, and
    /// its encrypted values are rejected rather than parsed as objects.
    pub fn for_resource(configuration: &Configuration, group: &str, resource: &str) -> Self {
        let providers = configuration.providers(group, resource);
        let mut providers: Vec<Provider> = providers.into_iter().map(Provider::new).collect();
        if providers.is_empty() {
            providers.push(Provider { prefix: Vec::new(), cipher: Cipher::Identity });
        }
        Self { providers }
    }

    /// Encrypts a value for `path` with the first provider's first key.
    pub fn encrypt<'a>(
        &self,
        value: &'a [u8],
        path: &[u8],
        keyring: &Keyring,
        random: &mut impl Random,
        now: Time,
    ) -> Result<StoredBytes<'a>, Error> {
        let provider = self.providers.first().expect("the configuration has at least one provider");
        let mut out = Vec::with_capacity(provider.prefix.len() + value.len() + 128);
        out.extend(&provider.prefix);
        match &provider.cipher {
            Cipher::Identity => return Ok(value.into()),
            Cipher::AesGcm(keys) => {
                let (name, key) = keys.first().ok_or(Error::NoKey("AES"))?;
                out.extend(name);
                key.encrypt(value, path, random_bytes::<{ aes::NONCE }>(random), &mut out)?;
            }
            Cipher::AesCbc(keys) => {
                let (name, key) = keys.first().ok_or(Error::NoKey("AES"))?;
                out.extend(name);
                key.encrypt(value, random_bytes::<{ aes::BLOCK }>(random), &mut out)?;
            }
            Cipher::Secretbox(keys) => {
                let (name, key) = keys.first().ok_or(Error::NoKey("Secretbox"))?;
                out.extend(name);
                key.encrypt(value, random_bytes::<{ secretbox::NONCE }>(random), &mut out)?;
            }
            Cipher::Kms(name) => {
                let seed = keyring.writer(name, now)?;
                let mut data = Vec::with_capacity(value.len() + 64);
                let draws = (random_bytes::<{ aes::INFO }>(random), random_bytes::<{ aes::NONCE }>(random));
                seed.cipher.encrypt(value, path, draws, &mut data)?;
                out.extend(seed.envelope(data).encode());
            }
        }
        Ok(out.into())
    }

    /// Decrypts a value stored at `path` with the provider and key that encrypted it.
    pub fn open<'a>(&self, stored: &'a [u8], path: &[u8], keyring: &Keyring) -> Result<Decryption<'a>, Error> {
        let mut errors = Vec::new();
        for (at, provider) in self.providers.iter().enumerate() {
            let Some(rest) = stored.strip_prefix(provider.prefix.as_slice()) else { continue };
            match provider.open(rest, path, keyring) {
                Ok(Decryption::Value { bytes, stale }) => {
                    return Ok(Decryption::Value { bytes, stale: stale || at > 0 });
                }
                Ok(needs @ Decryption::NeedsKey(_)) => return Ok(needs),
                // The identity provider does not accept an encrypted value; a later provider may decrypt it.
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

    fn open<'a>(&self, rest: &'a [u8], path: &[u8], keyring: &Keyring) -> Result<Decryption<'a>, Error> {
        match &self.cipher {
            Cipher::Identity if rest.starts_with(ENCRYPTED) => Err(Error::NoPrefix),
            Cipher::Identity => Ok(Decryption::Value { bytes: rest.into(), stale: false }),
            Cipher::AesGcm(keys) => open_named(keys, rest, "AES", |key, sealed| key.open(sealed, path)),
            Cipher::AesCbc(keys) => open_named(keys, rest, "AES", Cbc::open),
            Cipher::Secretbox(keys) => open_named(keys, rest, "Secretbox", Secretbox::open),
            Cipher::Kms(name) => keyring.open(name, rest, path),
        }
    }
}

/// Tries each key with the name in the value: the same name may have several secrets during a rotation.
fn open_named<K>(
    keys: &[(Vec<u8>, K)],
    rest: &[u8],
    what: &'static str,
    open: impl Fn(&K, &[u8]) -> Result<Vec<u8>, Error>,
) -> Result<Decryption<'static>, Error> {
    let mut errors = Vec::new();
    for (at, (name, key)) in keys.iter().enumerate() {
        let Some(sealed) = rest.strip_prefix(name.as_slice()) else { continue };
        match open(key, sealed) {
            Ok(bytes) => return Ok(Decryption::Value { bytes: bytes.into(), stale: at > 0 }),
            Err(error) => errors.push(error),
        }
    }
    Err(match errors.len() {
        0 => Error::NoKey(what),
        1 => errors.swap_remove(0),
        _ => Error::Several(errors),
    })
}

/// Returns the ciphers by their prefix in values. Key lengths were validated before.
fn named<K>(keys: &[Key], make: impl Fn(&[u8]) -> Option<K>) -> Vec<(Vec<u8>, K)> {
    let one = |key: &Key| Some((format!("{}:", key.name).into_bytes(), make(key.secret())?));
    keys.iter().filter_map(one).collect()
}

fn random_bytes<const N: usize>(random: &mut impl Random) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
