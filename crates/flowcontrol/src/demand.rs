//! Seat demand of a priority level over time.

use crate::Moment;

/// The fraction of the smoothed demand that remains after a period with less demand. It halves in about five minutes.
const SMOOTHING: f64 = 0.977;

/// A value over time: mean, deviation and peak since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub struct Integrator {
    value: f64,
    at: Moment,
    seconds: f64,
    sum: f64,
    squares: f64,
    peak: f64,
}

/// The statistics of an [`Integrator`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// The observed duration.
    pub seconds: f64,
    pub average: f64,
    /// The standard deviation.
    pub deviation: f64,
    pub peak: f64,
}

/// The demand of a priority level in the last period, and its smoothed demand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    pub average: f64,
    /// The standard deviation.
    pub deviation: f64,
    /// The peak.
    pub high_watermark: f64,
    /// The expected demand, which rises immediately and falls slowly.
    pub smoothed: f64,
}

impl Integrator {
    /// Returns an integrator with value zero.
    pub fn new(now: Moment) -> Self {
        Self { at: now, ..Self::default() }
    }

    pub fn set(&mut self, value: u32, now: Moment) {
        self.advance(now);
        self.value = f64::from(value);
        self.peak = self.peak.max(self.value);
    }

    /// Returns the statistics since the last reset, and resets them.
    pub fn reset(&mut self, now: Moment) -> Statistics {
        self.advance(now);
        let mut seen = Statistics { seconds: self.seconds, peak: self.peak, ..Statistics::default() };
        if self.seconds > 0.0 {
            seen.average = self.sum / self.seconds;
            seen.deviation = (self.squares / self.seconds - seen.average * seen.average).max(0.0).sqrt();
        }
        *self = Self { value: self.value, peak: self.value, at: self.at, ..Self::default() };
        seen
    }

    fn advance(&mut self, now: Moment) {
        let seconds = now.since(self.at).as_nanos() as f64 / 1e9;
        self.at = self.at.max(now);
        self.seconds += seconds;
        self.sum += seconds * self.value;
        self.squares += seconds * self.value * self.value;
    }
}

impl Demand {
    /// Adds the statistics of one period.
    pub fn update(&mut self, seen: Statistics) {
        self.high_watermark = seen.peak;
        if seen.seconds <= 0.0 {
            return;
        }
        self.average = seen.average;
        self.deviation = seen.deviation;
        let envelope = seen.average + seen.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_is_weighted_by_time() {
        let mut integrator = Integrator::new(Moment::from_seconds(10));
        integrator.set(4, Moment::from_seconds(10));
        integrator.set(0, Moment::from_seconds(12));
        let seen = integrator.reset(Moment::from_seconds(14));
        assert_eq!(seen, Statistics { seconds: 4.0, average: 2.0, deviation: 2.0, peak: 4.0 });
        assert_eq!(integrator.reset(Moment::from_seconds(14)), Statistics::default());
    }

    #[test]
    fn smoothed_demand_rises_immediately_and_falls_slowly() {
        let mut demand = Demand::default();
        demand.update(Statistics { seconds: 10.0, average: 8.0, deviation: 2.0, peak: 12.0 });
        assert_eq!(demand.smoothed, 10.0);
        demand.update(Statistics { seconds: 10.0, ..Statistics::default() });
        assert_eq!(demand.smoothed, 9.77);
        assert_eq!(demand.high_watermark, 0.0);
    }
}
