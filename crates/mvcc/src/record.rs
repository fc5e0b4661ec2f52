//! One version of one key, as the state keeps it and every reader shares it.

use std::sync::Arc;

use bytes::Bytes;

use crate::{LeaseId, Revision};

/// One version of a key: what a put wrote, or the tombstone a delete left. Immutable, and shared between the state, its
/// snapshots and all readers.
///
/// The value is shared with whoever gave it, wherever its bytes lie; so they should lie where nothing else is kept in memory by them.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    pub(crate) key: Bytes,
    pub(crate) value: Value,
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
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        Self { create_revision, version, lease, ..Self::bare(key, Value::of(value), (mod_revision, 0)) }
    }

    /// The record of a put.
    pub(crate) fn put(
        key: &[u8],
        value: Value,
        at: (Revision, u32),
        previous: Option<&Record>,
        lease: LeaseId,
    ) -> Self {
        let (create_revision, version) = previous.map_or((at.0, 1), |old| (old.create_revision, old.version + 1));
        // The command's own bytes of the key would keep the whole command in memory.
        let key = previous.map_or_else(|| Bytes::copy_from_slice(key), Record::key_bytes);
        Self { create_revision, version, lease, ..Self::bare(key, value, at) }
    }

    /// The record of a delete.
    pub(crate) fn tombstone(of: &Record, at: (Revision, u32)) -> Self {
        Self::bare(of.key_bytes(), Value::default(), at)
    }

    pub(crate) fn bare(key: Bytes, value: Value, (mod_revision, sub): (Revision, u32)) -> Self {
        Self { key, value, sub, create_revision: 0, mod_revision, version: 0, lease: 0 }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value; empty in a tombstone.
    pub fn value(&self) -> &[u8] {
        &self.value.bytes
    }

    /// The key as shared bytes.
    pub fn key_bytes(&self) -> Bytes {
        self.key.clone()
    }

    /// The value as shared bytes.
    pub fn value_bytes(&self) -> Bytes {
        self.value.bytes.clone()
    }

    /// Whether this is what a delete left.
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    /// What the record adds to the size of the state: its bytes, and its numbers as they would be stored.
    pub(crate) fn size_bytes(&self) -> u64 {
        (self.key.len() + self.value.bytes.len()) as u64 + 40
    }
}

/// A value and its checksum: its bytes may lie outside of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    bytes: Bytes,
    checksum: u32,
}

/// Puts the bytes of a value where they are kept. What it returns is taken to be the same bytes.
pub type Place<'p> = dyn FnMut(&Bytes) -> Bytes + 'p;

impl Value {
    fn of(bytes: Bytes) -> Self {
        Self { checksum: crc32c::crc32c(&bytes), bytes }
    }

    /// The checksum is of what was given: it tells whether the place has kept it, and costs no reading there.
    pub(crate) fn placed(bytes: &Bytes, place: &mut Place<'_>) -> Self {
        Self { checksum: crc32c::crc32c(bytes), bytes: place(bytes) }
    }

    /// Whether the value is still what was written.
    pub(crate) fn is_whole(&self) -> bool {
        crc32c::crc32c(&self.bytes) == self.checksum
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_changed_is_not_written() {
        let mut state = crate::State::new();
        let put = crate::Put { key: "k".into(), value: Some("value".into()), lease: Some(0), want_previous: false };
        state.apply(1, &crate::Command::Put(put));
        state.write_to(&mut Vec::new()).expect("the value is whole");
        let whole = state.key(b"k").expect("just put");
        let value = Value { bytes: Bytes::from_static(b"vaLue"), ..whole.value };
        let changed = Record { value, key: whole.key_bytes(), ..**whole };
        state.heads.insert(crate::state::Head(Arc::new(changed)));
        let error = state.write_to(&mut Vec::new()).expect_err("the value is another");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    }
}
