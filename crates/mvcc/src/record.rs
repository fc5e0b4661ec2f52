//! Record: one version of a key, shared between the state and its readers.

use std::sync::Arc;

use bytes::Bytes;

use crate::{LeaseId, Revision};

/// One version of a key: a put, or the tombstone of a delete. Immutable, and shared between the state, its snapshots
/// and all readers.
///
/// The value shares the buffer it was created from, so that buffer should contain nothing else.
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
    /// Number of puts since the key was created; 0 in a tombstone.
    pub version: i64,
    /// The lease the key is attached to, or 0.
    pub lease: LeaseId,
}

impl Record {
    /// Returns a record received from another store.
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

    pub(crate) fn put(
        key: &[u8],
        value: Value,
        at: (Revision, u32),
        previous: Option<&Record>,
        lease: LeaseId,
    ) -> Self {
        let (create_revision, version) = previous.map_or((at.0, 1), |old| (old.create_revision, old.version + 1));
        // A slice of the command's bytes would keep the entire command in memory.
        let key = previous.map_or_else(|| Bytes::copy_from_slice(key), Record::key_bytes);
        Self { create_revision, version, lease, ..Self::bare(key, value, at) }
    }

    pub(crate) fn tombstone(of: &Record, at: (Revision, u32)) -> Self {
        Self::bare(of.key_bytes(), Value::default(), at)
    }

    pub(crate) fn bare(key: Bytes, value: Value, (mod_revision, sub): (Revision, u32)) -> Self {
        Self { key, value, sub, create_revision: 0, mod_revision, version: 0, lease: 0 }
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the value; empty in a tombstone.
    pub fn value(&self) -> &[u8] {
        &self.value.bytes
    }

    pub fn key_bytes(&self) -> Bytes {
        self.key.clone()
    }

    pub fn value_bytes(&self) -> Bytes {
        self.value.bytes.clone()
    }

    /// Whether this is the tombstone of a delete.
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    /// Returns the size that the quota counts: key, value, and 40 bytes for the numeric fields.
    pub(crate) fn size_bytes(&self) -> u64 {
        (self.key.len() + self.value.bytes.len()) as u64 + 40
    }
}

/// A value and its checksum; the bytes may be in a memory-mapped file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    bytes: Bytes,
    checksum: u32,
}

/// Stores the bytes of a value and returns equal bytes.
pub type ValueInterner<'p> = dyn FnMut(&Bytes) -> Bytes + 'p;

impl Value {
    fn of(bytes: Bytes) -> Self {
        Self { checksum: crc32c::crc32c(&bytes), bytes }
    }

    /// Stores a value. The checksum is computed from the input, so it detects changes in storage without reading it.
    pub(crate) fn placed(bytes: &Bytes, store_value: &mut ValueInterner<'_>) -> Self {
        Self { checksum: crc32c::crc32c(bytes), bytes: store_value(bytes) }
    }

    /// Whether the value matches its checksum.
    pub(crate) fn is_whole(&self) -> bool {
        crc32c::crc32c(&self.bytes) == self.checksum
    }
}

/// A change of one key, as delivered to watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key after the change; a tombstone if it was deleted.
    pub record: Arc<Record>,
    /// The key before the change, if it existed.
    pub previous: Option<Arc<Record>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_value_is_not_written_to_a_checkpoint() {
        let mut state = crate::State::new();
        let put = crate::Put { key: "k".into(), value: Some("value".into()), lease: Some(0), want_previous: false };
        state.apply(1, &crate::Command::Put(put));
        state.write_to(&mut Vec::new()).expect("the value is complete");
        let whole = state.key(b"k").expect("the key was put above");
        let value = Value { bytes: Bytes::from_static(b"vaLue"), ..whole.value };
        let changed = Record { value, key: whole.key_bytes(), ..**whole };
        state.heads.insert(crate::state::Head(Arc::new(changed)));
        let error = state.write_to(&mut Vec::new()).expect_err("the value is another");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    }
}
