//! Seat allocation: divides the server's seats among priority levels that lend and borrow.
//!
//! Each level has a target, which is its recent demand, and bounds. Every level gets the same multiple of its target,
//! or the bound if that multiple is outside.

/// The target and the bounds of one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The desired seats.
    pub target: f64,
    /// The minimum seats.
    pub lower: f64,
    /// The maximum seats.
    pub upper: f64,
}

/// The seats of each level, in the order of the claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Division {
    /// The seats, not rounded.
    pub seats: Vec<f64>,
    /// The multiple of the targets, where no bound applies.
    pub fair_fraction: f64,
}

/// The claims cannot be satisfied.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The bounds of a claim contradict each other or its target.
    #[error("claim {0} has a target or an upper bound below its lower bound, or a negative one")]
    Contradiction(usize),
    /// The lower bounds exceed the total.
    #[error("lower bounds sum to {low}, which is higher than the required sum of {required}")]
    TooFewSeats {
        /// The sum of the lower bounds.
        low: f64,
        required: f64,
    },
    /// The upper bounds are less than the total.
    #[error("upper bounds sum to {high}, which is lower than the required sum of {required}")]
    TooManySeats {
        /// The sum of the upper bounds.
        high: f64,
        required: f64,
    },
}

/// Minimum target, which avoids a division by zero.
const TARGET_MIN: f64 = 0.001;
/// Sums that differ by less are equal.
const EPSILON: f64 = 0.000_000_1;

/// Divides all of `total` seats.
pub fn divide(total: u32, claims: &[Claim]) -> Result<Division, Error> {
    let required = f64::from(total);
    check(claims)?;
    let low: f64 = claims.iter().map(|claim| claim.lower).sum();
    let high: f64 = claims.iter().map(|claim| claim.upper).sum();
    if low - required > EPSILON {
        return Err(Error::TooFewSeats { low, required });
    }
    if required - high > EPSILON {
        return Err(Error::TooManySeats { high, required });
    }
    if total == 0 {
        return Ok(Division { seats: vec![0.0; claims.len()], fair_fraction: 0.0 });
    }
    let fraction = if low - required > -EPSILON {
        claims.iter().map(|claim| claim.lower / claim.goal()).fold(f64::INFINITY, f64::min)
    } else if required - high > -EPSILON {
        claims.iter().map(|claim| claim.upper / claim.goal()).fold(0.0, f64::max)
    } else {
        solve(required, low, claims)
    };
    let seats = claims.iter().map(|claim| (fraction * claim.goal()).min(claim.upper).max(claim.lower)).collect();
    Ok(Division { seats, fair_fraction: fraction })
}

impl Claim {
    const fn goal(&self) -> f64 {
        self.target.max(TARGET_MIN)
    }
}

fn check(claims: &[Claim]) -> Result<(), Error> {
    let sound = |claim: &Claim| claim.lower >= 0.0 && claim.target >= claim.lower && claim.upper >= claim.lower;
    claims.iter().position(|claim| !sound(claim)).map_or(Ok(()), |at| Err(Error::Contradiction(at)))
}

/// Returns the fair fraction. The sum of all seats is piecewise linear in the fraction, and its slope changes where a
/// bound starts or ceases to apply. Walks these points upwards to the piece with the required sum.
fn solve(required: f64, low: f64, claims: &[Claim]) -> f64 {
    let mut bends: Vec<(f64, f64)> = claims
        .iter()
        .flat_map(|claim| {
            let goal = claim.goal();
            [(claim.lower / goal, goal), (claim.upper / goal, -goal)]
        })
        .collect();
    bends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut fraction, mut sum, mut slope) = (bends.first().map_or(0.0, |bend| bend.0), low, 0.0);
    for (bend, change) in bends {
        let reached = sum + (bend - fraction) * slope;
        if slope > 0.0 && reached >= required {
            break;
        }
        (fraction, sum, slope) = (bend, reached, slope + change);
    }
    if slope > 0.0 { fraction + (required - sum) / slope } else { fraction }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(target: f64, lower: f64, upper: f64) -> Claim {
        Claim { target, lower, upper }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.000_1 * (1.0 + a.abs().max(b.abs()))
    }

    #[test]
    fn seats_are_proportional_to_targets_within_the_bounds() {
        let division = divide(12, &[claim(1.0, 0.0, 12.0), claim(2.0, 0.0, 12.0), claim(3.0, 0.0, 12.0)]).unwrap();
        assert_eq!(division, Division { seats: vec![2.0, 4.0, 6.0], fair_fraction: 2.0 });
    }

    #[test]
    fn bounds_hold_and_other_levels_share_the_rest() {
        let check = |total, claims: &[Claim], expect: &[f64]| {
            let division = divide(total, claims).unwrap();
            assert!(division.seats.iter().zip(expect).all(|(a, b)| close(*a, *b)), "{division:?} {expect:?}");
        };
        check(12, &[claim(1.0, 0.0, 1.0), claim(2.0, 0.0, 20.0)], &[1.0, 11.0]);
        check(12, &[claim(8.0, 8.0, 20.0), claim(40.0, 0.0, 20.0)], &[8.0, 4.0]);
        check(3, &[claim(1.0, 1.0, 9.0), claim(2.0, 2.0, 9.0)], &[1.0, 2.0]);
        check(18, &[claim(1.0, 1.0, 9.0), claim(2.0, 2.0, 9.0)], &[9.0, 9.0]);
        check(6, &[claim(0.0, 0.0, 6.0), claim(0.0, 0.0, 6.0)], &[3.0, 3.0]);
        check(0, &[claim(0.0, 0.0, 6.0)], &[0.0]);
    }

    #[test]
    fn contradictory_claims_are_rejected() {
        assert_eq!(divide(1, &[claim(1.0, 2.0, 3.0)]), Err(Error::Contradiction(0)));
        assert!(matches!(divide(1, &[claim(2.0, 2.0, 3.0)]), Err(Error::TooFewSeats { .. })));
        assert!(matches!(divide(9, &[claim(2.0, 2.0, 3.0)]), Err(Error::TooManySeats { .. })));
    }

    proptest! {
        #[test]
        fn all_seats_are_allocated_at_the_fair_multiple_or_a_bound(
            total in 0_u32..2000,
            raw in prop::collection::vec((0_u32..200, 0_u32..200, 0_u32..400), 1..12),
        ) {
            let claims: Vec<Claim> = raw.iter().map(|(lower, above, more)| {
                let lower = f64::from(*lower);
                claim(lower + f64::from(*above), lower, lower + f64::from(*more))
            }).collect();
            let Ok(division) = divide(total, &claims) else { return Ok(()) };
            let sum: f64 = division.seats.iter().sum();
            prop_assert!(close(sum, f64::from(total)), "{} {:?}", sum, division);
            for (claim, seats) in claims.iter().zip(&division.seats) {
                let fair = division.fair_fraction * claim.goal();
                prop_assert!(*seats >= claim.lower && *seats <= claim.upper);
                prop_assert!(
                    total == 0
                        || close(*seats, fair)
                        || (close(*seats, claim.lower) && claim.lower >= fair - 0.001)
                        || (close(*seats, claim.upper) && claim.upper <= fair + 0.001),
                    "{:?} {} {}", claim, seats, fair
                );
            }
        }
    }
}
