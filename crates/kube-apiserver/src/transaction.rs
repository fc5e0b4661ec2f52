//! A write of one object, with everything that is stored in the same store transaction: side effects of admission,
//! allocations and the lease of a kind with a TTL.

use admission::Effect;
use api::core::service::allocation::Plan;
use api::kind::Kind;
use apimachinery::Value;
use apimachinery::status::Status;
use bytes::Bytes;
use mvcc::{Revision, Txn};

use crate::storage::Storage;
use crate::{allocations, storage_format};

/// The place of an object in the store, given by the request and not by the object.
pub(crate) struct ObjectKey<'s> {
    storage: &'s Storage,
    kind: &'s Kind,
    key: Bytes,
}

/// A transaction that succeeds only if the object is still in the storage that the write is based on.
pub(crate) struct Transaction<'s> {
    storage: &'s Storage,
    kind: &'s Kind,
    txn: Txn,
}

impl<'s> ObjectKey<'s> {
    pub(crate) fn new(storage: &'s Storage, kind: &'s Kind, namespace: &str, name: &str) -> Self {
        Self { storage, kind, key: storage.layout.key(kind, namespace, name) }
    }

    /// Creates the object. Fails if it exists.
    pub(crate) fn create(self, object: &Value) -> Transaction<'s> {
        Transaction {
            storage: self.storage,
            kind: self.kind,
            txn: storage_format::create(self.key, storage_format::encode(object)),
        }
    }

    /// Replaces the object that was read at revision `read_at`.
    pub(crate) fn replace(self, object: &Value, read_at: Revision) -> Transaction<'s> {
        self.replace_with(storage_format::encode(object), read_at)
    }

    /// Replaces the object that was read at revision `read_at` by an encoded one.
    pub(crate) fn replace_with(self, encoded: Bytes, read_at: Revision) -> Transaction<'s> {
        Transaction { storage: self.storage, kind: self.kind, txn: storage_format::replace(self.key, encoded, read_at) }
    }

    /// Deletes the object that was read at revision `read_at`, and releases its allocations.
    pub(crate) fn remove(self, object: &Value, read_at: Revision) -> Transaction<'s> {
        let txn = storage_format::remove(self.key, read_at);
        let releases = allocations::releases(self.kind, object);
        Transaction { storage: self.storage, kind: self.kind, txn }.with_allocations(&releases, object)
    }
}

impl Transaction<'_> {
    /// Adds the write of another object. Both succeed or neither does.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.txn.compare.extend(other.txn.compare);
        self.txn.success.extend(other.txn.success);
        self
    }

    /// Adds the side effects of admission.
    pub(crate) fn with_effects(mut self, effects: &[Effect]) -> Self {
        for Effect { kind, object } in effects {
            let meta = apimachinery::meta::Meta::of(object);
            let read_at = meta.resource_version().parse().unwrap_or(0);
            let key = self.storage.layout.key(kind, meta.namespace(), meta.name());
            let more = storage_format::replace(key, storage_format::encode(object), read_at);
            self.txn.compare.extend(more.compare);
            self.txn.success.extend(more.success);
        }
        self
    }

    /// Adds allocations of the object `owner`.
    pub(crate) fn with_allocations(mut self, plan: &Plan, owner: &Value) -> Self {
        allocations::join(self.storage, &mut self.txn, plan, owner);
        self
    }

    /// Submits the transaction. Returns its revision, or `None` if it conflicts with a concurrent write.
    pub(crate) async fn submit(mut self) -> Result<Option<Revision>, Status> {
        if storage_format::expires(self.kind) {
            let lease = self.storage.store.lease().await.map_err(|error| crate::storage::unavailable(&error.into()))?;
            self.txn = storage_format::leased(self.txn, lease);
        }
        self.storage.submit(self.txn).await
    }
}
