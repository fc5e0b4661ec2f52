//! Ranges of cost and size that never overflow.

/// The least and the most a thing can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

/// The least and the most characters, bytes, items or entries a value can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeEstimate {
    /// The fewest.
    pub min: u64,
    /// The most.
    pub max: u64,
}

impl Estimate {
    /// Nothing.
    pub const ZERO: Self = Self::fixed(0);

    /// Exactly so much.
    pub const fn fixed(cost: u64) -> Self {
        Self { min: cost, max: cost }
    }

    /// Both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// One for each of the other.
    #[must_use]
    pub const fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// So many units for each, rounded up.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    /// One or the other.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

impl SizeEstimate {
    /// Anything.
    pub const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    /// Exactly so many.
    pub const fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    /// One behind the other.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// One for each of the other.
    #[must_use]
    pub const fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// One or the other.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// The cost of so many units for each, rounded up.
    pub fn scaled(self, factor: f64) -> Estimate {
        Estimate { min: self.min, max: self.max }.scaled(factor)
    }

    /// The cost of so much for each.
    pub const fn times_cost(self, cost: Estimate) -> Estimate {
        Estimate { min: self.min, max: self.max }.times(cost)
    }
}

/// Conversion from float to integer stops at the largest integer.
fn scale(units: u64, factor: f64) -> u64 {
    (units as f64 * factor).ceil() as u64
}
