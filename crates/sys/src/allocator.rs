//! How the allocator of our programs takes memory from the kernel.

use std::ffi::{c_int, c_long, c_void};
use std::sync::Once;

pub use mimalloc::MiMalloc as Allocator;

/// Its option that says how much is reserved ahead, by the number that its header gives it.
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

/// Nothing is reserved ahead. Of a reserved gigabyte the kernel makes huge pages, the allocator gives back only whole ones, and
/// an idle process keeps a little on each of them: half of what a cluster used was that. `MIMALLOC_ARENA_RESERVE` says otherwise.
extern "C" fn reserve_nothing() {
    // SAFETY: the function is the allocator's own, which is linked because its type is used above. It stores a number in a
    // static, and nothing else runs yet.
    unsafe { mi_option_set_default(ARENA_RESERVE, 0) };
}

/// Run before `main`, and so before the first allocation, which would reserve.
#[used]
// SAFETY: the section holds pointers to functions without arguments, which the loader calls one after the other.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = reserve_nothing;

/// Addresses that a busy process works in.
const ROOM: usize = 256 << 20;

/// Makes room for a process that will be busy, without pages that are huge: what it frees is then used again, where it would be given
/// back to the kernel and asked for anew. Nothing is taken before it is used, and what is not used for a while goes back.
pub fn make_room() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (read_write, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: asks for addresses that nothing else has.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), ROOM, read_write, own | libc::MAP_NORESERVE, -1, 0) };
        if start == libc::MAP_FAILED {
            // A process without that much room in its address space does without.
            return;
        }
        // SAFETY: the range was mapped above, is nobody else's, and is the allocator's from here on and for good. A kernel without
        // huge pages refuses the advice and needs none.
        unsafe {
            libc::madvise(start, ROOM, libc::MADV_NOHUGEPAGE);
            mi_manage_os_memory(start, ROOM, true, false, true, -1);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_used_for_what_is_allocated_after_it_was_made() {
        make_room();
        make_room();
        let all: Vec<Vec<u8>> = (0..64).map(|number| vec![number; 100_000]).collect();
        assert!(all.iter().zip(0..).all(|(bytes, number)| bytes.iter().all(|byte| *byte == number)));
    }

    #[test]
    fn nothing_is_reserved_ahead() {
        // SAFETY: the function reads a number from a static of the allocator.
        assert_eq!(unsafe { mi_option_get(ARENA_RESERVE) }, 0);
    }
}
