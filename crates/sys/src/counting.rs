//! Counting allocator: measures the bytes in use.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Forwards every request to another allocator, and counts the bytes allocated and not yet freed.
pub struct Counting<A> {
    inner: A,
    in_use: AtomicUsize,
}

impl<A> Counting<A> {
    pub const fn new(inner: A) -> Self {
        Self { inner, in_use: AtomicUsize::new(0) }
    }

    /// Returns the bytes currently in use, as requested; the overhead of the allocator is not included.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }
}

// SAFETY: all memory is managed by the inner allocator; only numbers are kept in addition.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee about the layout is passed on unchanged.
        let memory = unsafe { self.inner.alloc(layout) };
        if !memory.is_null() {
            self.in_use.fetch_add(layout.size(), Ordering::Relaxed);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from the same inner allocator with this layout, as the caller guarantees.
        unsafe { self.inner.dealloc(memory, layout) };
        self.in_use.fetch_sub(layout.size(), Ordering::Relaxed);
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`, and the caller guarantees that `size` is valid.
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
    fn freed_memory_is_not_counted() {
        let counting = Counting::new(System);
        let layout = Layout::from_size_align(100, 8).expect("a valid layout");
        // SAFETY: the layout is not empty, and the memory is used only with it and freed once.
        unsafe {
            let memory = counting.alloc(layout);
            assert_eq!(counting.in_use(), 100);
            let memory = counting.realloc(memory, layout, 300);
            assert_eq!(counting.in_use(), 300);
            counting.dealloc(memory, Layout::from_size_align(300, 8).expect("a valid layout"));
        }
        assert_eq!(counting.in_use(), 0);
    }
}
