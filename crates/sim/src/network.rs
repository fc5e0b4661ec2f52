//! A network that loses, delays, doubles and reorders, and can be cut in two.

use std::collections::BTreeSet;

use crate::random::Random;

/// How bad it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// Percent of messages lost.
    pub loss: u64,
    /// Percent of messages doubled.
    pub doubled: u64,
    /// The longest delay; different delays reorder.
    pub delay_ms_max: u64,
    /// Members of one side of a cut; empty when there is none.
    pub island: BTreeSet<u64>,
}

impl Network {
    /// The delays after which copies of a message arrive; none when it is lost.
    pub(crate) fn deliveries(&self, from: u64, to: u64, random: &mut Random) -> Vec<u64> {
        if self.island.contains(&from) != self.island.contains(&to) || random.percent(self.loss) {
            return Vec::new();
        }
        let copies = if random.percent(self.doubled) { 2 } else { 1 };
        (0..copies).map(|_| random.between(1, self.delay_ms_max.max(1) + 2)).collect()
    }
}
