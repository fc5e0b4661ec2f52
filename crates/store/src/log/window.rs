//! Piecewise reading of a log segment, to limit memory usage.

use super::record::{self, FramedRecord, HEADER_BYTES};
use super::{LogError, segment_name};
use crate::disk::{Disk, DiskFile};

/// Minimum size of a read.
const PIECE: u64 = 256 << 10;

/// A segment and the piece of it that is in memory.
pub(super) struct Window<F> {
    file: F,
    pub sequence: u32,
    length: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<F: DiskFile> Window<F> {
    pub(super) fn open<D: Disk<File = F>>(disk: &D, sequence: u32) -> Result<Self, LogError> {
        let file = disk.open(&segment_name(sequence)).map_err(failed)?;
        let length = file.len().map_err(failed)?;
        Ok(Self { file, sequence, length, start: 0, bytes: Vec::new() })
    }

    /// Returns the record at an offset, or `None` if it is incomplete or invalid.
    pub(super) fn record(&mut self, offset: u64) -> Result<Option<FramedRecord>, LogError> {
        let sequence = self.sequence;
        let Some(header) = self.bytes(offset, HEADER_BYTES as u64)? else { return Ok(None) };
        let header = header.first_chunk().expect("the window has the requested length");
        let Some(length) = record::length(header, sequence) else { return Ok(None) };
        Ok(self.bytes(offset, length as u64)?.and_then(|bytes| record::read(bytes, sequence)))
    }

    /// Returns the length without trailing zeros.
    pub(super) fn written(&mut self) -> Result<u64, LogError> {
        let mut end = self.length;
        while end > 0 {
            let start = end.saturating_sub(PIECE);
            let bytes = self.bytes(start, end - start)?.expect("within the segment");
            // Branch-free per byte, because the unused rest of a segment is long.
            if bytes.iter().fold(0, |all, byte| all | byte) != 0 {
                let last = bytes.iter().rposition(|byte| *byte != 0).expect("not all are zero");
                return Ok(start + last as u64 + 1);
            }
            end = start;
        }
        Ok(0)
    }

    /// Returns `count` bytes at an offset, or `None` beyond the end of the segment.
    fn bytes(&mut self, offset: u64, count: u64) -> Result<Option<&[u8]>, LogError> {
        let Some(end) = offset.checked_add(count).filter(|end| *end <= self.length) else { return Ok(None) };
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let bytes = count.max(PIECE).min(self.length - offset);
            self.bytes.resize(usize::try_from(bytes).expect("a record fits into memory"), 0);
            self.start = offset;
            self.file.read_at(offset, &mut self.bytes).map_err(failed)?;
        }
        let from = usize::try_from(offset - self.start).expect("within the piece");
        Ok(Some(&self.bytes[from..][..usize::try_from(count).expect("within the piece")]))
    }
}

fn failed(source: std::io::Error) -> LogError {
    LogError::Disk { what: "read a segment", source }
}
