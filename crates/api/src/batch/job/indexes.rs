//! Index sets of Indexed Jobs in their text form: `0,3-5,7`.

use apimachinery::go;

/// A text that is not a valid index set for the number of completions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'", go::quote(.0))]
    Parts(String),
    #[error("cannot convert string to integer for index: {}", go::quote(.0))]
    Number(String),
    #[error("too large index: {}", go::quote(.0))]
    TooLarge(String),
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order {
        previous: i64,
        /// The index that is not greater than `previous`.
        current: i64,
    },
}

/// Parses inclusive intervals in increasing order.
pub(super) fn parse(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, Error> {
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    if text.is_empty() {
        return Ok(intervals);
    }
    for part in text.split(',') {
        let (low, high) = interval(part, completions)?;
        if let Some((_, previous)) = intervals.last().copied().filter(|(_, previous)| *previous >= low) {
            return Err(Error::Order { previous, current: low });
        }
        intervals.push((low, high));
    }
    Ok(intervals)
}

/// Returns the number of indexes.
pub(super) fn total(intervals: &[(i64, i64)]) -> i64 {
    intervals.iter().map(|(low, high)| high - low + 1).sum()
}

/// Returns the first index that both texts contain. Invalid texts are ignored: other validation rejects them.
pub(super) fn first_common(a: &str, b: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (a, b) = (read(a), read(b));
    let (mut at, mut of) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(at), b.get(of)) {
        if x.0 <= y.1 && y.0 <= x.1 {
            return Some(x.0.max(y.0));
        }
        if x.0 <= y.0 { at += 1 } else { of += 1 }
    }
    None
}

fn interval(part: &str, completions: i64) -> Result<(i64, i64), Error> {
    let limits: Vec<&str> = part.split('-').collect();
    let number = |text: &str| match text.parse::<i64>() {
        Ok(number) if number >= completions => Err(Error::TooLarge(text.to_owned())),
        Ok(number) => Ok(number),
        Err(_) => Err(Error::Number(text.to_owned())),
    };
    match limits.as_slice() {
        [one] => number(one).map(|one| (one, one)),
        [low, high] => match (number(low)?, number(high)?) {
            (low, high) if low >= high => Err(Error::Order { previous: low, current: high }),
            interval => Ok(interval),
        },
        _ => Err(Error::Parts(part.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_sets_are_increasing_intervals_below_completions() {
        let check = |text: &str, expect: Result<i64, &str>| {
            let got = parse(text, 10).map(|intervals| total(&intervals)).map_err(|error| error.to_string());
            assert_eq!(got, expect.map_err(str::to_owned), "{text}");
        };
        check("", Ok(0));
        check("0,3-5,7", Ok(5));
        check(
            "3-5-6",
            Err(
                "the fragment \"3-5-6\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
        );
        check("a", Err("cannot convert string to integer for index: \"a\""));
        check("1-10", Err("too large index: \"10\""));
        check("3,2", Err("non-increasing order, previous: 3, current: 2"));
        check("3-3", Err("non-increasing order, previous: 3, current: 3"));
    }

    #[test]
    fn first_common_index_is_found() {
        assert_eq!(first_common("0-2,5", "3-4,5-6", 10), Some(5));
        assert_eq!(first_common("0-2", "3-4", 10), None);
    }
}
