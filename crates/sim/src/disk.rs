//! Simulated disk: after a crash, each unsynced sector is either kept or lost.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use store::disk::{Disk, DiskFile};

use crate::random::Random;

const SECTOR: usize = 512;

/// A shared handle to a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimDisk(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<u64, Content>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Directory changes since the last sync, in order.
    unsynced_names: Vec<NameChange>,
    next_file: u64,
    /// Number of operations until the power fails; none means never.
    power: Option<u64>,
    /// Whether the disk is full.
    full: bool,
}

#[derive(Debug, Default)]
struct Content {
    durable: Vec<u8>,
    seen: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(String, u64),
    Remove(String),
}

pub(crate) struct SimFile {
    disk: SimDisk,
    file: u64,
}

impl SimDisk {
    /// Lets the power fail after a number of operations.
    pub(crate) fn fail_after(&self, operations: u64) {
        self.inner().power = Some(operations);
    }

    /// Sets whether the disk is full: files keep their size and cannot grow.
    pub(crate) fn set_full(&self, full: bool) {
        self.inner().full = full;
    }

    /// Whether the power has failed.
    pub(crate) fn is_dead(&self) -> bool {
        self.inner().power == Some(0)
    }

    /// Applies a crash: directory entries are those of some moment since their last sync, and unsynced sectors survive
    /// at random.
    pub(crate) fn crash(&self, random: &mut Random) {
        let mut inner = self.inner();
        inner.power = None;
        let count = random.index(inner.unsynced_names.len() + 1);
        let changes: Vec<NameChange> = inner.unsynced_names.drain(..).take(count).collect();
        changes.into_iter().for_each(|change| change.apply(&mut inner.durable_names));
        inner.names = inner.durable_names.clone();
        for content in inner.files.values_mut() {
            let mut survived = content.durable.clone();
            for (offset, bytes) in content.unsynced.drain(..) {
                tear(&mut survived, offset, &bytes, random);
            }
            content.durable.clone_from(&survived);
            content.seen = survived;
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("a run has one thread")
    }

    fn operate(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.inner();
        match &mut inner.power {
            Some(0) => return Err(io::Error::other("the power is off")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(inner)
    }
}

/// Keeps a random subset of a write's sectors, mostly all or none.
fn tear(survived: &mut Vec<u8>, offset: usize, bytes: &[u8], random: &mut Random) {
    let percentage = [0, 50, 100][random.index(3)];
    let mut start = 0;
    while start < bytes.len() {
        let end = (((offset + start) / SECTOR + 1) * SECTOR - offset).min(bytes.len());
        if random.percent(percentage) {
            put(survived, offset + start, &bytes[start..end]);
        }
        start = end;
    }
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Set(name, file) => {
                names.retain(|_, other| *other != file);
                names.insert(name, file);
            }
            Self::Remove(name) => {
                names.remove(&name);
            }
        }
    }
}

impl Inner {
    fn change(&mut self, change: NameChange) {
        change.clone().apply(&mut self.names);
        self.unsynced_names.push(change);
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.operate()?.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let inner = self.operate()?;
        let file = *inner.names.get(name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(SimFile { disk: self.clone(), file })
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<SimFile> {
        let mut inner = self.operate()?;
        if inner.full && bytes > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inner.next_file += 1;
        let file = inner.next_file;
        let zeros = vec![0; usize::try_from(bytes).expect("simulated files are small")];
        inner.files.insert(file, Content { durable: zeros.clone(), seen: zeros, unsynced: Vec::new() });
        inner.change(NameChange::Set(name.to_owned(), file));
        Ok(SimFile { disk: self.clone(), file })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.operate()?;
        let file = *inner.names.get(from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        inner.change(NameChange::Set(to.to_owned(), file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.operate()?.change(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.operate()?;
        inner.unsynced_names.clear();
        inner.durable_names = inner.names.clone();
        let named: Vec<u64> = inner.names.values().copied().collect();
        inner.files.retain(|file, _| named.contains(file));
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.operate()?.files[&self.file].seen.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let inner = self.disk.operate()?;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = inner.files[&self.file].seen.get(start..start + buffer.len());
        buffer.copy_from_slice(bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.disk.operate()?;
        let full = inner.full;
        let content = inner.files.get_mut(&self.file).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        if full && offset + bytes.len() > content.seen.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        put(&mut content.seen, offset, bytes);
        content.unsynced.push((offset, bytes.to_vec()));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.disk.operate()?;
        let content = inner.files.get_mut(&self.file).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        for (offset, bytes) in content.unsynced.drain(..) {
            put(&mut content.durable, offset, &bytes);
        }
        Ok(())
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let mut inner = self.disk.operate()?;
        let content = inner.files.get_mut(&self.file).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        // A crash may undo a truncation of unused data. Losing the data immediately in both copies is the harder case.
        content.seen.truncate(length);
        content.durable.truncate(length);
        Ok(())
    }
}
