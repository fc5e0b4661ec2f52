//! Ranges of cost and size with saturating arithmetic.

use std::marker::PhantomData;

/// The minimum and maximum of a quantity counted in `Unit`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds<Unit> {
    pub min: u64,
    pub max: u64,
    unit: PhantomData<Unit>,
}

/// Marker for ranges of cost units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostUnit {}

/// Marker for ranges of sizes: characters, bytes, items or entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeUnit {}

/// The minimum and maximum cost.
pub type Estimate = Bounds<CostUnit>;

/// The minimum and maximum number of characters, bytes, items or entries of a value.
pub type SizeEstimate = Bounds<SizeUnit>;

impl<Unit: Copy> Bounds<Unit> {
    pub const fn between(min: u64, max: u64) -> Self {
        Self { min, max, unit: PhantomData }
    }

    pub const fn fixed(amount: u64) -> Self {
        Self::between(amount, amount)
    }

    #[must_use]
    pub const fn plus(&self, other: Self) -> Self {
        Self::between(self.min.saturating_add(other.min), self.max.saturating_add(other.max))
    }

    /// Multiplies two ranges; the result has the unit of `other`.
    #[must_use]
    pub const fn times<Other: Copy>(&self, other: Bounds<Other>) -> Bounds<Other> {
        Bounds::between(self.min.saturating_mul(other.min), self.max.saturating_mul(other.max))
    }

    /// Returns the smallest range that covers both.
    #[must_use]
    pub fn union(&self, other: Self) -> Self {
        Self::between(self.min.min(other.min), self.max.max(other.max))
    }

    /// Converts to a cost with `factor` units each, rounded up.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Estimate {
        Estimate::between(scale(self.min, factor), scale(self.max, factor))
    }
}

impl Estimate {
    pub const ZERO: Self = Self::fixed(0);
}

impl SizeEstimate {
    /// Zero to the maximum.
    pub const UNKNOWN: Self = Self::between(0, u64::MAX);
}

/// Scales and rounds up; the conversion from float to integer saturates.
fn scale(units: u64, factor: f64) -> u64 {
    (units as f64 * factor).ceil() as u64
}
