//! Resource pools: the slices of a pool's newest generation, and whether the pool is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::Str;

use super::DeviceId;
use super::slice::{Counters, Device, Nodes, Slice};

/// A pool of devices managed by one driver.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    pub driver: Str,
    pub name: Str,
    /// Slices of the newest generation, sorted by name.
    pub slices: Vec<Arc<Slice>>,
    /// Whether slices of the generation are missing.
    pub incomplete: bool,
    /// Whether two devices have the same name.
    pub invalid: bool,
    /// Shared counters, keyed by counter set.
    pub counters: BTreeMap<Str, Counters>,
    /// Whether some device has binding conditions; such pools are allocated last.
    pub delays: bool,
}

impl Pool {
    /// Builds a pool from all its slices; older generations are ignored.
    pub fn new(slices: &[Arc<Slice>]) -> Self {
        let generation = slices.iter().map(|slice| slice.generation).max().unwrap_or_default();
        let slices: Vec<_> = slices.iter().filter(|slice| slice.generation == generation).cloned().collect();
        let Some(first) = slices.first().cloned() else { return Self::default() };
        let devices = || slices.iter().flat_map(|slice| &slice.devices);
        let mut names = BTreeSet::new();
        let sets = slices.iter().flat_map(|slice| slice.counters.iter().cloned());
        Self {
            driver: first.driver.clone(),
            name: first.pool.clone(),
            incomplete: i64::try_from(slices.len()) != Ok(first.slices),
            invalid: !devices().all(|device| names.insert(&device.name)),
            counters: sets.collect(),
            delays: devices().any(|device| !device.conditions[0].is_null()),
            slices,
        }
    }

    /// Returns the node, if a single node can access the devices.
    pub fn only_node(&self) -> Option<&Str> {
        let name = |slice: &Arc<Slice>| match &slice.nodes {
            Nodes::Named(name) => Some(name.clone()),
            _ => None,
        };
        let first = name(self.slices.first()?)?;
        let all = self.slices.iter().all(|slice| name(slice).as_ref() == Some(&first));
        match &self.slices.first()?.nodes {
            Nodes::Named(name) if all => Some(name),
            _ => None,
        }
    }

    pub fn id(&self, device: &Device) -> DeviceId {
        DeviceId { driver: self.driver.clone(), pool: self.name.clone(), device: device.name.clone() }
    }
}
