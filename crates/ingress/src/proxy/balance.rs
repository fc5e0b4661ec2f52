//! Load balancing: selects the backend and the endpoint of a request.

use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence of numbers that are spread evenly over all `u64`, also over each part of the sequence.
///
/// Shares of requests are therefore exact after few requests, which random numbers are not.
#[derive(Debug, Default)]
pub(super) struct Spread(AtomicU64);

impl Spread {
    /// Returns the next number below `end`, 0 if `end` is 0.
    pub(super) fn below(&self, end: u64) -> u64 {
        // Multiples of the golden ratio, as a fraction of 2^64.
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        let point = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        u64::try_from((u128::from(point) * u128::from(end)) >> 64).expect("a fraction of a u64 is a u64")
    }
}

/// Returns the index of the weight that contains `point`, or `None` if `point` is not below the sum.
pub(super) fn choose_weighted(weights: impl Iterator<Item = u32>, point: u64) -> Option<usize> {
    let mut end = 0;
    for (index, weight) in weights.enumerate() {
        end += u64::from(weight);
        if point < end {
            return Some(index);
        }
    }
    None
}

/// Returns an endpoint that was not tried yet: the next one in turn, or the one after it if that has fewer requests.
pub(super) fn choose_endpoint(
    count: usize,
    load: impl Fn(usize) -> usize,
    turn: usize,
    tried: &[usize],
) -> Option<usize> {
    let mut untried = (0..count).map(|step| turn.wrapping_add(step) % count).filter(|index| !tried.contains(index));
    let first = untried.next()?;
    match untried.next() {
        Some(second) if load(second) < load(first) => Some(second),
        _ => Some(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_share_requests() {
        let spread = Spread::default();
        let mut counts = [0; 3];
        for _ in 0..1000 {
            counts[choose_weighted([9, 0, 1].into_iter(), spread.below(10)).unwrap()] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((898..=902).contains(&counts[0]), "{counts:?}");
        assert_eq!(choose_weighted([0, 0].into_iter(), spread.below(0)), None);
    }

    #[test]
    fn endpoints_take_turns_unless_one_is_loaded() {
        let check = |loads: &[usize], turn: usize, tried: &[usize], expect: Option<usize>| {
            assert_eq!(
                choose_endpoint(loads.len(), |index| loads[index], turn, tried),
                expect,
                "{loads:?} {turn} {tried:?}"
            );
        };
        check(&[0, 0, 0], 0, &[], Some(0));
        check(&[0, 0, 0], 4, &[], Some(1));
        check(&[2, 1, 0], 0, &[], Some(1));
        check(&[0, 0, 0], 0, &[0], Some(1));
        check(&[0, 0], 1, &[0, 1], None);
        check(&[], 1, &[], None);
    }
}
