//! How often webhooks were asked and what came of it, for whoever exports metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use registry::admission::webhooks::Failure;

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub struct Counters {
    /// Calls that were made.
    pub calls: AtomicU64,
    /// How long they took together, in microseconds.
    pub call_micros: AtomicU64,
    /// Requests that a webhook refused.
    pub rejected: AtomicU64,
    /// Calls that failed, and the request went on.
    pub failed_open: AtomicU64,
    /// Calls that failed, and the request with them.
    pub failed_closed: AtomicU64,
    /// Calls of conversion webhooks.
    pub conversions: AtomicU64,
}

impl Counters {
    /// A call was made.
    pub fn asked(&self, took: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.call_micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A webhook did not let a request through, or could not be asked.
    pub fn failed(&self, failure: &Failure, open: bool) {
        let counter = match failure {
            Failure::Refused(_) => &self.rejected,
            Failure::Call(_) if open => &self.failed_open,
            Failure::Call(_) => &self.failed_closed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
