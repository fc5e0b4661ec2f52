//! The only source of randomness of a run.

/// `splitmix64`.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x6b6e_6172_7200_0000)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `low..high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).expect("the value fits into usize")
    }

    pub(crate) fn percent(&mut self, percentage: u64) -> bool {
        self.between(0, 100) < percentage
    }
}
