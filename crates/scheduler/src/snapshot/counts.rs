//! Sparse counts by ID: the number of pods per node or domain.

/// Counts sorted by ID, without zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(Vec<(u32, u32)>);

impl Counts {
    pub fn increase(&mut self, domain: u32) {
        self.add(domain, 1);
    }

    pub fn add(&mut self, domain: u32, number: u32) {
        match self.position(domain) {
            Ok(at) => self.0[at].1 += number,
            Err(at) => self.0.insert(at, (domain, number)),
        }
    }

    /// Decrements the count at `domain`; panics if it is 0.
    pub fn decrease(&mut self, domain: u32) {
        let at = self.position(domain).expect("only counted pods are removed");
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    pub fn at(&self, domain: u32) -> u32 {
        self.position(domain).map_or(0, |at| self.0[at].1)
    }

    /// Returns non-zero counts, sorted by ID.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().copied()
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, domain: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&domain, |entry| entry.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_counts_are_removed() {
        let mut counts = Counts::default();
        for domain in [7, 3, 7] {
            counts.increase(domain);
        }
        assert_eq!(counts.iter().collect::<Vec<_>>(), [(3, 1), (7, 2)]);
        counts.decrease(3);
        assert_eq!((counts.at(3), counts.at(7)), (0, 2));
        counts.decrease(7);
        counts.decrease(7);
        assert!(counts.is_empty());
    }
}
