//! Simulated network with loss, delay, duplication, reordering and partitions.

use std::collections::BTreeSet;

use crate::random::Random;

/// Current fault parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// Percentage of lost messages.
    pub loss: u64,
    /// Percentage of duplicated messages.
    pub doubled: u64,
    /// Maximum delay; different delays cause reordering.
    pub delay_ms_max: u64,
    /// Members on one side of a partition; empty without partition.
    pub island: BTreeSet<u64>,
}

impl Network {
    /// Returns the delays of the delivered copies of a message; empty if it is lost.
    pub(crate) fn deliveries(&self, from: u64, to: u64, random: &mut Random) -> Vec<u64> {
        if self.island.contains(&from) != self.island.contains(&to) || random.percent(self.loss) {
            return Vec::new();
        }
        let copies = if random.percent(self.doubled) { 2 } else { 1 };
        (0..copies).map(|_| random.between(1, self.delay_ms_max.max(1) + 2)).collect()
    }
}
