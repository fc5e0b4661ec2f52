//! Records of a log segment.
//!
//! ```text
//! 0      4        8       16     17        18      19  20        24
//! │ crc  │ length │ group │ kind │ version │ flags │ 0 │ segment │ payload … zeros to a multiple of 8
//! ```
//!
//! The checksum (CRC-32C) covers everything after itself. The group is the number of the write, with one sync each,
//! counted from 0 in every segment; the last record of a group is flagged. This distinguishes a torn tail from damage:
//! a record written after the sync of a broken record proves that the broken one was once complete.

use bytes::{BufMut, Bytes, BytesMut};
use consensus::codec::Reader;
use consensus::{DecodeError, Entry, HardState};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Record {
    /// The first record of a segment.
    Start(Start),
    /// An entry, which replaces all entries from its index on.
    Entry(Entry),
    /// The hard state from here on.
    HardState(HardState),
    /// A checkpoint replaced everything before; the log continues after this index.
    Reset { index: u64 },
}

/// State carried over from earlier segments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Start {
    /// Cluster ID and member ID.
    pub identity: (u64, u64),
    /// The number of starts of the member.
    pub boot: u64,
    /// The hard state at the start of the segment.
    pub hard_state: HardState,
    /// End offset of the previous segment; 0 for the first.
    pub previous_end: u64,
}

/// A record with its group.
#[derive(Debug)]
pub(super) struct FramedRecord {
    pub record: Record,
    pub group: u64,
    pub is_last: bool,
    /// Size including padding.
    pub bytes: u64,
}

pub(super) const HEADER_BYTES: usize = 24;
/// Larger than any entry that consensus accepts.
pub(super) const PAYLOAD_BYTES_MAX: usize = 64 << 20;
pub(super) const VERSION: u8 = 1;
const FLAG_LAST: u8 = 1;
const KIND_START: u8 = 1;
const KIND_ENTRY: u8 = 2;
const KIND_HARD_STATE: u8 = 3;
const KIND_RESET: u8 = 4;
const MAGIC: u64 = u64::from_le_bytes(*b"KNARRLOG");

/// Appends a record; [`finish_group`] completes it when the group is complete.
pub(super) fn stage(out: &mut BytesMut, record: &Record) {
    let start = out.len();
    out.put_bytes(0, HEADER_BYTES);
    let kind = match record {
        Record::Start(start) => {
            out.put_u64_le(MAGIC);
            for field in [start.identity.0, start.identity.1, start.boot, start.previous_end] {
                out.put_u64_le(field);
            }
            put_hard_state(out, start.hard_state);
            KIND_START
        }
        Record::Entry(entry) => {
            entry.encode(out);
            KIND_ENTRY
        }
        Record::HardState(state) => {
            put_hard_state(out, *state);
            KIND_HARD_STATE
        }
        Record::Reset { index } => {
            out.put_u64_le(*index);
            KIND_RESET
        }
    };
    let length = u32::try_from(out.len() - start - HEADER_BYTES).expect("records are bounded");
    out.put_bytes(0, (length as usize).next_multiple_of(8) - length as usize);
    let header = &mut out[start..start + HEADER_BYTES];
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[16] = kind;
    header[17] = VERSION;
}

/// Sets the group number and checksums of all staged records.
pub(super) fn finish_group(staged: &mut BytesMut, segment: u32, group: u64) {
    let mut start = 0;
    while start < staged.len() {
        let length = u32::from_le_bytes(staged[start + 4..start + 8].try_into().expect("four bytes"));
        let end = start + HEADER_BYTES + (length as usize).next_multiple_of(8);
        let flags = if end == staged.len() { FLAG_LAST } else { 0 };
        let record = &mut staged[start..end];
        record[8..16].copy_from_slice(&group.to_le_bytes());
        record[18] = flags;
        record[20..24].copy_from_slice(&segment.to_le_bytes());
        let crc = crc32c::crc32c(&record[4..]);
        record[0..4].copy_from_slice(&crc.to_le_bytes());
        start = end;
    }
}

/// Encodes a record with any kind and payload, for tests of the reader.
pub(super) fn raw(kind: u8, flags: u8, group: u64, segment: u32, payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_bytes(0, HEADER_BYTES);
    out.put_slice(payload);
    out.put_bytes(0, payload.len().next_multiple_of(8) - payload.len());
    out[4..8].copy_from_slice(&u32::try_from(payload.len()).expect("records are bounded").to_le_bytes());
    out[8..16].copy_from_slice(&group.to_le_bytes());
    out[16..19].copy_from_slice(&[kind, VERSION, flags]);
    out[20..24].copy_from_slice(&segment.to_le_bytes());
    let crc = crc32c::crc32c(&out[4..]);
    out[0..4].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Returns the size of the record with this header, or `None` if the header is invalid.
pub(super) fn length(header: &[u8; HEADER_BYTES], segment: u32) -> Option<usize> {
    let length = u32::from_le_bytes(*header[4..].first_chunk()?) as usize;
    let is_header = header[20..24] == segment.to_le_bytes() && length <= PAYLOAD_BYTES_MAX;
    is_header.then(|| HEADER_BYTES + length.next_multiple_of(8))
}

/// Reads the record at the start of `bytes`, or `None` if it is incomplete or invalid.
pub(super) fn read(bytes: &[u8], segment: u32) -> Option<FramedRecord> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let end = length(header, segment)?;
    let body = bytes.get(4..end)?;
    if crc32c::crc32c(body).to_le_bytes() != header[0..4] {
        return None;
    }
    let length = u32::from_le_bytes(*header[4..].first_chunk()?) as usize;
    let payload = Bytes::copy_from_slice(&bytes[HEADER_BYTES..HEADER_BYTES + length]);
    let record = decode(header[16], header[17], payload).ok()?;
    let group = u64::from_le_bytes(*header[8..].first_chunk()?);
    Some(FramedRecord { record, group, is_last: header[18] & FLAG_LAST != 0, bytes: end as u64 })
}

pub(super) fn decode(kind: u8, version: u8, payload: Bytes) -> Result<Record, DecodeError> {
    if version != VERSION {
        return Err(DecodeError::Invalid("record.version"));
    }
    let mut reader = Reader::new(payload);
    let record = match kind {
        KIND_START => {
            if reader.u64("start.magic")? != MAGIC {
                return Err(DecodeError::Invalid("start.magic"));
            }
            let identity = (reader.u64("start.cluster")?, reader.u64("start.member")?);
            let boot = reader.u64("start.boot")?;
            let previous_end = reader.u64("start.previous_end")?;
            Record::Start(Start { identity, boot, hard_state: hard_state(&mut reader)?, previous_end })
        }
        KIND_ENTRY => Record::Entry(Entry::decode(&mut reader)?),
        KIND_HARD_STATE => Record::HardState(hard_state(&mut reader)?),
        KIND_RESET => Record::Reset { index: reader.u64("reset.index")? },
        _ => return Err(DecodeError::Invalid("record.kind")),
    };
    reader.finish("record")?;
    Ok(record)
}

fn put_hard_state(out: &mut BytesMut, state: HardState) {
    out.put_u64_le(state.term);
    out.put_u64_le(state.vote);
    out.put_u64_le(state.commit);
}

fn hard_state(reader: &mut Reader) -> Result<HardState, DecodeError> {
    Ok(HardState {
        term: reader.u64("hard_state.term")?,
        vote: reader.u64("hard_state.vote")?,
        commit: reader.u64("hard_state.commit")?,
    })
}
