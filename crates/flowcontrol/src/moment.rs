//! Points of a clock that never goes back.

use std::time::Duration;

/// Nanoseconds since an origin that the caller chose and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// So many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// So many seconds after the origin.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The nanoseconds since the origin.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The whole seconds since the origin.
    pub const fn whole_seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// How long after `earlier` this is; nothing if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This much later.
    #[must_use]
    pub const fn plus(self, by: Duration) -> Self {
        let nanos = by.as_nanos();
        Self(self.0.saturating_add(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }))
    }
}
