//! One version of one key, as the state keeps it and every reader shares it.

use std::sync::Arc;

use bytes::Bytes;

use crate::{LeaseId, Revision};

/// One version of a key: what a put wrote, or the tombstone a delete left. Immutable, and shared between the state, its
/// snapshots and all readers.
///
/// Key and value lie in one allocation of exactly their size: whatever buffer a command arrived in can be freed, and a key costs one
/// block for its bytes and one for its numbers.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    pub(crate) data: Bytes,
    pub(crate) key_len: u32,
    /// Position of the change within its revision.
    pub sub: u32,
    /// Revision of the put that created the key; 0 in a tombstone.
    pub create_revision: Revision,
    /// Revision of this change.
    pub mod_revision: Revision,
    /// Puts since the key was created; 0 in a tombstone.
    pub version: i64,
    /// The lease the key is attached to, or 0.
    pub lease: LeaseId,
}

impl Record {
    /// A record as another store tells of it.
    pub fn new(
        key: &[u8],
        value: &[u8],
        (create_revision, mod_revision): (Revision, Revision),
        version: i64,
        lease: LeaseId,
    ) -> Self {
        Self { create_revision, version, lease, ..Self::bare(key, value, (mod_revision, 0)) }
    }

    /// The record of a put.
    pub(crate) fn put(
        key: &[u8],
        value: &[u8],
        at: (Revision, u32),
        previous: Option<&Record>,
        lease: LeaseId,
    ) -> Self {
        let (create_revision, version) = previous.map_or((at.0, 1), |old| (old.create_revision, old.version + 1));
        Self { create_revision, version, lease, ..Self::bare(key, value, at) }
    }

    /// The record of a delete.
    pub(crate) fn tombstone(key: &[u8], at: (Revision, u32)) -> Self {
        Self::bare(key, b"", at)
    }

    pub(crate) fn bare(key: &[u8], value: &[u8], (mod_revision, sub): (Revision, u32)) -> Self {
        let data = Bytes::from([key, value].concat().into_boxed_slice());
        let key_len = u32::try_from(key.len()).expect("commands longer than 4 GiB do not decode");
        Self { data, key_len, sub, create_revision: 0, mod_revision, version: 0, lease: 0 }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.data[..self.key_len as usize]
    }

    /// The value; empty in a tombstone.
    pub fn value(&self) -> &[u8] {
        &self.data[self.key_len as usize..]
    }

    /// The key as shared bytes.
    pub fn key_bytes(&self) -> Bytes {
        self.data.slice(..self.key_len as usize)
    }

    /// The value as shared bytes.
    pub fn value_bytes(&self) -> Bytes {
        self.data.slice(self.key_len as usize..)
    }

    /// Whether this is what a delete left.
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    /// What the record adds to the size of the state: its bytes, and its numbers as they would be stored.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.data.len() as u64 + 40
    }
}

/// A change of one key: what watchers see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key after the change; a tombstone when it was deleted.
    pub record: Arc<Record>,
    /// The key before the change, if it existed.
    pub previous: Option<Arc<Record>>,
}
