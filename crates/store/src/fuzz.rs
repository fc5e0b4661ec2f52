//! Entry points of the fuzz targets for log records and peer messages, also used to replay their corpora.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use consensus::{Config, Group, Member, Peer, RecoveredState, SnapshotMeta};

use crate::disk::{Disk, DiskFile};
use crate::value_file::ValueFile;
use crate::{log, peer};

const IDENTITY: (u64, u64) = (7, 1);

/// Parses bytes as log records: unchanged, and with corrected checksums to reach the code behind them. A log that can
/// be read must give the same result when read again.
pub fn wal_frames(input: &[u8]) {
    log::fuzz::records(input);
    for segment in [input.to_vec(), log::fuzz::segment_of(input, IDENTITY)] {
        let disk = Memory::default();
        disk.files().insert(log::fuzz::first_segment(), Arc::new(Mutex::new(segment)));
        let read = || log::fuzz::contents(&disk, IDENTITY, &ValueFile::memory());
        if let Some(contents) = read() {
            assert_eq!(read().as_ref(), Some(&contents), "reading changes the log");
            let indexes: Vec<u64> = contents.entries.iter().map(|entry| entry.index).collect();
            assert!(indexes.windows(2).all(|pair| pair[1] == pair[0] + 1), "a log has a gap: {indexes:?}");
        }
    }
}

/// Parses bytes as peer messages and delivers them to a follower and a leader; neither may panic.
pub fn peer_frames(input: &[u8]) {
    let Some(message) = peer::fuzz::message(input) else { return };
    for mut member in [member(1, 3), member(1, 1)] {
        member.campaign();
        drain(&mut member);
        // Invalid messages are rejected with an error.
        let _ = member.message(2, message.clone());
        drain(&mut member);
        member.tick();
        drain(&mut member);
    }
}

/// Returns member `id` of a cluster in which the members after `voters` are learners. A single voter becomes leader.
fn member(id: u64, voters: u64) -> Member {
    let peer = |id: u64| Peer {
        id,
        name: format!("m{id}"),
        peer_urls: vec![format!("http://127.0.0.1:{}", 2380 + id)],
        client_urls: Vec::new(),
        learner: id > voters,
    };
    let config = Config {
        id,
        heartbeat_ticks: 1,
        election_ticks: 10,
        seed: 1,
        boot: 1,
        message_bytes_max: 1 << 20,
        uncommitted_bytes_max: 1 << 20,
    };
    let snapshot = SnapshotMeta { index: 1, term: 1, group: Group::new((1..=voters.max(2)).map(peer)) };
    Member::new(config, RecoveredState { snapshot, ..RecoveredState::default() })
}

fn drain(member: &mut Member) {
    while let Some(effects) = member.effects() {
        let applied = effects.committed.len() as u64;
        if let Some(persist) = effects.persist {
            member.persisted(persist.number);
        }
        if applied > 0 {
            member.applied(member.status().handed_out);
        }
    }
}

/// An in-memory directory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Files>>);

type Files = BTreeMap<String, Arc<Mutex<Vec<u8>>>>;

struct MemoryFile(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn files(&self) -> std::sync::MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryFile {
    fn bytes(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for Memory {
    type File = MemoryFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        self.files().get(name).cloned().map(MemoryFile).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<MemoryFile> {
        let file = Arc::new(Mutex::new(vec![0; usize::try_from(bytes).map_err(io::Error::other)?]));
        self.files().insert(name.to_owned(), Arc::clone(&file));
        Ok(MemoryFile(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.files().remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.files().insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes();
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let part = from.checked_add(buffer.len()).and_then(|to| bytes.get(from..to));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, new: &[u8]) -> io::Result<()> {
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let mut bytes = self.bytes();
        if bytes.len() < from + new.len() {
            bytes.resize(from + new.len(), 0);
        }
        bytes[from..from + new.len()].copy_from_slice(new);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes().truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use consensus::{Change, Message, Payload, RequestId};

    use super::*;

    fn replay(target: &str, seeds: Vec<(&str, Vec<u8>)>, check: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let count = seeds.len();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(&corpus).unwrap();
            seeds.into_iter().for_each(|(name, bytes)| std::fs::write(corpus.join(name), bytes).unwrap());
        }
        let files: Vec<_> = std::fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= count, "{files:?}");
        files.iter().for_each(|file| check(&std::fs::read(file).unwrap()));
    }

    fn payloads() -> Vec<Payload> {
        let request = RequestId { origin: 2, sequence: 1 };
        let peer = Peer { id: 9, name: "nine".into(), peer_urls: vec![], client_urls: vec![], learner: true };
        vec![
            Payload::Empty,
            Payload::Command { request, data: Bytes::from_static(b"put") },
            Payload::Change { request, change: Change::Add(peer) },
            Payload::Change { request, change: Change::Remove { id: 2 } },
        ]
    }

    #[test]
    fn log_record_corpus_passes() {
        replay("wal_frames", log::fuzz::seeds(&payloads(), IDENTITY), wal_frames);
    }

    #[test]
    fn peer_frame_corpus_passes() {
        let mut follower = member(2, 3);
        (0..30).for_each(|_| follower.tick());
        let mut messages = Vec::new();
        while let Some(effects) = follower.effects() {
            messages.extend(effects.send.into_iter().map(|(_, message)| message));
            if let Some(persist) = effects.persist {
                follower.persisted(persist.number);
            }
        }
        assert!(!messages.is_empty(), "a candidate requests votes");
        let forwarded = payloads().into_iter().filter(|payload| *payload != Payload::Empty).collect();
        messages.push(Message::Forward(forwarded));
        replay("peer_frames", peer::fuzz::seeds(&messages), peer_frames);
    }
}
