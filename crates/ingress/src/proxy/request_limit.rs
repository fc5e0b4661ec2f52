//! Limit of the requests in flight of all connections: HTTP/2 lets each connection have many.

use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(super) struct RequestLimit {
    max: usize,
    in_flight: AtomicUsize,
}

impl RequestLimit {
    pub(super) fn new(max: usize) -> RequestLimit {
        RequestLimit { max, in_flight: AtomicUsize::new(0) }
    }

    /// Counts a request, or returns false if too many are in flight. [`RequestLimit::end`] must follow true.
    pub(super) fn try_begin(&self) -> bool {
        let is_admitted = self.in_flight.fetch_add(1, Ordering::Relaxed) < self.max;
        if !is_admitted {
            self.end();
        }
        is_admitted
    }

    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_above_the_limit_are_not_admitted() {
        let limit = RequestLimit::new(2);
        assert_eq!([limit.try_begin(), limit.try_begin(), limit.try_begin()], [true, true, false]);
        assert_eq!(limit.in_flight(), 2);
        limit.end();
        assert_eq!([limit.try_begin(), limit.try_begin()], [true, false]);
    }
}
