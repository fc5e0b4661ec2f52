//! Log recovery: distinguishes complete records, torn tails and damage.

use consensus::{Entry, Payload};

use super::record::{FramedRecord, Record, Start};
use super::window::Window;
use super::{Contents, LogError, UNFINISHED, segment_name, segment_sequence};
use crate::disk::{Disk, DiskFile};
use crate::value_file::ValueFile;

/// The content of a log directory.
pub(super) struct RecoveredLog {
    pub contents: Contents,
    /// Segments in order, each with its newest index.
    pub segments: Vec<(u32, u64)>,
    /// End offset of the last segment.
    pub end: u64,
}

pub(super) fn recover<D: Disk>(
    disk: &D,
    identity: (u64, u64),
    value_file: &ValueFile,
) -> Result<RecoveredLog, LogError> {
    let failed = |source| LogError::Disk { what: "list its segments", source };
    let names = disk.list().map_err(failed)?;
    if names.iter().any(|name| name == UNFINISHED) {
        disk.remove(UNFINISHED).map_err(failed)?;
    }
    let mut sequences: Vec<u32> = names.iter().filter_map(|name| segment_sequence(name)).collect();
    sequences.sort_unstable();
    check_unbroken(&sequences)?;
    let recovered = RecoveredLog { contents: Contents::default(), segments: Vec::new(), end: 0 };
    let mut reading = Reading { identity, value_file, recovered };
    for (position, sequence) in sequences.iter().enumerate() {
        let limit = match sequences.get(position + 1) {
            Some(next) => Some(start_of(&mut Window::open(disk, *next)?)?.previous_end),
            None => None,
        };
        reading.segment(&mut Window::open(disk, *sequence)?, limit)?;
    }
    Ok(reading.recovered)
}

/// Returns the cluster ID and member ID from the first segment.
pub(super) fn identity<D: Disk>(disk: &D) -> Result<Option<(u64, u64)>, LogError> {
    let names = disk.list().map_err(|source| LogError::Disk { what: "list its segments", source })?;
    let Some(first) = names.iter().filter_map(|name| segment_sequence(name)).min() else { return Ok(None) };
    Ok(Some(start_of(&mut Window::open(disk, first)?)?.identity))
}

struct Reading<'a> {
    identity: (u64, u64),
    value_file: &'a ValueFile,
    recovered: RecoveredLog,
}

impl Reading<'_> {
    /// Reads one segment up to `limit` (recorded by the next segment), or as far as it is complete.
    fn segment<F: DiskFile>(&mut self, window: &mut Window<F>, limit: Option<u64>) -> Result<(), LogError> {
        let sequence = window.sequence;
        let damaged = |offset, what| LogError::Damaged { segment: segment_name(sequence), offset, what };
        self.start(window)?;
        let mut newest_index = 0;
        let mut last: Option<FramedRecord> = None;
        let mut offset = 0;
        while limit.is_none_or(|limit| offset < limit) {
            let group = next_group(last.as_ref());
            let next = window.record(offset)?.filter(|framed| framed.group == group);
            let Some(framed) = next else {
                if limit.is_some() {
                    return Err(damaged(offset, "a record in the middle of the log is broken"));
                }
                break;
            };
            if let Record::Entry(entry) = &framed.record {
                newest_index = newest_index.max(entry.index);
                if !self.may_follow(entry) {
                    return Err(damaged(offset, "an entry is missing"));
                }
            }
            offset += framed.bytes;
            self.take(&framed.record);
            last = Some(framed);
        }
        if limit.is_none() {
            self.cut(window, offset, last.as_ref())?;
        }
        self.recovered.end = offset;
        self.recovered.segments.push((sequence, newest_index));
        Ok(())
    }

    fn start<F: DiskFile>(&mut self, window: &mut Window<F>) -> Result<(), LogError> {
        let start = start_of(window)?;
        if start.identity != self.identity {
            return Err(LogError::Foreign {
                cluster: self.identity.0,
                member: self.identity.1,
                found_cluster: start.identity.0,
                found_member: start.identity.1,
            });
        }
        self.recovered.contents.boot = start.boot;
        self.recovered.contents.hard_state = start.hard_state;
        Ok(())
    }

    fn may_follow(&self, entry: &Entry) -> bool {
        let entries = &self.recovered.contents.entries;
        entries.last().is_none_or(|last| entry.index <= last.index + 1)
    }

    fn take(&mut self, record: &Record) {
        let contents = &mut self.recovered.contents;
        match record {
            Record::Start(_) => {}
            Record::HardState(state) => contents.hard_state = *state,
            Record::Reset { .. } => contents.entries.clear(),
            Record::Entry(entry) => {
                let first = contents.entries.first().map_or(entry.index, |first| first.index);
                let keep = usize::try_from(entry.index.saturating_sub(first)).unwrap_or(usize::MAX);
                contents.entries.truncate(keep);
                let mut entry = entry.clone();
                if let Payload::Command { data, .. } = &mut entry.payload {
                    *data = self.value_file.store(data);
                }
                contents.entries.push(entry);
            }
        }
    }

    /// Decides whether the bytes after the last complete record are a torn tail or damage. A group is torn only if no
    /// later group was written.
    fn cut<F: DiskFile>(
        &mut self,
        window: &mut Window<F>,
        end: u64,
        last: Option<&FramedRecord>,
    ) -> Result<(), LogError> {
        let torn_group = next_group(last);
        let written = window.written()?;
        let mut offset = end;
        while offset < written {
            match window.record(offset)? {
                Some(framed) if framed.group > torn_group => {
                    let what = "a record is broken, and whole ones that were written later follow it";
                    return Err(LogError::Damaged { segment: segment_name(window.sequence), offset: end, what });
                }
                Some(framed) => offset += framed.bytes,
                None => offset += 8,
            }
        }
        self.recovered.contents.torn_bytes = written.saturating_sub(end);
        Ok(())
    }
}

/// Returns the group of the next record.
fn next_group(last: Option<&FramedRecord>) -> u64 {
    last.map_or(0, |last| last.group.saturating_add(u64::from(last.is_last)))
}

fn start_of<F: DiskFile>(window: &mut Window<F>) -> Result<Start, LogError> {
    match window.record(0)?.map(|framed| framed.record) {
        Some(Record::Start(start)) => Ok(start),
        _ => {
            let what = "its first record is broken";
            Err(LogError::Damaged { segment: segment_name(window.sequence), offset: 0, what })
        }
    }
}

fn check_unbroken(sequences: &[u32]) -> Result<(), LogError> {
    let missing = sequences.windows(2).find(|pair| pair[0].checked_add(1) != Some(pair[1]));
    missing.map_or(Ok(()), |pair| {
        let segment = segment_name(pair[0] + 1);
        Err(LogError::Damaged { segment, offset: 0, what: "the segment is missing" })
    })
}
