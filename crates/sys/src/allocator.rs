//! How the allocator of our programs takes memory from the kernel.

use std::ffi::{c_int, c_long};

pub use mimalloc::MiMalloc as Allocator;

/// Its option that says how much is reserved ahead, by the number that its header gives it.
const ARENA_RESERVE: c_int = 23;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reserved_ahead() {
        // SAFETY: the function reads a number from a static of the allocator.
        assert_eq!(unsafe { mi_option_get(ARENA_RESERVE) }, 0);
    }
}
