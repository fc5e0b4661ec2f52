//! Size limits of unpacking, against decompression bombs and full disks.

use std::cell::RefCell;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::StatVfs;

/// Maximum bytes of a layer.
const BYTES_MAX: u64 = 256 << 30;
/// Maximum entries of a layer.
const ENTRIES_MAX: u64 = 20_000_000;
/// Maximum compression ratio; programs and disk images in real layers stay below.
const RATIO_MAX: u64 = 200;
/// Size up to which the ratio is not limited, since long runs of zeros compress extremely well.
const RATIO_FREE_BYTES: u64 = 1 << 30;
/// Divisor of the disk space that unpacking leaves free (1/100), so that the host stays operable.
const RESERVED_FRACTION: u64 = 100;
/// Maximum size of the long names and attributes of an entry, which are read into memory.
const METADATA_BYTES_MAX: u64 = 4 << 20;

/// The limits of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveLimits {
    /// Maximum total size of all files.
    pub bytes: u64,
    /// Description of the bound on bytes, for the error message.
    pub bound: String,
    /// Maximum number of entries of any type.
    pub entries: u64,
}

impl ArchiveLimits {
    /// Returns the limits of an archive of `packed` bytes on the filesystem of a directory.
    pub(crate) fn of(packed: u64, dir: &Path) -> io::Result<ArchiveLimits> {
        Ok(ArchiveLimits::on(packed, &rustix::fs::statvfs(dir)?))
    }

    fn on(packed: u64, disk: &StatVfs) -> ArchiveLimits {
        let reserved = disk.f_blocks / RESERVED_FRACTION;
        let free = disk.f_bavail.saturating_sub(reserved).saturating_mul(disk.f_frsize);
        let by_ratio = packed.saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES);
        let bounds = [
            (BYTES_MAX, format!("{} GiB", BYTES_MAX >> 30)),
            (by_ratio, format!("{by_ratio} bytes, which {packed} bytes may unpack to")),
            (free, format!("the {free} bytes that its disk can give")),
        ];
        let (bytes, bound) =
            bounds.into_iter().min_by_key(|(bytes, _)| *bytes).expect("the list of bounds is not empty");
        // Some filesystems allocate inodes dynamically and report zero.
        let inodes = if disk.f_files == 0 { u64::MAX } else { disk.f_favail - disk.f_favail / RESERVED_FRACTION };
        ArchiveLimits { bytes, bound, entries: inodes.min(ENTRIES_MAX) }
    }
}

/// A reader that limits the bytes between two entries to those of a name and attributes.
pub(super) struct MeteredReader<R> {
    inner: R,
    allowance: Allowance,
}

/// The bytes that may be read before the next entry, and those that were.
#[derive(Clone, Default)]
pub(super) struct Allowance(Rc<RefCell<Header>>);

#[derive(Default)]
struct Header {
    /// Remaining bytes; `None` while the content of an entry is read.
    left: Option<u64>,
    /// Bytes read since the last entry, and their offset in the archive.
    read: Vec<u8>,
    offset: u64,
    /// Current offset in the archive.
    position: u64,
}

impl Allowance {
    pub(super) fn start(&self) {
        let mut header = self.0.borrow_mut();
        header.left = Some(METADATA_BYTES_MAX);
        header.read.clear();
        header.offset = header.position;
    }

    pub(super) fn end(&self) {
        self.0.borrow_mut().left = None;
    }

    /// Returns the bytes read between `start` and `end`, and their offset in the archive.
    pub(super) fn header(&self) -> (Vec<u8>, u64) {
        let mut header = self.0.borrow_mut();
        (std::mem::take(&mut header.read), header.offset)
    }
}

impl<R> MeteredReader<R> {
    pub(super) fn new(inner: R, allowance: &Allowance) -> MeteredReader<R> {
        MeteredReader { inner, allowance: allowance.clone() }
    }
}

impl<R: Read> Read for MeteredReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let mut header = self.allowance.0.borrow_mut();
        header.position += count as u64;
        if let Some(left) = header.left {
            let left = left.checked_sub(count as u64);
            header.left = Some(left.ok_or_else(|| io::Error::other("an entry's name and attributes have no end"))?);
            header.read.extend_from_slice(&buffer[..count]);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_size_is_limited_by_ratio_maximum_and_disk() {
        let check = |packed: u64, free_bytes: u64, files: (u64, u64), bytes: u64, bound: &str, entries: u64| {
            let mut disk = rustix::fs::statvfs("/").unwrap();
            (disk.f_frsize, disk.f_blocks) = (4096, 1 << 30);
            disk.f_bavail = free_bytes / 4096 + disk.f_blocks / RESERVED_FRACTION;
            (disk.f_files, disk.f_favail) = files;
            let limits = ArchiveLimits::on(packed, &disk);
            assert_eq!((limits.bytes, limits.entries), (bytes, entries), "{packed} {free_bytes}: {limits:?}");
            assert!(limits.bound.contains(bound), "{limits:?}");
        };
        let (gib, files) = (1u64 << 30, (1000, 1000));
        check(10, 100 * gib, files, gib, "may unpack to", 990);
        check(gib, 1000 * gib, files, 200 * gib, "may unpack to", 990);
        check(10 * gib, 1000 * gib, files, 256 * gib, "256 GiB", 990);
        check(gib, 5 * gib, files, 5 * gib, "its disk can give", 990);
        check(10, 0, (0, 0), 0, "its disk can give", ENTRIES_MAX);
    }
}
