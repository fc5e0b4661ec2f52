//! Priority levels: shares of the server's seats, and the handling of requests without a seat.

use apimachinery::meta::Meta;
use apimachinery::{Str, Value};

use crate::dealer::{self, Dealer};

/// The name of the level whose requests never wait.
pub const EXEMPT: &str = "exempt";
/// The name of the level for requests that match no other schema.
pub const CATCH_ALL: &str = "catch-all";

/// Maximum fraction of the nominal limit for one request.
const SEATS_MAX_FRACTION: f64 = 0.15;

/// A PriorityLevelConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelSpec {
    pub name: Str,
    /// Empty for a substituted mandatory level.
    pub uid: Str,
    /// nominalConcurrencyShares.
    pub shares: u32,
    /// The percentage of the seats that can be lent.
    pub lendable_percent: u32,
    /// The percentage of the seats that can be borrowed in addition; unlimited if `None`.
    pub borrowing_percent: Option<u32>,
    /// The handling of requests without a seat.
    pub discipline: Discipline,
}

/// The handling of requests without a seat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Discipline {
    /// Requests execute without a limit.
    Exempt,
    /// Requests are rejected.
    Reject,
    /// Requests wait in a queue.
    Queue(Queuing),
}

/// The queues of a level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queuing {
    /// Selects the queues of a flow.
    pub dealer: Dealer,
    /// The number of queues.
    pub queues: u32,
    /// The number of queues per flow.
    pub hand_size: u32,
    /// The maximum requests per queue.
    pub length_max: u32,
}

/// A priority level is invalid and ignored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// `type` does not match the `limited` or `exempt` field.
    #[error("broken union structure at the top, for {0}")]
    Union(&'static str),
    /// Only the level named `exempt` may have the type Exempt.
    #[error("non-alignment between name and type")]
    Name,
    /// The limit response's type does not match its `queuing` field.
    #[error("broken union structure for limit response")]
    Response,
    #[error("the QueueSetConfig implies an invalid shuffle sharding config (DesiredNumQueues is deckSize)")]
    Dealer(#[from] dealer::Error),
}

/// The seats of a level, computed from shares and percentages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The seats by shares.
    pub nominal: u32,
    /// The seats if all lendable seats are lent.
    pub lower: u32,
    /// The seats if all borrowable seats are borrowed.
    pub upper: u32,
}

impl LevelSpec {
    /// Parses a PriorityLevelConfiguration object.
    pub fn from_object(object: &Value) -> Result<Self, Error> {
        let meta = Meta::of(object);
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let section = |name: &str| spec.get(name).filter(|section| !section.is_null());
        let (kind, limited, exempt) = (spec.str_at(&["type"]), section("limited"), section("exempt"));
        if (kind == Some("Limited")) != limited.is_some() {
            return Err(Error::Union("Limited"));
        }
        if (kind == Some("Exempt")) != exempt.is_some() {
            return Err(Error::Union("Exempt"));
        }
        if (kind == Some("Exempt")) != (meta.name() == EXEMPT) {
            return Err(Error::Name);
        }
        let common = limited.or(exempt).unwrap_or(&Value::Null);
        let number = |field: &str| common.get(field).and_then(Value::as_int);
        let unsigned = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
        Ok(Self {
            name: meta.name().into(),
            uid: meta.uid().into(),
            // API defaults: 30 shares for a limited level, 0 for the exempt one.
            shares: number("nominalConcurrencyShares").map_or(if exempt.is_some() { 0 } else { 30 }, unsigned),
            lendable_percent: number("lendablePercent").map_or(0, unsigned).min(100),
            borrowing_percent: number("borrowingLimitPercent").map(unsigned),
            discipline: limited.map_or(Ok(Discipline::Exempt), response)?,
        })
    }

    /// Returns the limits of this level on a server with `total` seats and `shares_sum` shares.
    pub fn limits(&self, total: u32, shares_sum: f64) -> Limits {
        let share = f64::from(total) * f64::from(self.shares) / shares_sum;
        let nominal = if share.is_finite() { share.ceil() as u32 } else { 0 };
        let percent = |percent: u32| (f64::from(nominal) * f64::from(percent) / 100.0).round() as u32;
        Limits {
            nominal,
            lower: nominal - percent(self.lendable_percent).min(nominal),
            upper: nominal.saturating_add(self.borrowing_percent.map_or(total, percent)),
        }
    }

    /// Returns the maximum seats of one request for a nominal limit; `None` for the estimators' own limit.
    pub fn seats_max(&self, nominal: u32) -> Option<u32> {
        let Discipline::Queue(queuing) = self.discipline else { return None };
        let limit = (f64::from(nominal) * SEATS_MAX_FRACTION).ceil() as u32;
        Some(limit.min(nominal / queuing.hand_size.max(1)).max(1))
    }
}

fn response(limited: &Value) -> Result<Discipline, Error> {
    let response = limited.get("limitResponse").unwrap_or(&Value::Null);
    let queuing = response.get("queuing").filter(|queuing| !queuing.is_null());
    if (response.str_at(&["type"]) == Some("Reject")) != queuing.is_none() {
        return Err(Error::Response);
    }
    let Some(queuing) = queuing else { return Ok(Discipline::Reject) };
    let number = |field: &str, default: i64| queuing.get(field).and_then(Value::as_int).unwrap_or(default);
    // API defaults.
    let (queues, hand_size, length_max) = (number("queues", 64), number("handSize", 8), number("queueLengthLimit", 50));
    let unsigned = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
    if queues <= 0 {
        return Ok(Discipline::Reject);
    }
    let dealer = Dealer::new(queues, hand_size)?;
    Ok(Discipline::Queue(Queuing {
        dealer,
        queues: unsigned(queues),
        hand_size: unsigned(hand_size),
        length_max: unsigned(length_max).max(1),
    }))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn contradictory_level_is_ignored() {
        let check = |name: &str, spec: Value, expect: Error| {
            let object = value!({"metadata": {"name": name}, "spec": spec});
            assert_eq!(LevelSpec::from_object(&object).unwrap_err(), expect);
        };
        let reject = value!({"limitResponse": {"type": "Reject"}});
        check("a", value!({"type": "Limited"}), Error::Union("Limited"));
        check("a", value!({"type": "Exempt", "limited": (reject.clone())}), Error::Union("Limited"));
        check("a", value!({"type": "Exempt"}), Error::Union("Exempt"));
        check("a", value!({"type": "Exempt", "exempt": {}}), Error::Name);
        check("exempt", value!({"type": "Limited", "limited": (reject.clone())}), Error::Name);
        check("a", value!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}}), Error::Response);
        let hand = value!({"limitResponse": {"type": "Queue", "queuing": {"queues": 2, "handSize": 3}}});
        let too_large = dealer::Error::HandTooLarge { deck_size: 2, hand_size: 3 };
        check("a", value!({"type": "Limited", "limited": hand}), Error::Dealer(too_large));
    }

    #[test]
    fn limits_are_computed_from_shares_and_percentages() {
        let limited = value!({
            "nominalConcurrencyShares": 40, "lendablePercent": 25, "borrowingLimitPercent": 50,
            "limitResponse": {"type": "Reject"},
        });
        let object = value!({"metadata": {"name": "a"}, "spec": {"type": "Limited", "limited": limited}});
        let spec = LevelSpec::from_object(&object).unwrap();
        assert_eq!(spec.limits(600, 245.0), Limits { nominal: 98, lower: 73, upper: 147 });
        let unbounded = LevelSpec { borrowing_percent: None, ..spec.clone() };
        assert_eq!(unbounded.limits(600, 245.0).upper, 698);
        assert_eq!(LevelSpec { shares: 0, ..spec }.limits(600, 0.0).nominal, 0);
    }

    #[test]
    fn one_request_takes_at_most_fifteen_percent_or_what_leaves_seats_for_a_hand() {
        let check = |nominal: u32, hand_size: u32, expect: u32| {
            let dealer = Dealer::new(64, i64::from(hand_size.min(8))).unwrap();
            let queuing = Queuing { dealer, queues: 64, hand_size, length_max: 50 };
            let spec = LevelSpec {
                name: "a".into(),
                uid: "".into(),
                shares: 1,
                lendable_percent: 0,
                borrowing_percent: None,
                discipline: Discipline::Queue(queuing),
            };
            assert_eq!(spec.seats_max(nominal), Some(expect), "{nominal} {hand_size}");
        };
        check(5, 6, 1);
        check(10, 6, 1);
        check(15, 6, 2);
        check(20, 6, 3);
        check(35, 6, 5);
        check(100, 6, 15);
        check(200, 6, 30);
        check(10, 1, 2);
        check(100, 20, 5);
    }
}
