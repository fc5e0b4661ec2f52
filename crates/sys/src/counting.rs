//! An allocator that knows how many bytes are in use, for measuring what something takes.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Passes every request on to another allocator, and counts the bytes that were asked for and not yet given back.
pub struct Counting<A> {
    inner: A,
    in_use: AtomicUsize,
}

impl<A> Counting<A> {
    /// Counts what is asked of `inner`.
    pub const fn new(inner: A) -> Self {
        Self { inner, in_use: AtomicUsize::new(0) }
    }

    /// The bytes that are in use now, as they were asked for: what the allocator adds to them does not count.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }
}

// SAFETY: memory is the inner allocator's in every respect; only numbers are kept beside it.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about the layout is passed on as it is.
        let memory = unsafe { self.inner.alloc(layout) };
        if !memory.is_null() {
            self.in_use.fetch_add(layout.size(), Ordering::Relaxed);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from the same inner allocator with this layout, as the caller promises.
        unsafe { self.inner.dealloc(memory, layout) };
        self.in_use.fetch_sub(layout.size(), Ordering::Relaxed);
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`, and the caller promises that `size` is sound.
        let moved = unsafe { self.inner.realloc(memory, layout, size) };
        if !moved.is_null() {
            self.in_use.fetch_add(size, Ordering::Relaxed);
            self.in_use.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn what_is_given_back_no_longer_counts() {
        let counting = Counting::new(System);
        let layout = Layout::from_size_align(100, 8).expect("a sound layout");
        // SAFETY: the layout is not empty, and the memory is used with it alone and given back once.
        unsafe {
            let memory = counting.alloc(layout);
            assert_eq!(counting.in_use(), 100);
            let memory = counting.realloc(memory, layout, 300);
            assert_eq!(counting.in_use(), 300);
            counting.dealloc(memory, Layout::from_size_align(300, 8).expect("a sound layout"));
        }
        assert_eq!(counting.in_use(), 0);
    }
}
