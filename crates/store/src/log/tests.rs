//! Log tests on a real directory with truncated and damaged files.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use consensus::{Payload, RequestId};

use super::*;
use crate::disk::FileDisk;

const CONFIG: Config = Config { identity: (7, 1), segment_bytes: 4096 };

fn entry(index: u64, term: u64) -> Entry {
    let request = RequestId { origin: 1, sequence: index };
    Entry { index, term, payload: Payload::Command { request, data: Bytes::from(vec![b'x'; 100]) } }
}

fn open(path: &Path) -> Result<(Log<FileDisk>, Contents), LogError> {
    Log::open(FileDisk::open(path).expect("a directory"), CONFIG)
}

fn append(log: &mut Log<FileDisk>, entries: &[Entry]) {
    log.stage_entries(entries);
    log.write().expect("written");
    log.sync().expect("synced");
}

fn indexes(contents: &Contents) -> Vec<(u64, u64)> {
    contents.entries.iter().map(|entry| (entry.index, entry.term)).collect()
}

fn overwrite(path: &Path, segment: &str, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path.join(segment)).expect("a segment");
    file.write_all_at(bytes, offset).expect("written");
}

/// Returns the offset of a record in a segment.
fn offset_of(path: &Path, segment: u32, number: usize) -> u64 {
    let bytes = std::fs::read(path.join(segment_name(segment))).expect("a segment");
    (0..number).fold(0, |offset, _| {
        offset + record::read(&bytes[usize::try_from(offset).expect("small")..], segment).expect("whole").bytes
    })
}

#[test]
fn synced_records_are_recovered_from_many_segments() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut log, contents) = open(directory.path()).expect("empty");
    assert_eq!(contents, Contents { boot: 1, ..Contents::default() });
    (1..=100).for_each(|index| append(&mut log, &[entry(index, 1)]));
    let state = HardState { term: 4, vote: 2, commit: 99 };
    log.stage_hard_state(state);
    append(&mut log, &[entry(90, 4), entry(91, 4)]);
    let (_, contents) = open(directory.path()).expect("whole");
    let expect: Vec<_> = (1..90).map(|index| (index, 1)).chain([(90, 4), (91, 4)]).collect();
    assert_eq!(indexes(&contents), expect);
    assert_eq!((contents.hard_state, contents.boot, contents.torn_bytes), (state, 2, 0));
}

#[test]
fn torn_tail_is_truncated_at_any_position() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut log, _) = open(directory.path()).expect("empty");
    append(&mut log, &[entry(1, 1)]);
    append(&mut log, &[entry(2, 1), entry(3, 1), entry(4, 1)]);
    // The second of three records of the last group never reached the disk; the third did.
    overwrite(directory.path(), "00000001.log", offset_of(directory.path(), 1, 3) + 40, &[0; 64]);
    let (mut log, contents) = open(directory.path()).expect("cut");
    assert_eq!(indexes(&contents), [(1, 1), (2, 1)]);
    assert!(contents.torn_bytes > 0);
    append(&mut log, &[entry(3, 2)]);
    let (_, contents) = open(directory.path()).expect("whole");
    assert_eq!(indexes(&contents), [(1, 1), (2, 1), (3, 2)]);
}

#[test]
fn damage_before_a_later_group_is_not_a_torn_tail() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut log, _) = open(directory.path()).expect("empty");
    (1..=3).for_each(|index| append(&mut log, &[entry(index, 1)]));
    let offset = offset_of(directory.path(), 1, 2);
    overwrite(directory.path(), "00000001.log", offset + 40, b"?");
    let error = open(directory.path()).err().expect("damaged");
    assert!(matches!(error, LogError::Damaged { offset: at, .. } if at == offset), "{error}");
    assert!(error.to_string().contains("remove this member"), "{error}");
}

#[test]
fn damage_in_an_earlier_segment_is_never_a_torn_tail() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut log, _) = open(directory.path()).expect("empty");
    append(&mut log, &[entry(1, 1)]);
    drop(open(directory.path()).expect("a second segment"));
    overwrite(directory.path(), "00000001.log", offset_of(directory.path(), 1, 1) + 40, b"?");
    assert!(matches!(open(directory.path()).err(), Some(LogError::Damaged { .. })));
}

#[test]
fn segments_that_a_checkpoint_covers_are_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut log, _) = open(directory.path()).expect("empty");
    (1..=100).for_each(|index| append(&mut log, &[entry(index, 1)]));
    let before = log.closed.len();
    log.release(80).expect("removed");
    assert!(log.closed.len() < before);
    let (_, contents) = open(directory.path()).expect("whole");
    let first = contents.entries.first().map_or(0, |entry| entry.index);
    assert!((2..=81).contains(&first), "{first}");
    assert_eq!(contents.entries.last().map(|entry| entry.index), Some(100));
}

#[test]
fn reset_discards_entries_replaced_by_a_snapshot() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut log, _) = open(directory.path()).expect("empty");
    append(&mut log, &[entry(1, 1), entry(2, 1)]);
    log.stage_reset(10);
    append(&mut log, &[entry(11, 2)]);
    let (_, contents) = open(directory.path()).expect("whole");
    assert_eq!(indexes(&contents), [(11, 2)]);
}

/// A directory that rejects new files above a size, like a disk with limited space.
#[derive(Clone)]
struct Small(FileDisk, std::sync::Arc<std::sync::atomic::AtomicU64>);

impl Disk for Small {
    type File = std::fs::File;

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> io::Result<Self::File> {
        self.0.open(name)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Self::File> {
        let free_bytes = self.1.load(std::sync::atomic::Ordering::Relaxed);
        if bytes > free_bytes { Err(io::ErrorKind::StorageFull.into()) } else { self.0.create(name, bytes) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn reserve_becomes_a_segment_on_a_full_disk_and_is_replenished() {
    let directory = tempfile::tempdir().expect("a directory");
    let free_bytes = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(u64::MAX));
    let set_free_bytes = |bytes| free_bytes.store(bytes, std::sync::atomic::Ordering::Relaxed);
    let disk = Small(FileDisk::open(directory.path()).expect("a directory"), free_bytes.clone());
    let (mut log, _) = Log::open(disk.clone(), CONFIG).expect("empty");
    let mut next = 1;
    let mut append = |log: &mut Log<Small>| {
        log.stage_entries(&[entry(next, 1)]);
        log.write()?;
        log.sync()?;
        next += 1;
        Ok::<_, LogError>(())
    };
    append(&mut log).expect("there is room");
    set_free_bytes(0);
    while !log.is_low() {
        append(&mut log).expect("the segment has room, and then the reserve");
    }
    append(&mut log).expect("the reserve has room for more than one");
    log.replenish().expect("a full disk is not an error here");
    assert!(log.is_low());
    let full = loop {
        if let Err(full) = append(&mut log) {
            break full;
        }
    };
    assert!(matches!(full, LogError::Full(_)), "{full}");

    set_free_bytes(u64::MAX);
    log.write().expect("the rejected record is written now");
    log.sync().expect("synced");
    log.replenish().expect("there is room");
    assert!(!log.is_low());
    let (_, contents) = Log::open(disk, CONFIG).expect("whole");
    let written: Vec<u64> = contents.entries.iter().map(|entry| entry.index).collect();
    assert!(written.len() > 25 && written.windows(2).all(|pair| pair[1] == pair[0] + 1), "{written:?}");
}

#[test]
fn directory_of_another_member_is_rejected() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(open(directory.path()).expect("empty"));
    let other = Config { identity: (7, 2), ..CONFIG };
    let error = Log::open(FileDisk::open(directory.path()).expect("a directory"), other).err().expect("foreign");
    assert!(matches!(error, LogError::Foreign { found_member: 1, .. }), "{error}");
}
