//! Serialization of the entire state, for checkpoint files and for snapshots sent to lagging members.
//!
//! ```text
//!   frame = length u32, CRC-32C u32, payload          numbers little-endian
//!   header frame, record frames (by key, then the superseded ones), lease frame, alarm frame, directory frame,
//!   end frame
//! ```

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::Bytes;

use crate::command::Alarm;
use crate::directory::Directory;
use crate::record::{Event, Record, Value, ValueInterner};
use crate::state::{Head, Lease, LeasedRecord, LoggedEvent, Past, State};
use crate::wire::{DecodeError, Reader, put_bytes, put_i64, put_u64};

/// Readable formats.
const FORMATS: std::ops::RangeInclusive<u8> = WITHOUT_DIRECTORY..=WITH_AUTHENTICATION;
/// Format without users and roles. It is still written while none were ever added, so that older versions can read it.
const WITHOUT_DIRECTORY: u8 = 1;
/// Users and roles; authentication is disabled.
const WITH_DIRECTORY: u8 = 2;
/// Authentication is enabled: a version that cannot enforce it must not open the state.
const WITH_AUTHENTICATION: u8 = 3;
/// Size at which a frame is closed.
const FRAME_BYTES: usize = 256 * 1024;

const HEADER: u8 = 1;
const HEADS: u8 = 2;
const PAST: u8 = 3;
const LEASES: u8 = 4;
const ALARMS: u8 = 5;
const END: u8 = 6;
const DIRECTORY: u8 = 7;

/// A checkpoint is unreadable or damaged.
#[derive(Debug, thiserror::Error)]
pub enum CorruptCheckpoint {
    /// The stream could not be read, or ended early.
    #[error("the checkpoint could not be read")]
    Read(#[from] io::Error),
    #[error("the checkpoint is damaged in frame {frame}")]
    Checksum {
        /// Counted from 0.
        frame: usize,
    },
    /// Another version wrote the stream, or the stream is not a checkpoint.
    #[error("the checkpoint has format {0}, this version reads formats up to {WITH_AUTHENTICATION}")]
    Format(u8),
    /// The checksum of a frame matches, but its content is invalid.
    #[error("the checkpoint has malformed content in frame {frame}")]
    Content {
        /// Counted from 0.
        frame: usize,
    },
}

impl State {
    /// Writes the entire state. Use a clone to write while the state changes.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        // The reader has no log from which the remaining compaction work could be derived.
        if self.is_forgetting() {
            return self.compacted_state().write_to(out);
        }
        let mut frames = Frames { out, payload: Vec::with_capacity(FRAME_BYTES + 4096) };
        let format = match &*self.directory {
            directory if directory.is_untouched() => WITHOUT_DIRECTORY,
            directory if directory.is_enabled() => WITH_AUTHENTICATION,
            _ => WITH_DIRECTORY,
        };
        frames.payload.extend([HEADER, format]);
        put_u64(&mut frames.payload, self.applied_index);
        put_i64(&mut frames.payload, self.revision);
        put_i64(&mut frames.payload, self.compact_revision);
        frames.close()?;
        frames.records(HEADS, self.heads.iter().map(|head| &*head.0))?;
        frames.records(PAST, self.history.iter().map(|past| &*past.0))?;
        frames.payload.push(LEASES);
        for lease in self.leases() {
            put_i64(&mut frames.payload, lease.id);
            put_i64(&mut frames.payload, lease.ttl_seconds);
            put_i64(&mut frames.payload, lease.remaining_seconds);
        }
        frames.close()?;
        frames.payload.push(ALARMS);
        for (member, alarm) in self.alarms() {
            put_u64(&mut frames.payload, *member);
            frames.payload.push(alarm.number());
        }
        frames.close()?;
        if format != WITHOUT_DIRECTORY {
            frames.payload.push(DIRECTORY);
            self.directory.write(&mut frames.payload);
            frames.close()?;
        }
        frames.payload.push(END);
        put_u64(&mut frames.payload, (self.heads.len() + self.history.len()) as u64);
        frames.close()
    }

    /// Reads the output of [`State::write_to`].
    pub fn read_from(input: &mut dyn Read) -> Result<Self, CorruptCheckpoint> {
        Self::read_to(input, &mut |value| Bytes::copy_from_slice(value))
    }

    /// Like [`State::read_from`], but stores values with `store_value`.
    pub fn read_to(input: &mut dyn Read, store_value: &mut ValueInterner<'_>) -> Result<Self, CorruptCheckpoint> {
        let mut state = State::new();
        for frame in 0.. {
            let payload = read_frame(input, frame)?;
            let mut reader = Reader::new(payload);
            let kind = reader.u8().map_err(|DecodeError| CorruptCheckpoint::Content { frame })?;
            if (frame == 0) != (kind == HEADER) {
                return Err(CorruptCheckpoint::Content { frame });
            }
            if kind == HEADER {
                let format = reader.u8().map_err(|DecodeError| CorruptCheckpoint::Content { frame })?;
                if !FORMATS.contains(&format) {
                    return Err(CorruptCheckpoint::Format(format));
                }
            }
            let is_end = state
                .read_content(kind, &mut reader, store_value)
                .map_err(|DecodeError| CorruptCheckpoint::Content { frame })?;
            if is_end {
                break;
            }
        }
        state.rebuild_log();
        Ok(state)
    }

    /// Reads the content of one frame. Returns true for the last one.
    fn read_content(
        &mut self,
        kind: u8,
        reader: &mut Reader,
        store_value: &mut ValueInterner<'_>,
    ) -> Result<bool, DecodeError> {
        match kind {
            HEADER => {
                self.applied_index = reader.u64()?;
                self.revision = reader.i64()?;
                self.compact_revision = reader.i64()?;
            }
            HEADS => {
                while !reader.is_empty() {
                    let record = self.read_record(reader, store_value)?;
                    if record.lease != 0 {
                        self.attached.insert(LeasedRecord(record.clone()));
                    }
                    self.heads.insert(Head(record));
                }
            }
            PAST => {
                while !reader.is_empty() {
                    let record = self.read_record(reader, store_value)?;
                    self.history.insert(Past(record));
                }
            }
            LEASES => {
                while !reader.is_empty() {
                    let lease =
                        Lease { id: reader.i64()?, ttl_seconds: reader.i64()?, remaining_seconds: reader.i64()? };
                    self.leases.insert(lease);
                }
            }
            ALARMS => {
                let mut alarms = BTreeSet::new();
                while !reader.is_empty() {
                    alarms.insert((reader.u64()?, Alarm::from_number(reader.u8()?).ok_or(DecodeError)?));
                }
                self.alarms = Arc::new(alarms);
            }
            DIRECTORY => self.directory = Arc::new(Directory::read(reader)?),
            END => {
                let expected = reader.u64()?;
                let whole = expected == (self.heads.len() + self.history.len()) as u64 && reader.is_empty();
                return if whole { Ok(true) } else { Err(DecodeError) };
            }
            _ => return Err(DecodeError),
        }
        if reader.is_empty() { Ok(false) } else { Err(DecodeError) }
    }

    fn read_record(
        &mut self,
        reader: &mut Reader,
        store_value: &mut ValueInterner<'_>,
    ) -> Result<Arc<Record>, DecodeError> {
        let (key, value) = (reader.bytes()?, reader.bytes()?);
        let mod_revision = reader.i64()?;
        let sub = u32::try_from(reader.u64()?).map_err(|_| DecodeError)?;
        if key.len() > u32::MAX as usize || mod_revision > self.revision {
            return Err(DecodeError);
        }
        let record = Record {
            create_revision: reader.i64()?,
            version: reader.i64()?,
            lease: reader.i64()?,
            ..Record::bare(Bytes::copy_from_slice(&key), Value::placed(&value, store_value), (mod_revision, sub))
        };
        self.size_bytes += record.size_bytes();
        Ok(Arc::new(record))
    }

    /// Rebuilds the event log, which is not stored: from the compact revision on, the records are the changes.
    fn rebuild_log(&mut self) {
        self.log_floor = self.compact_revision.max(0);
        let heads = self.heads.iter().map(|head| &head.0);
        let past = self.history.iter().map(|past| &past.0);
        let mut records: Vec<_> =
            heads.chain(past).filter(|record| record.mod_revision >= self.log_floor).cloned().collect();
        records.sort_unstable_by_key(|record| (record.mod_revision, record.sub));
        for record in records {
            let at = (record.mod_revision, record.sub);
            let previous = self
                .history
                .last_before(|past| past.order_to(record.key(), at).is_lt())
                .map(|past| &past.0)
                .filter(|past| past.key() == record.key() && !past.is_tombstone())
                .cloned();
            self.log.insert(LoggedEvent(Event { record, previous }));
        }
    }
}

struct Frames<'a> {
    out: &'a mut dyn Write,
    payload: Vec<u8>,
}

impl Frames<'_> {
    fn records<'r>(&mut self, kind: u8, records: impl Iterator<Item = &'r Record>) -> io::Result<()> {
        self.payload.push(kind);
        for record in records {
            if !record.value.is_whole() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a value is not what was written"));
            }
            write_record(&mut self.payload, record);
            if self.payload.len() >= FRAME_BYTES {
                self.close()?;
                self.payload.push(kind);
            }
        }
        self.close()
    }

    fn close(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.payload.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a record is larger than 4 GiB"))?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&crc32c::crc32c(&self.payload).to_le_bytes())?;
        self.out.write_all(&self.payload)?;
        self.payload.clear();
        Ok(())
    }
}

fn write_record(out: &mut Vec<u8>, record: &Record) {
    put_bytes(out, record.key());
    put_bytes(out, record.value());
    put_i64(out, record.mod_revision);
    put_u64(out, u64::from(record.sub));
    put_i64(out, record.create_revision);
    put_i64(out, record.version);
    put_i64(out, record.lease);
}

fn read_frame(input: &mut dyn Read, frame: usize) -> Result<Bytes, CorruptCheckpoint> {
    let mut prefix = [0; 8];
    input.read_exact(&mut prefix)?;
    let (length, checksum) = prefix.split_at(4);
    let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
    let checksum = u32::from_le_bytes(checksum.try_into().expect("four bytes"));
    // The buffer grows as data arrives, so a damaged length allocates no memory.
    let mut payload = Vec::with_capacity((length as usize).min(2 * FRAME_BYTES));
    input.take(u64::from(length)).read_to_end(&mut payload)?;
    if payload.len() < length as usize {
        return Err(CorruptCheckpoint::Read(io::ErrorKind::UnexpectedEof.into()));
    }
    if crc32c::crc32c(&payload) != checksum {
        return Err(CorruptCheckpoint::Checksum { frame });
    }
    Ok(payload.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Command, DirectoryChange, PasswordHash, Permission, Put, Range, Span};

    /// A checkpoint in the first format, in hexadecimal.
    const GOLDEN: &[u8] =
        b"050000008d91e9f601010304011000000098cfb0ed02036b65790576616c7565040004020e01000000a5a02d410304000000\
                            d9a5e8f8040e780003000000b6efb8f405050102000000e3a5c56a0601";

    fn sample() -> State {
        let mut state = State::new();
        let put = |key: String, lease| {
            Command::Put(Put {
                key: key.into(),
                value: Some("v".repeat(1000).into()),
                lease: Some(lease),
                want_previous: false,
            })
        };
        state.apply(1, &Command::LeaseGrant { id: 7, ttl_seconds: 60 });
        for index in 2..1500 {
            state.apply(index, &put(format!("key/{}", index % 700), if index % 3 == 0 { 7 } else { 0 }));
        }
        state.apply(1500, &Command::Delete(crate::Delete { span: Span::key("key/5"), want_previous: false }));
        state.apply(1501, &Command::Compact { revision: 900 });
        state.prune(usize::MAX);
        state
    }

    fn written(state: &State) -> Vec<u8> {
        let mut out = Vec::new();
        state.write_to(&mut out).expect("writing to memory cannot fail");
        out
    }

    #[test]
    fn state_survives_a_round_trip() {
        let state = sample();
        let bytes = written(&state);
        let back = State::read_from(&mut &bytes[..]).expect("the checkpoint is complete");
        assert_eq!(back.applied_index(), 1501);
        assert_eq!(back.revision(), state.revision());
        assert_eq!(back.size_bytes(), state.size_bytes());
        assert_eq!(back.hash_kv(0), state.hash_kv(0));
        assert_eq!(back.lease(7), state.lease(7));
        assert!(back.lease_keys(7).eq(state.lease_keys(7)));
        for revision in [0, 900, 1000, 1400] {
            let range = Range { revision, ..Range::of(Span::all()) };
            assert_eq!(back.range(&range), state.range(&range));
        }
        assert!(back.all_events(901).eq(state.all_events(901)));
        assert_eq!(written(&back), bytes);
    }

    #[test]
    fn users_and_roles_survive_and_the_first_format_is_written_without_them() {
        let mut state = sample();
        let (format, before) = (9, written(&state));
        assert_eq!(before[format], WITHOUT_DIRECTORY, "members of an older version read it");
        let permission = Permission { access: Access::Write, span: Span::prefix("k") };
        let changes = [
            DirectoryChange::AddUser { name: "a".into(), password: Some(PasswordHash::new("hash".into())) },
            DirectoryChange::AddUser { name: "b".into(), password: None },
            DirectoryChange::AddRole { name: "r".into() },
            DirectoryChange::GrantPermission { role: "r".into(), permission },
            DirectoryChange::GrantRole { user: "b".into(), role: "r".into() },
        ];
        for (index, change) in (1502..).zip(changes) {
            assert_eq!(state.apply(index, &Command::Directory(change)).result, Ok(crate::Reply::Directory));
        }
        let bytes = written(&state);
        assert_eq!(bytes[format], WITH_DIRECTORY);
        let back = State::read_from(&mut &bytes[..]).expect("the checkpoint is complete");
        assert_eq!((back.directory(), written(&back)), (state.directory(), bytes));
        let older = State::read_from(&mut &before[..]).expect("the older checkpoint is complete");
        assert!(!older.directory().is_enabled());
        assert_eq!(older.directory(), &Directory::default());
    }

    #[test]
    fn enabled_authentication_survives_and_older_versions_reject_the_checkpoint() {
        let mut state = sample();
        let root = || "root".to_owned();
        let changes = [
            DirectoryChange::AddUser { name: root(), password: None },
            DirectoryChange::GrantRole { user: root(), role: root() },
            DirectoryChange::Enable,
        ];
        for (index, change) in (1502..).zip(changes) {
            assert_eq!(state.apply(index, &Command::Directory(change)).result, Ok(crate::Reply::Directory));
        }
        let bytes = written(&state);
        assert_eq!(bytes[9], WITH_AUTHENTICATION);
        let back = State::read_from(&mut &bytes[..]).expect("the checkpoint is complete");
        assert!(back.directory().is_enabled());
        assert_eq!(written(&back), bytes);
    }

    #[test]
    fn checkpoint_in_the_first_format_is_readable() {
        let bytes = GOLDEN.as_chunks::<2>().0.iter().map(|[high, low]| {
            let digit = |letter: u8| char::from(letter).to_digit(16).expect("hexadecimal");
            u8::try_from(digit(*high) << 4 | digit(*low)).expect("a byte")
        });
        let bytes: Vec<u8> = bytes.collect();
        let mut state = State::new();
        let put = Put { key: "key".into(), value: Some("value".into()), lease: Some(7), want_previous: false };
        state.apply(1, &Command::LeaseGrant { id: 7, ttl_seconds: 60 });
        state.apply(2, &Command::Put(put));
        let alarm = Command::Alarm { change: crate::AlarmChange::Raise, alarm: Alarm::NoSpace, member: 5 };
        state.apply(3, &alarm);
        let back = State::read_from(&mut &bytes[..]).expect("the data is complete");
        assert_eq!((back.hash_kv(0), back.alarms(), back.lease(7)), (state.hash_kv(0), state.alarms(), state.lease(7)));
        assert_eq!(written(&state), bytes, "and is written unchanged");
    }

    #[test]
    fn clone_is_written_unchanged_while_the_state_changes() {
        let mut state = sample();
        let before = written(&state);
        let snapshot = state.clone();
        state.apply(1502, &Command::Delete(crate::Delete { span: Span::all(), want_previous: false }));
        state.apply(1503, &Command::Compact { revision: state.revision() });
        assert_eq!(written(&snapshot), before);
        assert_eq!(state.key_count(), 0);
    }

    #[test]
    fn damage_at_any_byte_is_detected() {
        let bytes = written(&sample());
        for at in (0..bytes.len()).step_by(977).chain([0, 1, 4, 8, 9, bytes.len() - 1]) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(State::read_from(&mut &damaged[..]).is_err(), "damage at {at} went unnoticed");
            assert!(State::read_from(&mut &bytes[..at]).is_err(), "the end at {at} went unnoticed");
        }
    }
}
