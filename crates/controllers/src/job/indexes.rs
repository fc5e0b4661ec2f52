//! Completion indexes in the format of a Job's status: `0,2-4`.

use std::collections::BTreeSet;
use std::fmt;

/// Exclusive bound of parsed indexes. Larger indexes are dropped.
const INDEX_MAX: u32 = 100_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(BTreeSet<u32>);

impl Indexes {
    /// Parses a set and keeps only indexes below `end`. Parsing stops at the first invalid part, because only this
    /// controller writes the field.
    pub fn parse(text: &str, end: u32) -> Self {
        let mut indexes = BTreeSet::new();
        let end = end.min(INDEX_MAX);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { break };
            indexes.extend(first..=last.min(end.saturating_sub(1)));
        }
        indexes.retain(|index| *index < end);
        Self(indexes)
    }

    pub fn has(&self, index: u32) -> bool {
        self.0.contains(&index)
    }

    pub fn insert(&mut self, index: u32) {
        self.0.insert(index);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the size of the intersection.
    pub fn in_common(&self, other: &Self) -> usize {
        self.0.intersection(&other.0).count()
    }
}

/// Three or more consecutive indexes form a range; two do not.
impl fmt::Display for Indexes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for index in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => ranges.push((*index, *index)),
            }
        }
        for (at, (first, last)) in ranges.into_iter().enumerate() {
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
        assert_eq!(Indexes::parse("0-9", 3).to_string(), "0-2", "what the Job does not ask for does not count");
        assert_eq!(Indexes::parse("1,x,3", 9).to_string(), "1");
        assert_eq!(Indexes::parse("0-4294967295", 4).len(), 4);
    }
}
