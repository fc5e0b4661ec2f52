//! Encrypting store client: values are encrypted on write and decrypted on read, and objects with a TTL get a lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mvcc::{LeaseId, Operation, Range, Record, Revision, Span, Txn};
use store::client::{self, Client, ClientError, Freshness, TxnOutcome};
use tokio::sync::Mutex;

use crate::encryptor::{self, Encryptor};

/// Objects created within a twentieth of their TTL, and at most a minute, share a lease: one lease per object would
/// overload the store. Upstream's values.
const SHARED_DIVISOR: u32 = 20;
const SHARED_MAX: Duration = Duration::from_secs(60);
/// Maximum number of objects per lease, because all of them expire at the same time.
const SHARED_OBJECTS_MAX: u32 = 1000;

/// A store client that encrypts values.
pub struct Store {
    client: Client,
    encryptor: Option<Arc<Encryptor>>,
    leases: Leases,
}

/// A record of the store.
pub struct StoredValue {
    pub key: Bytes,
    /// The decrypted value; `None` if the key was deleted.
    pub value: Result<Option<Bytes>, encryptor::Error>,
    /// The revision of the last write.
    pub revision: Revision,
    /// Whether the value is encrypted with an old key and should be written again.
    pub stale: bool,
}

/// Changes that a watch delivers together.
pub struct Batch {
    pub changes: Vec<StoredValue>,
    /// All changes up to this revision have been delivered.
    pub revision: Revision,
}

/// Reasons why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] ClientError),
    /// A value cannot be encrypted or decrypted.
    #[error("unable to transform key {key:?}")]
    Encryptor {
        /// The store key as text.
        key: String,
        source: encryptor::Error,
    },
}

/// The shared lease of new objects.
struct Leases {
    life: Duration,
    current: Mutex<Option<SharedLease>>,
}

struct SharedLease {
    id: LeaseId,
    granted: Instant,
    objects: u32,
}

impl Store {
    /// Creates a store client. Objects with a TTL expire after `life`.
    pub fn new(client: Client, encryptor: Option<Arc<Encryptor>>, life: Duration) -> Self {
        Self { client, encryptor, leases: Leases { life, current: Mutex::new(None) } }
    }

    /// Returns the current value, its revision, and whether the value is encrypted with an old key. The read is
    /// linearizable.
    pub async fn get(&self, key: Bytes) -> Result<Option<(Bytes, Revision, bool)>, Error> {
        let (record, _) = self.client.get(key, Freshness::Linearizable).await?;
        let Some(record) = record else { return Ok(None) };
        let found = self.open(&record).await;
        match found.value {
            Ok(value) => Ok(value.map(|value| (value, found.revision, found.stale))),
            Err(source) => Err(Error::Encryptor { key: text(&found.key), source }),
        }
    }

    /// Reads a range, at a revision that is not compacted, and returns the store's revision. The read is linearizable.
    pub async fn range(&self, range: Range) -> Result<(Vec<StoredValue>, Revision), Error> {
        let reply = self.client.range(range, Freshness::Linearizable).await?;
        let mut found = Vec::with_capacity(reply.records.len());
        for record in &reply.records {
            found.push(self.open(record).await);
        }
        Ok((found, reply.revision))
    }

    /// Executes a transaction.
    pub async fn txn(&self, mut txn: Txn) -> Result<TxnOutcome, Error> {
        if let Some(encryptor) = &self.encryptor {
            for operation in &mut txn.success {
                let Operation::Put(put) = operation else { continue };
                let Some(value) = put.value.take() else { continue };
                let sealed = encryptor.encrypt(&put.key, value);
                put.value = Some(sealed.map_err(|source| Error::Encryptor { key: text(&put.key), source })?);
            }
        }
        Ok(self.client.txn(txn).await?)
    }

    /// Watches a span from a revision.
    pub async fn watch(&self, span: Span, from: Revision) -> Result<client::Watch, ClientError> {
        self.client.watch(span, from).await
    }

    /// Returns the next changes of a watch.
    pub async fn next(&self, watch: &mut client::Watch) -> Result<Batch, ClientError> {
        let batch = watch.next().await?;
        let mut changes = Vec::with_capacity(batch.events.len());
        for event in &batch.events {
            changes.push(self.open(&event.record).await);
        }
        Ok(Batch { changes, revision: batch.revision })
    }

    /// Returns the store's current revision.
    pub async fn revision(&self) -> Result<Revision, ClientError> {
        self.client.revision().await
    }

    /// Grants a separate lease.
    pub async fn lease_of(&self, life: Duration) -> Result<LeaseId, ClientError> {
        self.client.lease(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)).await
    }

    /// Returns the shared lease for a new object with a TTL.
    pub async fn lease(&self) -> Result<LeaseId, ClientError> {
        let mut current = self.leases.current.lock().await;
        let shared_for = (self.leases.life / SHARED_DIVISOR).min(SHARED_MAX);
        if let Some(shared) = &mut *current
            && shared.granted.elapsed() < shared_for
            && shared.objects < SHARED_OBJECTS_MAX
        {
            shared.objects += 1;
            return Ok(shared.id);
        }
        let seconds = (self.leases.life + shared_for).as_secs().max(1);
        let id = self.client.lease(i64::try_from(seconds).unwrap_or(i64::MAX)).await?;
        *current = Some(SharedLease { id, granted: Instant::now(), objects: 1 });
        Ok(id)
    }

    async fn open(&self, record: &Record) -> StoredValue {
        let (key, revision) = (record.key_bytes(), record.mod_revision);
        if record.is_tombstone() {
            return StoredValue { key, value: Ok(None), revision, stale: false };
        }
        let Some(encryptor) = &self.encryptor else {
            return StoredValue { key, value: Ok(Some(record.value_bytes())), revision, stale: false };
        };
        match encryptor.open(&key, record.value_bytes()).await {
            Ok((value, stale)) => StoredValue { key, value: Ok(Some(value)), revision, stale },
            Err(error) => StoredValue { key, value: Err(error), revision, stale: false },
        }
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
