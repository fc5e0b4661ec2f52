//! KMS v2 envelope encryption: seeds, cached keys, and the state of KMS plugins.
//!
//! The server generates a seed, has the plugin encrypt it, and stores the encrypted seed with every value. Each value
//! is encrypted with a separate key derived from the seed. The plugin is called again only when its key changes, or
//! when a value encrypted with an unknown seed is read.
//!
//! ```text
//!  status ──ok, same key──> keep for three more minutes
//!     └────ok, new key───> new seed ──encrypt──> adopt
//!  open ──unknown seed──> KeyRequest ──decrypt──> learn ──> open
//! ```

mod envelope;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use apimachinery::time::{Duration, Time};
use apimachinery::{Str, field};
use aws_lc_rs::digest;
use zeroize::Zeroizing;

pub use envelope::{Envelope, KeySource};

use crate::Random;
use crate::aes::{DerivedGcm, Gcm, SEED};
pub use crate::error::KmsError as Error;

/// Time for which a seed may encrypt after the plugin last confirmed its key ID.
const SEED_LIFE: Duration = Duration::from_seconds(3 * 60);
/// Interval of status requests to a healthy plugin.
pub const STATUS_INTERVAL: Duration = Duration::from_seconds(60);
/// Interval of status requests to an unhealthy plugin.
pub const STATUS_RETRY: Duration = Duration::from_seconds(10);
/// Maximum number of cached decrypted keys per plugin. There is one per plugin key and server start.
const REMEMBERED_MAX: usize = 1024;

/// The keys of all KMS plugins.
#[derive(Debug, Default)]
pub struct Keyring {
    services: BTreeMap<Str, Service>,
}

/// A Decrypt request to a plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRequest {
    /// The name of the plugin.
    pub service: Str,
    /// The encrypted key.
    pub ciphertext: Vec<u8>,
    /// The ID of the plugin's key that encrypted it.
    pub key_id: String,
    /// The annotations from the Encrypt response.
    pub annotations: BTreeMap<String, Vec<u8>>,
    /// The type of the decrypted key.
    pub source: KeySource,
}

/// A seed that the plugin has not encrypted yet.
pub struct NewSeed {
    secret: Zeroizing<[u8; SEED]>,
}

/// A plugin's Encrypt response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptResponse {
    /// The encrypted seed.
    pub ciphertext: Vec<u8>,
    /// The ID of the plugin's key that encrypted it.
    pub key_id: String,
    /// Annotations to send with Decrypt.
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// A plugin's Status response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The protocol version.
    pub version: String,
    /// `ok` if the plugin is healthy.
    pub healthz: String,
    /// The ID of the plugin's current key.
    pub key_id: String,
}

/// The action after a Status response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Keep the current seed.
    Keep,
    /// Let the plugin encrypt a new seed.
    Rotate,
}

#[derive(Debug, Default)]
struct Service {
    writer: Option<Writer>,
    known: BTreeMap<KeyRequest, DataKey>,
    /// Insertion order, for eviction of the oldest.
    order: VecDeque<KeyRequest>,
}

/// The seed that encrypts new values.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) cipher: DerivedGcm,
    encrypted: EncryptResponse,
    expires_at: Time,
}

impl Keyring {
    /// Applies a Status response: extends the lifetime of the seed, or requests a new one.
    pub fn status(&mut self, service: &str, status: &Status, now: Time) -> Result<Next, Error> {
        check_status(service, status)?;
        let writer = self.services.entry(service.into()).or_default().writer.as_mut();
        let Some(writer) = writer.filter(|writer| writer.encrypted.key_id == status.key_id) else {
            return Ok(Next::Rotate);
        };
        writer.expires_at = now.plus(SEED_LIFE);
        Ok(Next::Keep)
    }

    /// Starts encrypting with a seed that the plugin encrypted. `status` is the plugin's preceding Status response.
    pub fn adopt(
        &mut self,
        service: &str,
        seed: &NewSeed,
        encrypted: EncryptResponse,
        status: &Status,
        now: Time,
    ) -> Result<(), Error> {
        let source = KeySource::Seed;
        // Any non-empty data makes an envelope that can be validated.
        Envelope::new(&encrypted, source, vec![0]).validate()?;
        if encrypted.key_id != status.key_id {
            let (status, encrypted) = (hash(&status.key_id), hash(&encrypted.key_id));
            return Err(Error::KeyMismatch { status, encrypted });
        }
        let request = KeyRequest::new(service, &encrypted, source);
        self.learn(&request, seed.plaintext())?;
        let cipher = DerivedGcm::new(seed.plaintext()).ok_or(Error::SeedLength(seed.plaintext().len()))?;
        let known = self.services.entry(service.into()).or_default();
        known.writer = Some(Writer { cipher, encrypted, expires_at: now.plus(SEED_LIFE) });
        Ok(())
    }

    /// Caches a key that a plugin decrypted.
    pub fn learn(&mut self, request: &KeyRequest, plaintext: &[u8]) -> Result<(), Error> {
        let length = Error::SeedLength(plaintext.len());
        let key = match request.source {
            KeySource::Seed => DataKey::Derived(Box::new(DerivedGcm::new(plaintext).ok_or(length)?)),
            KeySource::Key => DataKey::Plain(Gcm::new(plaintext).ok_or(length)?),
        };
        let service = self.services.entry(request.service.clone()).or_default();
        if service.known.insert(request.clone(), key).is_none() {
            service.order.push_back(request.clone());
        }
        if service.order.len() > REMEMBERED_MAX {
            let oldest = service.order.pop_front().expect("the list is not empty");
            service.known.remove(&oldest);
        }
        Ok(())
    }

    /// Returns the number of cached keys.
    pub fn remembered(&self) -> usize {
        self.services.values().map(|service| service.known.len()).sum()
    }

    pub(crate) fn writer(&self, service: &str, now: Time) -> Result<&Writer, Error> {
        let writer = self.services.get(service).and_then(|service| service.writer.as_ref()).ok_or(Error::NoSeed)?;
        if now > writer.expires_at {
            let hash = hash(&writer.encrypted.key_id);
            return Err(Error::Expired { hash, expired: writer.expires_at, now });
        }
        Ok(writer)
    }

    pub(crate) fn open(
        &self,
        service: &str,
        rest: &[u8],
        path: &[u8],
    ) -> Result<Decryption<'static>, crate::error::Error> {
        let envelope = Envelope::decode(rest)?;
        let request = KeyRequest::of(service, &envelope);
        let known = self.services.get(service);
        let Some(key) = known.and_then(|service| service.known.get(&request)) else {
            return Ok(Decryption::NeedsKey(request));
        };
        let bytes = key.open(&envelope.data, path)?;
        let writer = known.and_then(|service| service.writer.as_ref());
        let writes = |writer: &Writer| writer.encrypted.key_id == envelope.key_id && envelope.source == KeySource::Seed;
        Ok(Decryption::Value { bytes: bytes.into(), stale: !writer.is_some_and(writes) })
    }
}

impl KeyRequest {
    fn new(service: &str, encrypted: &EncryptResponse, source: KeySource) -> Self {
        Self {
            service: service.into(),
            ciphertext: encrypted.ciphertext.clone(),
            key_id: encrypted.key_id.clone(),
            annotations: encrypted.annotations.clone(),
            source,
        }
    }

    fn of(service: &str, envelope: &Envelope) -> Self {
        Self {
            service: service.into(),
            ciphertext: envelope.encrypted_key.clone(),
            key_id: envelope.key_id.clone(),
            annotations: envelope.annotations.clone(),
            source: envelope.source,
        }
    }
}

impl NewSeed {
    /// Generates a seed.
    pub fn generate(random: &mut impl Random) -> Self {
        let mut secret = Zeroizing::new([0; SEED]);
        random.fill(secret.as_mut_slice());
        Self { secret }
    }

    /// Returns the plaintext for the Encrypt request.
    pub fn plaintext(&self) -> &[u8] {
        self.secret.as_slice()
    }
}

impl Writer {
    pub(crate) fn envelope(&self, data: Vec<u8>) -> Envelope {
        Envelope::new(&self.encrypted, KeySource::Seed, data)
    }
}

fn check_status(service: &str, status: &Status) -> Result<(), Error> {
    let mut problems = Vec::new();
    if status.healthz != "ok" {
        problems.push(format!("got unexpected healthz status: {}", status.healthz));
    }
    if !matches!(&*status.version, "v2" | "v2beta1") {
        problems.push(format!("expected KMSv2 API version v2, got {}", status.version));
    }
    if status.key_id.is_empty() {
        problems.push("expected KMSv2 KeyID to be set, got ".to_owned());
    } else if status.key_id.len() > envelope::KEY_ID_MAX {
        problems.push(Error::KeyIdTooLong(status.key_id.len()).to_string());
    }
    let problem = match problems.len() {
        0 => return Ok(()),
        1 => problems.swap_remove(0),
        _ => format!("[{}]", problems.join(", ")),
    };
    Err(Error::Unhealthy { name: service.into(), problem })
}

/// Returns the hash of a key ID for messages, since the ID may be confidential.
pub fn hash(key_id: &str) -> String {
    if key_id.is_empty() {
        return String::new();
    }
    let sum = digest::digest(&digest::SHA256, key_id.as_bytes());
    let hex: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

impl From<field::Errors> for Error {
    fn from(findings: field::Errors) -> Self {
        Self::Annotations(field::aggregate(&findings).unwrap_or_default())
    }
}

impl fmt::Debug for NewSeed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("NewSeed").finish_non_exhaustive()
    }
}

/// The result of a decryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decryption<'a> {
    Value {
        /// The decrypted bytes; those of an unencrypted value are borrowed.
        bytes: Cow<'a, [u8]>,
        /// Whether the value should be written again, because another key or provider encrypts now.
        stale: bool,
    },
    /// A KMS plugin must first decrypt the key of this value. Once the key is in the [`Keyring`], the value can be
    /// decrypted.
    NeedsKey(KeyRequest),
}

/// The data key of a KMS envelope.
#[derive(Debug)]
pub(crate) enum DataKey {
    /// One key for all values, the older form.
    Plain(Gcm),
    /// A seed from which a key per value is derived.
    Derived(Box<DerivedGcm>),
}

impl DataKey {
    pub(crate) fn open(&self, data: &[u8], path: &[u8]) -> Result<Vec<u8>, crate::error::Error> {
        match self {
            Self::Plain(key) => key.open(data, path),
            Self::Derived(key) => key.open(data, path),
        }
    }
}
