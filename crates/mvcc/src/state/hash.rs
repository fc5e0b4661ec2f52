//! Hash of the key space for the comparison of members, equal to etcd's for the same commands.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::State;
use crate::Revision;
use crate::error::Error;
use crate::record::Record;

impl State {
    /// Returns the hash of all records up to a revision (0 means the current one).
    ///
    /// It equals etcd's: CRC-32C over the name of its bucket and, in order of revision, each record as its backend
    /// stores it.
    pub fn hash_kv(&self, revision: Revision) -> Result<u32, Error> {
        if revision > 0 && revision <= self.compact_revision {
            return Err(Error::Compacted { compact_revision: self.compact_revision });
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        if self.is_forgetting() {
            return self.compacted_state().hash_kv(revision);
        }
        let as_of = if revision <= 0 { self.revision } else { revision };
        let live: BTreeSet<(Revision, u32)> = self
            .heads
            .iter()
            .filter_map(|head| self.live_at(&head.0, as_of))
            .map(|record| (record.mod_revision, record.sub))
            .collect();
        let mut records: Vec<&Arc<Record>> = self
            .heads
            .iter()
            .map(|head| &head.0)
            .chain(self.history.iter().map(|past| &past.0))
            .filter(|record| record.mod_revision <= as_of)
            // Below the compact revision only live records are hashed: members remove the others at different times.
            .filter(|record| record.mod_revision > self.compact_revision || !record.is_tombstone())
            .filter(|record| {
                record.mod_revision > self.compact_revision
                    || live.is_empty()
                    || live.contains(&(record.mod_revision, record.sub))
            })
            .collect();
        records.sort_unstable_by_key(|record| (record.mod_revision, record.sub));
        let mut buffer = Vec::new();
        Ok(records.iter().fold(crc32c::crc32c(b"key"), |hash, record| {
            buffer.clear();
            write_stored(&mut buffer, record);
            crc32c::crc32c_append(hash, &buffer)
        }))
    }
}

/// Appends the record as etcd's backend stores it: the revision as key, a protobuf `KeyValue` as value.
fn write_stored(out: &mut Vec<u8>, record: &Record) {
    out.extend(record.mod_revision.to_be_bytes());
    out.push(b'_');
    out.extend(u64::from(record.sub).to_be_bytes());
    if record.is_tombstone() {
        out.push(b't');
        write_bytes(out, 1, record.key());
        return;
    }
    write_bytes(out, 1, record.key());
    write_number(out, 2, record.create_revision);
    write_number(out, 3, record.mod_revision);
    write_number(out, 4, record.version);
    write_bytes(out, 5, record.value());
    write_number(out, 6, record.lease);
}

fn write_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.push(field << 3 | 2);
        crate::wire::put_bytes(out, bytes);
    }
}

fn write_number(out: &mut Vec<u8>, field: u8, number: i64) {
    if number != 0 {
        out.push(field << 3);
        crate::wire::put_u64(out, number.cast_unsigned());
    }
}
