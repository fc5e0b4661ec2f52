//! mimalloc: its use of memory from the kernel.

use std::ffi::{c_int, c_long, c_void};
use std::sync::Once;

pub use mimalloc::MiMalloc as Allocator;

/// The number of mimalloc's option `mi_option_arena_reserve` in its header.
const ARENA_RESERVE: c_int = 23;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_manage_os_memory(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
    ) -> bool;
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// Disables arena reservation. The kernel backs a reserved gigabyte with huge pages, of which mimalloc returns only
/// entirely free ones, and an idle process keeps a little data on each: that was half of a cluster's memory.
/// `MIMALLOC_ARENA_RESERVE` overrides this.
extern "C" fn reserve_nothing() {
    // SAFETY: the function belongs to mimalloc, which is linked because its type is used above. It stores a number in a
    // static, and no other code runs yet.
    unsafe { mi_option_set_default(ARENA_RESERVE, 0) };
}

/// Runs before `main`, and so before the first allocation, which would reserve an arena.
#[used]
// SAFETY: the section holds pointers to functions without arguments, which the loader calls sequentially.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = reserve_nothing;

/// Size of the address range for a busy process.
const ARENA_BYTES: usize = 256 << 20;

/// Adds an arena without huge pages for a busy process, so that freed memory is reused instead of being returned to the
/// kernel and requested again. The arena uses no memory before it is needed, and unused memory is returned after
/// mimalloc's purge delay.
pub fn reserve_arena() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (read_write, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: maps new addresses that no other code uses.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), ARENA_BYTES, read_write, own | libc::MAP_NORESERVE, -1, 0) };
        if start == libc::MAP_FAILED {
            // Without enough address space the process works without the arena.
            return;
        }
        // SAFETY: the range was mapped above, has no other user, and belongs to the allocator from here on. A kernel
        // without huge pages rejects the advice and does not need it.
        unsafe {
            libc::madvise(start, ARENA_BYTES, libc::MADV_NOHUGEPAGE);
            mi_manage_os_memory(start, ARENA_BYTES, true, false, true, -1);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_arena_can_be_repeated_and_allocations_work_afterwards() {
        reserve_arena();
        reserve_arena();
        let all: Vec<Vec<u8>> = (0..64).map(|number| vec![number; 100_000]).collect();
        assert!(all.iter().zip(0..).all(|(bytes, number)| bytes.iter().all(|byte| *byte == number)));
    }

    #[test]
    fn arena_reservation_is_disabled() {
        // SAFETY: the function reads a number from a static of mimalloc.
        assert_eq!(unsafe { mi_option_get(ARENA_RESERVE) }, 0);
    }
}
