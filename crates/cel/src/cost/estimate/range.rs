//! Ranges of cost and size that never overflow.

use std::marker::PhantomData;

/// The least and the most of something that is counted in `Unit`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds<Unit> {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
    unit: PhantomData<Unit>,
}

/// What costs are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostUnit {}

/// What sizes are counted in: characters, bytes, items or entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeUnit {}

/// The least and the most a thing can cost.
pub type Estimate = Bounds<CostUnit>;

/// The least and the most characters, bytes, items or entries a value can have.
pub type SizeEstimate = Bounds<SizeUnit>;

impl<Unit: Copy> Bounds<Unit> {
    /// At least and at most so much.
    pub const fn between(min: u64, max: u64) -> Self {
        Self { min, max, unit: PhantomData }
    }

    /// Exactly so much.
    pub const fn fixed(amount: u64) -> Self {
        Self::between(amount, amount)
    }

    /// Both together.
    #[must_use]
    pub const fn plus(&self, other: Self) -> Self {
        Self::between(self.min.saturating_add(other.min), self.max.saturating_add(other.max))
    }

    /// One for each of the other.
    #[must_use]
    pub const fn times<Other: Copy>(&self, other: Bounds<Other>) -> Bounds<Other> {
        Bounds::between(self.min.saturating_mul(other.min), self.max.saturating_mul(other.max))
    }

    /// One or the other.
    #[must_use]
    pub fn union(&self, other: Self) -> Self {
        Self::between(self.min.min(other.min), self.max.max(other.max))
    }

    /// The cost of so much for each, rounded up.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Estimate {
        Estimate::between(scale(self.min, factor), scale(self.max, factor))
    }
}

impl Estimate {
    /// Nothing.
    pub const ZERO: Self = Self::fixed(0);
}

impl SizeEstimate {
    /// Anything.
    pub const UNKNOWN: Self = Self::between(0, u64::MAX);
}

/// Conversion from float to integer stops at the largest integer.
fn scale(units: u64, factor: f64) -> u64 {
    (units as f64 * factor).ceil() as u64
}
