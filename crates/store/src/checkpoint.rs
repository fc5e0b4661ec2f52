//! Checkpoints: the entire state in one file, written to a temporary file, synced and renamed.
//!
//! ```text
//! "KNARRCKP" │ version │ header length │ header: index, term, group │ crc │ state … │ state length │ crc │ "END!"
//! ```

use std::io::{self, Read, Write};

use bytes::{BufMut, Bytes, BytesMut};
use consensus::codec::Reader;
use consensus::{DecodeError, Group, SnapshotMeta};
use mvcc::{CorruptCheckpoint, State};

use crate::disk::{Disk, DiskFile};
use crate::value_file::ValueFile;

/// A checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The disk is full; the previous checkpoint is intact.
    #[error("no space left on the disk for a checkpoint")]
    Full(#[source] io::Error),
    #[error("failed to write or read a checkpoint")]
    Disk(#[from] io::Error),
    #[error(
        "the checkpoint {name} is damaged: {what}. In a cluster, remove this member, empty its data directory and add it again; a single \
         member is restored from a snapshot (knarr store snapshot restore)"
    )]
    Damaged {
        /// The file name.
        name: String,
        what: &'static str,
    },
    #[error("the state in checkpoint {name} cannot be read")]
    State {
        name: String,
        #[source]
        source: CorruptCheckpoint,
    },
}

const MAGIC: &[u8; 8] = b"KNARRCKP";
const TAIL_MAGIC: &[u8; 4] = b"END!";
const VERSION: u32 = 1;
const UNFINISHED: &str = "unfinished-checkpoint-";
const PREFIX: &str = "checkpoint-";
/// Length, checksum, magic.
const TAIL_BYTES: u64 = 8 + 4 + 4;
/// Sanity limit: the header contains only index, term and membership.
const HEADER_BYTES_MAX: u32 = 64 << 20;
const BUFFER_BYTES: usize = 1 << 20;

/// Writes a checkpoint and removes older ones.
pub fn write<D: Disk>(disk: &D, meta: &SnapshotMeta, state: &State) -> Result<(), CheckpointError> {
    let unfinished = format!("{UNFINISHED}{:016x}", meta.index);
    write_unfinished(disk, &unfinished, meta, state).map_err(|error| {
        // The log needs the space of the partial file.
        let _ = disk.remove(&unfinished);
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CheckpointError::Full(error),
            _ => CheckpointError::Disk(error),
        }
    })?;
    let name = format!("{PREFIX}{:016x}", meta.index);
    disk.rename(&unfinished, &name)?;
    disk.sync()?;
    for older in disk.list()?.into_iter().filter(|other| other.starts_with(PREFIX) && *other < name) {
        disk.remove(&older)?;
    }
    Ok(())
}

/// Reads the newest checkpoint, if there is one.
pub fn read<D: Disk>(disk: &D) -> Result<Option<(SnapshotMeta, State)>, CheckpointError> {
    read_to(disk, &ValueFile::memory())
}

/// Like [`read`], but stores the values in `value_file`.
pub fn read_to<D: Disk>(disk: &D, value_file: &ValueFile) -> Result<Option<(SnapshotMeta, State)>, CheckpointError> {
    let names = disk.list()?;
    for unfinished in names.iter().filter(|name| name.starts_with(UNFINISHED)) {
        disk.remove(unfinished)?;
    }
    let Some(name) = names.into_iter().filter(|name| name.starts_with(PREFIX)).max() else { return Ok(None) };
    let damaged = |what| CheckpointError::Damaged { name: name.clone(), what };
    let file = disk.open(&name)?;
    let length = file.len()?;
    let mut input = Input { file: &file, offset: 0, end: length, crc: 0, buffer: Vec::new(), position: 0 };
    let meta = read_header(&mut input).map_err(damaged)?;
    let state_start = input.taken();
    let state_end = length.checked_sub(TAIL_BYTES).filter(|end| *end >= state_start);
    let state_end = state_end.ok_or_else(|| damaged("it is too short"))?;
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_at(state_end, &mut tail)?;
    if tail[12..] != *TAIL_MAGIC || tail[..8] != (state_end - state_start).to_le_bytes() {
        return Err(damaged("its trailer is invalid"));
    }
    let mut input = Input { file: &file, offset: state_start, end: state_end, crc: 0, buffer: Vec::new(), position: 0 };
    let state = State::read_to(&mut input, &mut |value| value_file.store(value));
    let state = state.map_err(|source| CheckpointError::State { name: name.clone(), source })?;
    io::copy(&mut input, &mut io::sink())?;
    if input.crc.to_le_bytes() != tail[8..12] {
        return Err(damaged("its checksum is wrong"));
    }
    if state.applied_index() != meta.index {
        return Err(damaged("header and state have different log indexes"));
    }
    Ok(Some((meta, state)))
}

fn write_unfinished<D: Disk>(disk: &D, name: &str, meta: &SnapshotMeta, state: &State) -> io::Result<()> {
    let mut file = disk.create(name, 0)?;
    let mut header = BytesMut::new();
    header.put_u64_le(meta.index);
    header.put_u64_le(meta.term);
    header.put_slice(&meta.group.encode());
    let mut output = Output { file: &mut file, offset: 0, crc: 0, buffer: Vec::with_capacity(BUFFER_BYTES) };
    output.write_all(MAGIC)?;
    output.write_all(&VERSION.to_le_bytes())?;
    output.write_all(&u32::try_from(header.len()).expect("a group is small").to_le_bytes())?;
    output.write_all(&header)?;
    output.write_all(&crc32c::crc32c(&header).to_le_bytes())?;
    output.flush()?;
    output.crc = 0;
    let start = output.offset;
    state.write_to(&mut output)?;
    output.flush()?;
    let (length, crc) = (output.offset - start, output.crc);
    output.write_all(&length.to_le_bytes())?;
    output.write_all(&crc.to_le_bytes())?;
    output.write_all(TAIL_MAGIC)?;
    output.flush()?;
    file.sync()
}

fn read_header(input: &mut impl Read) -> Result<SnapshotMeta, &'static str> {
    let mut fixed = [0; 16];
    input.read_exact(&mut fixed).map_err(|_| "it is too short")?;
    if fixed[..8] != *MAGIC {
        return Err("it is not a checkpoint");
    }
    if fixed[8..12] != VERSION.to_le_bytes() {
        return Err("it was written by another version");
    }
    let length = u32::from_le_bytes(fixed[12..].try_into().expect("four bytes"));
    if length > HEADER_BYTES_MAX {
        return Err("its header is too long");
    }
    let mut header = vec![0; length as usize];
    let mut crc = [0; 4];
    input.read_exact(&mut header).and_then(|()| input.read_exact(&mut crc)).map_err(|_| "it is too short")?;
    if crc32c::crc32c(&header).to_le_bytes() != crc {
        return Err("the checksum of its header is wrong");
    }
    decode_header(&Bytes::from(header)).map_err(|_| "its header makes no sense")
}

fn decode_header(header: &Bytes) -> Result<SnapshotMeta, DecodeError> {
    let mut reader = Reader::new(header.clone());
    let (index, term) = (reader.u64("checkpoint.index")?, reader.u64("checkpoint.term")?);
    Ok(SnapshotMeta { index, term, group: Group::decode(header.slice(16..))? })
}

/// Appends to a file with buffering and computes the checksum.
struct Output<'a, F> {
    file: &'a mut F,
    offset: u64,
    crc: u32,
    buffer: Vec<u8>,
}

impl<F: DiskFile> Write for Output<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(self.offset, &self.buffer)?;
        self.crc = crc32c::crc32c_append(self.crc, &self.buffer);
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Reads a part of a file with buffering and computes the checksum.
struct Input<'a, F> {
    file: &'a F,
    offset: u64,
    end: u64,
    crc: u32,
    buffer: Vec<u8>,
    position: usize,
}

impl<F> Input<'_, F> {
    fn taken(&self) -> u64 {
        self.offset - (self.buffer.len() - self.position) as u64
    }
}

impl<F: DiskFile> Read for Input<'_, F> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.position == self.buffer.len() {
            let length = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            self.buffer.resize(length, 0);
            self.file.read_at(self.offset, &mut self.buffer)?;
            self.crc = crc32c::crc32c_append(self.crc, &self.buffer);
            self.offset += length as u64;
            self.position = 0;
        }
        let count = out.len().min(self.buffer.len() - self.position);
        out[..count].copy_from_slice(&self.buffer[self.position..self.position + count]);
        self.position += count;
        Ok(count)
    }
}
