//! The store as the server uses it: values are sealed on their way in and opened on their way out, and what expires gets a
//! lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mvcc::{LeaseId, Operation, Range, Record, Revision, Span, Txn};
use store::client::{self, Client, ClientError, Freshness, TxnOutcome};
use tokio::sync::Mutex;

use crate::vault::{self, Vault};

/// A lease is shared by the objects of this part of its life, and of a minute at most: a store with a lease for every object
/// would be busy with nothing else. Upstream's figures.
const SHARED_PART: u32 = 20;
const SHARED_MAX: Duration = Duration::from_secs(60);
/// So many objects share a lease at most, because all of them go at once.
const SHARED_OBJECTS_MAX: u32 = 1000;

/// A store whose values only this server reads.
pub struct Store {
    client: Client,
    vault: Option<Arc<Vault>>,
    leases: Leases,
}

/// What was found under a key.
pub struct Found {
    /// The key.
    pub key: Bytes,
    /// The value; none if the key was deleted.
    pub value: Result<Option<Bytes>, vault::Error>,
    /// When it was written.
    pub revision: Revision,
    /// Whether it should be written again, because another key seals now.
    pub stale: bool,
}

/// Changes that a watch delivers together.
pub struct Batch {
    /// The changes, in order.
    pub changes: Vec<Found>,
    /// Everything up to this revision has been delivered.
    pub revision: Revision,
}

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store itself.
    #[error(transparent)]
    Store(#[from] ClientError),
    /// What is to be kept cannot be sealed, or what is kept cannot be opened.
    #[error("unable to transform key {key:?}")]
    Vault {
        /// The key.
        key: String,
        /// Why.
        source: vault::Error,
    },
}

/// The lease that new objects get.
struct Leases {
    life: Duration,
    current: Mutex<Option<Shared>>,
}

struct Shared {
    id: LeaseId,
    granted: Instant,
    objects: u32,
}

impl Store {
    /// A store over a client. What expires lives for `life`.
    pub fn new(client: Client, vault: Option<Arc<Vault>>, life: Duration) -> Self {
        Self { client, vault, leases: Leases { life, current: Mutex::new(None) } }
    }

    /// The key as of now.
    pub async fn get(&self, key: Bytes) -> Result<Option<(Bytes, Revision, bool)>, Error> {
        let (record, _) = self.client.get(key, Freshness::Linearizable).await?;
        let Some(record) = record else { return Ok(None) };
        let found = self.open(&record).await;
        match found.value {
            Ok(value) => Ok(value.map(|value| (value, found.revision, found.stale))),
            Err(source) => Err(Error::Vault { key: text(&found.key), source }),
        }
    }

    /// A span at any revision that was not compacted, and the revision of the store.
    pub async fn range(&self, range: Range) -> Result<(Vec<Found>, Revision), Error> {
        let reply = self.client.range(range, Freshness::Linearizable).await?;
        let mut found = Vec::with_capacity(reply.records.len());
        for record in &reply.records {
            found.push(self.open(record).await);
        }
        Ok((found, reply.revision))
    }

    /// Compares and writes in one revision.
    pub async fn txn(&self, mut txn: Txn) -> Result<TxnOutcome, Error> {
        if let Some(vault) = &self.vault {
            for operation in &mut txn.success {
                let Operation::Put(put) = operation else { continue };
                let Some(value) = put.value.take() else { continue };
                let sealed = vault.seal(&put.key, value);
                put.value = Some(sealed.map_err(|source| Error::Vault { key: text(&put.key), source })?);
            }
        }
        Ok(self.client.txn(txn).await?)
    }

    /// The changes of a span from a revision on.
    pub async fn watch(&self, span: Span, from: Revision) -> Result<client::Watch, ClientError> {
        self.client.watch(span, from).await
    }

    /// The next changes of a watch.
    pub async fn next(&self, watch: &mut client::Watch) -> Result<Batch, ClientError> {
        let batch = watch.next().await?;
        let mut changes = Vec::with_capacity(batch.events.len());
        for event in &batch.events {
            changes.push(self.open(&event.record).await);
        }
        Ok(Batch { changes, revision: batch.revision })
    }

    /// The store's revision now.
    pub async fn revision(&self) -> Result<Revision, ClientError> {
        self.client.revision().await
    }

    /// A lease of somebody's own.
    pub async fn lease_of(&self, life: Duration) -> Result<LeaseId, ClientError> {
        self.client.lease(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)).await
    }

    /// The lease of a new object that expires.
    pub async fn lease(&self) -> Result<LeaseId, ClientError> {
        let mut current = self.leases.current.lock().await;
        let shared_for = (self.leases.life / SHARED_PART).min(SHARED_MAX);
        if let Some(shared) = &mut *current
            && shared.granted.elapsed() < shared_for
            && shared.objects < SHARED_OBJECTS_MAX
        {
            shared.objects += 1;
            return Ok(shared.id);
        }
        let seconds = (self.leases.life + shared_for).as_secs().max(1);
        let id = self.client.lease(i64::try_from(seconds).unwrap_or(i64::MAX)).await?;
        *current = Some(Shared { id, granted: Instant::now(), objects: 1 });
        Ok(id)
    }

    async fn open(&self, record: &Record) -> Found {
        let (key, revision) = (record.key_bytes(), record.mod_revision);
        if record.is_tombstone() {
            return Found { key, value: Ok(None), revision, stale: false };
        }
        let Some(vault) = &self.vault else {
            return Found { key, value: Ok(Some(record.value_bytes())), revision, stale: false };
        };
        match vault.open(&key, record.value_bytes()).await {
            Ok((value, stale)) => Found { key, value: Ok(Some(value)), revision, stale },
            Err(error) => Found { key, value: Err(error), revision, stale: false },
        }
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
