//! Completion indexes in the format of a Job's status: `0,2-4`.

use std::fmt;

/// A set of indexes: inclusive ranges in ascending order that neither overlap nor touch. Its size depends on the length
/// of the text and not on the number of completions, which may be two billion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Parses a set and keeps only indexes below `end`. Parsing stops at the first part that is neither a number nor a
    /// range.
    pub(super) fn parse(text: &str, end: u32) -> Self {
        let mut ranges = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { break };
            if first < end && first <= last {
                ranges.push((first, last.min(end - 1)));
            }
        }
        Self(merge(ranges))
    }

    pub(super) fn has(&self, index: u32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after > 0 && self.0[after - 1].1 >= index
    }

    pub(super) fn insert(&mut self, index: u32) {
        if !self.has(index) {
            let mut ranges = std::mem::take(&mut self.0);
            ranges.push((index, index));
            self.0 = merge(ranges);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the size of the intersection.
    pub(super) fn in_common(&self, other: &Self) -> usize {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut count = 0;
        while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
            let (first, last) = (one.0.max(two.0), one.1.min(two.1));
            count += if first <= last { (last - first) as usize + 1 } else { 0 };
            if one.1 < two.1 {
                left.next()
            } else {
                right.next()
            };
        }
        count
    }
}

/// Sorts ranges and joins those that overlap or touch.
fn merge(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if before.1.saturating_add(1) >= first => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// Three or more consecutive indexes form a range; two do not.
impl fmt::Display for Indexes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(out, "{comma}{first}")?,
                1 => write!(out, "{comma}{first},{last}")?,
                _ => write!(out, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_round_trip_through_their_text() {
        for text in ["", "0", "0,1", "0-2", "0,2-4,7,8", "1-3,5,9-11"] {
            assert_eq!(Indexes::parse(text, 20).to_string(), text);
        }
        assert_eq!(Indexes::parse("0-9", 3).to_string(), "0-2", "indexes beyond completions are ignored");
        assert_eq!(Indexes::parse("1,x,3", 9).to_string(), "1");
        assert_eq!(Indexes::parse("0-4294967295", 4).len(), 4);
        assert_eq!(Indexes::parse("3-1,7", 9).to_string(), "7");
        assert_eq!(Indexes::parse("0-9", 0).len(), 0);
    }

    #[test]
    fn indexes_beyond_100000_are_preserved() {
        let mut indexes = Indexes::parse("0-99999,150000", 2_000_000_000);
        indexes.insert(100_000);
        indexes.insert(1_999_999_999);
        assert_eq!(indexes.to_string(), "0-100000,150000,1999999999");
        assert_eq!(indexes.len(), 100_003);
        assert!(indexes.has(150_000) && indexes.has(0) && !indexes.has(149_999) && !indexes.has(1_999_999_998));
        assert_eq!(indexes.in_common(&Indexes::parse("5-7,100000-150000", 2_000_000_000)), 5);
        assert_eq!(Indexes::parse("0-4294967295", u32::MAX).len(), u32::MAX as usize);
    }
}
