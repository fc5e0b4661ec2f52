//! Spill file: an unnamed file for values, mapped for reading, so that the kernel can reclaim their memory.
//!
//! ```text
//!   file    │ block 0: slots of 1152 bytes │ block 1: slots of 320 bytes │ block 2: empty, a hole │ …
//!   extent  │ 64 blocks, mapped together                                                      │ …
//! ```
//!
//! Values are written with a system call and not through the mapping, so that only read pages count as memory of this
//! process. A slot is written only while it has no holder; a [`Slot`] is therefore a slice that never changes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A file that stores values outside of the heap.
pub struct Spill {
    file: File,
    allocation: Mutex<Allocation>,
    this: Weak<Spill>,
}

/// A stored value. Its bytes never change, and its space is reused once it is dropped.
///
/// Reading a slot reads a mapped file: if the disk fails to return the bytes, the process receives a SIGBUS, as with a
/// database that maps its file.
pub struct Slot {
    extent: Arc<Extent>,
    /// Relative to the extent.
    offset: u32,
    len: u32,
}

/// Maximum length of a value.
pub const SLOT_BYTES_MAX: usize = BLOCK_BYTES as usize;

const BLOCK_BYTES: u32 = 1 << 20;
const EXTENT_BLOCKS: u32 = 64;
const EXTENT_BYTES: usize = (BLOCK_BYTES * EXTENT_BLOCKS) as usize;
/// Slot sizes are multiples of this.
const STEP_BYTES_MIN: u32 = 64;

struct Extent {
    number: u32,
    base: NonNull<u8>,
    spill: Weak<Spill>,
}

/// The allocation state of the file.
#[derive(Default)]
struct Allocation {
    extents: Vec<Arc<Extent>>,
    blocks: Vec<Block>,
    /// Blocks without a value.
    empty: Vec<u32>,
    /// Blocks with a free slot, by slot size.
    open: BTreeMap<u32, Vec<u32>>,
}

#[derive(Default)]
struct Block {
    slot_bytes: u32,
    /// Released slots.
    free: Vec<u32>,
    /// The number of slots ever used; the slots after them are free, too.
    touched: u32,
    live: u32,
}

impl Spill {
    /// Creates the file and unlinks it immediately, so that its content does not outlive the process.
    pub fn create(path: &Path) -> io::Result<Arc<Self>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        std::fs::remove_file(path)?;
        Ok(Arc::new_cyclic(|this| Self { file, allocation: Mutex::default(), this: this.clone() }))
    }

    /// Stores a value.
    ///
    /// # Errors
    /// If the disk is full, or the value is empty or longer than [`SLOT_BYTES_MAX`].
    pub fn put(&self, value: &[u8]) -> io::Result<Slot> {
        let len = u32::try_from(value.len()).ok().filter(|len| (1..=BLOCK_BYTES).contains(len));
        let len = len.ok_or(io::ErrorKind::InvalidInput)?;
        let (extent, offset) = self.take(slot_bytes(len))?;
        // From here on dropping the slot releases it, even if the write fails.
        let slot = Slot { extent, offset, len };
        self.file.write_all_at(value, slot.file_offset())?;
        Ok(slot)
    }

    /// Unmaps the pages that were read from this process; they stay in the page cache as long as there is memory.
    pub fn trim(&self) {
        let extents = self.lock().extents.clone();
        for extent in extents {
            // SAFETY: the range is a shared mapping of a file that lives as long as the extent; dropping its pages
            // loses nothing, they are read from the file again. Rejected advice has no effect.
            unsafe { libc::madvise(extent.base.as_ptr().cast(), EXTENT_BYTES, libc::MADV_DONTNEED) };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Allocation> {
        self.allocation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, slot_bytes: u32) -> io::Result<(Arc<Extent>, u32)> {
        let mut allocation = self.lock();
        let number = match allocation.open.get(&slot_bytes).and_then(|open| open.last().copied()) {
            Some(number) => number,
            None => self.open_block(&mut allocation, slot_bytes)?,
        };
        let block = &mut allocation.blocks[number as usize];
        let slot = block.free.pop().unwrap_or_else(|| {
            block.touched += 1;
            block.touched - 1
        });
        block.live += 1;
        if block.is_full() {
            allocation.open.entry(slot_bytes).or_default().pop();
        }
        let extent = allocation.extents[(number / EXTENT_BLOCKS) as usize].clone();
        Ok((extent, number % EXTENT_BLOCKS * BLOCK_BYTES + slot * slot_bytes))
    }

    fn open_block(&self, allocation: &mut Allocation, slot_bytes: u32) -> io::Result<u32> {
        if allocation.empty.is_empty() {
            let number = u32::try_from(allocation.extents.len()).map_err(io::Error::other)?;
            allocation.extents.push(Arc::new(self.map(number)?));
            let first = number * EXTENT_BLOCKS;
            allocation.blocks.resize_with((first + EXTENT_BLOCKS) as usize, Block::default);
            allocation.empty.extend((first..first + EXTENT_BLOCKS).rev());
        }
        let number = allocation.empty.pop().ok_or(io::ErrorKind::StorageFull)?;
        allocation.blocks[number as usize] = Block { slot_bytes, ..Block::default() };
        allocation.open.entry(slot_bytes).or_default().push(number);
        Ok(number)
    }

    fn map(&self, number: u32) -> io::Result<Extent> {
        let start = u64::from(number) * EXTENT_BYTES as u64;
        self.file.set_len(start + EXTENT_BYTES as u64)?;
        let offset = libc::off_t::try_from(start).map_err(io::Error::other)?;
        // SAFETY: a new mapping, at an address chosen by the kernel, of a part of the file that exists since the line
        // above and is never truncated: the file has no name, and only this type has a handle to it.
        let base = unsafe {
            let fd = self.file.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), EXTENT_BYTES, libc::PROT_READ, libc::MAP_SHARED, fd, offset)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as in `trim`. Read-ahead would only waste memory: adjacent values are unrelated.
        unsafe { libc::madvise(base, EXTENT_BYTES, libc::MADV_RANDOM) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Extent { number, base, spill: self.this.clone() })
    }

    fn release_slot(&self, extent: u32, offset: u32) {
        let number = extent * EXTENT_BLOCKS + offset / BLOCK_BYTES;
        let mut allocation = self.lock();
        let allocation = &mut *allocation;
        let block = &mut allocation.blocks[number as usize];
        let was_full = block.is_full();
        block.free.push(offset % BLOCK_BYTES / block.slot_bytes);
        block.live -= 1;
        let open = allocation.open.entry(block.slot_bytes).or_default();
        if was_full {
            open.push(number);
        }
        // The last block of its size is kept; otherwise repeatedly replacing one value would create and free a block
        // each time.
        if block.live == 0 && open.len() > 1 {
            open.retain(|other| *other != number);
            *block = Block::default();
            allocation.empty.push(number);
            // The hole is punched before the block can be written again. On failure the space is reused anyway.
            let start = u64::from(number) * u64::from(BLOCK_BYTES);
            let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.file, hole, start, u64::from(BLOCK_BYTES));
        }
    }
}

impl Block {
    fn is_full(&self) -> bool {
        self.free.is_empty() && self.touched >= BLOCK_BYTES / self.slot_bytes
    }
}

/// Returns the slot size for values of a length. From 512 bytes on at most an eighth is wasted.
fn slot_bytes(len: u32) -> u32 {
    let step = (len.next_power_of_two() / 16).max(STEP_BYTES_MIN);
    len.next_multiple_of(step)
}

impl Slot {
    fn file_offset(&self) -> u64 {
        u64::from(self.extent.number) * EXTENT_BYTES as u64 + u64::from(self.offset)
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: offset and length are within the mapping, which lives as long as the extent that this slot holds. The
        // bytes do not change, because a slot is written before its value is returned and not reused until that is
        // dropped.
        unsafe { std::slice::from_raw_parts(self.extent.base.as_ptr().add(self.offset as usize), self.len as usize) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(spill) = self.extent.spill.upgrade() {
            spill.release_slot(self.extent.number, self.offset);
        }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        // SAFETY: the mapping was created by `map` with this address and length, and no slot of it exists any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), EXTENT_BYTES) };
    }
}

// SAFETY: an extent is the address of read-only memory, which is unmapped once by the last owner.
unsafe impl Send for Extent {}
// SAFETY: as above.
unsafe impl Sync for Extent {}

#[cfg(test)]
mod tests {
    use super::*;

    fn spill() -> Arc<Spill> {
        let path =
            std::env::temp_dir().join(format!("knarr-spill-{}-{:?}", std::process::id(), std::thread::current().id()));
        Spill::create(&path).expect("the temporary directory is writable")
    }

    fn value(seed: u32, len: usize) -> Vec<u8> {
        (0..len).map(|at| (seed.wrapping_mul(31).wrapping_add(at as u32) % 251) as u8).collect()
    }

    #[test]
    fn values_keep_their_bytes_while_others_are_added_and_dropped() {
        let spill = spill();
        let mut slots: Vec<(u32, Slot)> = Vec::new();
        let mut random = 7_u32;
        for seed in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = 1 + (random >> 8) as usize % 3000;
            slots.push((seed, spill.put(&value(seed, len)).expect("there is room")));
            if random.is_multiple_of(3) || slots.len() > 2000 {
                slots.swap_remove((random >> 4) as usize % slots.len());
            }
            if seed.is_multiple_of(5000) {
                spill.trim();
            }
        }
        for (seed, slot) in &slots {
            assert_eq!(slot.as_ref(), value(*seed, slot.len as usize), "value {seed}");
        }
    }

    #[test]
    fn released_space_is_reused() {
        let spill = spill();
        for round in 0..50 {
            let slots: Vec<Slot> = (0..3000).map(|seed| spill.put(&value(seed, 1000 + round)).expect("room")).collect();
            assert_eq!(slots[2999].as_ref(), value(2999, 1000 + round));
        }
        // 3,000 values of 1 KiB are three blocks; the values of one size are dropped before the next size follows.
        assert_eq!(spill.lock().extents.len(), 1);
        assert!(spill.lock().blocks.iter().all(|block| block.live == 0));
    }

    #[test]
    fn value_outlives_the_spill() {
        let slot = spill().put(b"value").expect("there is room");
        assert_eq!(slot.as_ref(), b"value");
    }

    #[test]
    fn empty_and_oversized_values_are_rejected() {
        let spill = spill();
        assert!(spill.put(&[]).is_err());
        assert!(spill.put(&vec![1; SLOT_BYTES_MAX + 1]).is_err());
        let longest = spill.put(&vec![1; SLOT_BYTES_MAX]).expect("there is room");
        assert_eq!(longest.as_ref().len(), SLOT_BYTES_MAX);
    }

    #[test]
    fn slots_waste_little() {
        for len in 1..=BLOCK_BYTES {
            let slot = slot_bytes(len);
            assert!(
                slot >= len && slot - len < STEP_BYTES_MIN.max(len / 8 + 1) && slot <= BLOCK_BYTES,
                "{len}: {slot}"
            );
        }
    }
}
