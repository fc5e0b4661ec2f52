//! Keys that a key management service keeps: what it must be asked, and what is known of its answers.
//!
//! The server makes a seed, has the service encrypt it, and stores the encrypted seed with every value; each value is
//! encrypted by a key of its own that is derived from the seed. The service is asked again only when its key changes, or
//! when a value is read that an unknown seed encrypted.
//!
//! ```text
//!  status ──ok, same key──> keep for three more minutes
//!     └────ok, new key───> new seed ──encrypt──> adopt
//!  open ──unknown seed──> KeyRequest ──decrypt──> learn ──> open
//! ```

mod envelope;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use aws_lc_rs::digest;
use machinery::time::{Duration, Time};
use machinery::{Str, field};
use zeroize::Zeroizing;

pub use envelope::{Envelope, KeySource};

use crate::aes::{DerivedGcm, Gcm, SEED};
use crate::transform::{DataKey, Opened};
use crate::{Random, transform};

/// How long a seed writes after the service last said that its key is still the same.
const SEED_LIFE: Duration = Duration::from_seconds(3 * 60);
/// After how long a healthy service is asked for its status again.
pub const STATUS_INTERVAL: Duration = Duration::from_seconds(60);
/// After how long a service that is not healthy is asked again.
pub const STATUS_RETRY: Duration = Duration::from_seconds(10);
/// How many decrypted keys of a service are remembered. One is used per key of the service and start of a server.
const REMEMBERED_MAX: usize = 1024;

/// The keys of all services.
#[derive(Debug, Default)]
pub struct Keyring {
    services: BTreeMap<Str, Service>,
}

/// What a service must be asked to decrypt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRequest {
    /// The name of the service.
    pub service: Str,
    /// The encrypted key.
    pub ciphertext: Vec<u8>,
    /// The service's own key that encrypted it.
    pub key_id: String,
    /// What else the service wants to know.
    pub annotations: BTreeMap<String, Vec<u8>>,
    /// What the key is once decrypted.
    pub source: KeySource,
}

/// A seed that the service has yet to encrypt.
pub struct NewSeed {
    secret: Zeroizing<[u8; SEED]>,
}

/// How a service encrypted a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encrypted {
    /// The encrypted seed.
    pub ciphertext: Vec<u8>,
    /// The service's own key that encrypted it.
    pub key_id: String,
    /// What else the service wants to know when it decrypts it.
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// What a service says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The version of the protocol it speaks.
    pub version: String,
    /// `ok` if it is well.
    pub healthz: String,
    /// The key that it encrypts with now.
    pub key_id: String,
}

/// What to do after a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the seed goes on writing.
    Keep,
    /// Have the service encrypt a new seed.
    Rotate,
}

/// Why a service or its keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The service is not well.
    #[error("kmsv2 Provider {name} is not healthy, error: {problem}")]
    Unhealthy {
        /// Its name.
        name: Str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no seed yet.
    #[error("got unexpected nil transformer")]
    NoSeed,
    /// The service did not confirm its key for too long.
    #[error("encryptedDEKSource with keyID hash {hash:?} expired at {expired} (current time is {now})")]
    Expired {
        /// The hash of the key's name.
        hash: String,
        /// When that was.
        expired: Time,
        /// When it was to write.
        now: Time,
    },
    /// The service encrypted with another key than the one it says it uses.
    #[error("failed to rotate DEK, statusKeyIDHash={status:?}, encryptKeyIDHash={encrypted:?}")]
    KeyMismatch {
        /// The hash of the key that the status names.
        status: String,
        /// The hash of the key that encrypted.
        encrypted: String,
    },
    /// The envelope is no protobuf.
    #[error("proto: cannot parse the encrypted object")]
    Malformed,
    /// The envelope has a key of an unknown sort.
    #[error("unknown encryptedDEKSourceType: {0}")]
    UnknownSource(u64),
    /// There is no data.
    #[error("encrypted data is empty")]
    NoData,
    /// There is no key.
    #[error("failed to validate encrypted DEK source: encrypted DEK source is empty")]
    NoKey,
    /// The key is too large.
    #[error(
        "failed to validate encrypted DEK source: encrypted DEK source is {0} bytes, which exceeds the max size of 1024"
    )]
    KeyTooLarge(usize),
    /// The service's key has no name.
    #[error("failed to validate key id: keyID is empty")]
    NoKeyId,
    /// The name of the service's key is too long.
    #[error("failed to validate key id: keyID is {0} bytes, which exceeds the max size of 1024")]
    KeyIdTooLong(usize),
    /// What the service adds is too much or has bad names.
    #[error("failed to validate annotations: {0}")]
    Annotations(String),
    /// The service gave a key of a wrong length.
    #[error("invalid seed length {0} used for key generation")]
    SeedLength(usize),
}

#[derive(Debug, Default)]
struct Service {
    writer: Option<Writer>,
    known: BTreeMap<KeyRequest, DataKey>,
    /// The order in which they came, to forget the oldest.
    order: VecDeque<KeyRequest>,
}

/// The seed that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) cipher: DerivedGcm,
    encrypted: Encrypted,
    expires_at: Time,
}

impl Keyring {
    /// Takes a service's word on how it is: keeps the seed for a while, or asks for a new one.
    pub fn status(&mut self, service: &str, status: &Status, now: Time) -> Result<Next, Error> {
        check_status(service, status)?;
        let writer = self.services.entry(service.into()).or_default().writer.as_mut();
        let Some(writer) = writer.filter(|writer| writer.encrypted.key_id == status.key_id) else {
            return Ok(Next::Rotate);
        };
        writer.expires_at = now.plus(SEED_LIFE);
        Ok(Next::Keep)
    }

    /// Starts writing with a seed that the service encrypted. `status` is what the service said just before.
    pub fn adopt(
        &mut self,
        service: &str,
        seed: &NewSeed,
        encrypted: Encrypted,
        status: &Status,
        now: Time,
    ) -> Result<(), Error> {
        let source = KeySource::Seed;
        // Any data that is not empty makes an envelope that can be judged.
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

    /// Remembers a key that a service decrypted.
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
            let oldest = service.order.pop_front().expect("it is longer than nothing");
            service.known.remove(&oldest);
        }
        Ok(())
    }

    /// How many decrypted keys are remembered.
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

    pub(crate) fn open(&self, service: &str, rest: &[u8], path: &[u8]) -> Result<Opened<'static>, transform::Error> {
        let envelope = Envelope::decode(rest)?;
        let request = KeyRequest::of(service, &envelope);
        let known = self.services.get(service);
        let Some(key) = known.and_then(|service| service.known.get(&request)) else {
            return Ok(Opened::NeedsKey(request));
        };
        let bytes = key.open(&envelope.data, path)?;
        let writer = known.and_then(|service| service.writer.as_ref());
        let writes = |writer: &Writer| writer.encrypted.key_id == envelope.key_id && envelope.source == KeySource::Seed;
        Ok(Opened::Value { bytes: bytes.into(), stale: !writer.is_some_and(writes) })
    }
}

impl KeyRequest {
    fn new(service: &str, encrypted: &Encrypted, source: KeySource) -> Self {
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
    /// Draws a seed.
    pub fn draw(random: &mut impl Random) -> Self {
        let mut secret = Zeroizing::new([0; SEED]);
        random.fill(secret.as_mut_slice());
        Self { secret }
    }

    /// What the service is to encrypt.
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

/// How the name of a key is shown, which may itself be confidential.
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
