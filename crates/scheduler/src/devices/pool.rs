//! Pools of devices: the slices of their newest version, and whether all are there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machinery::Str;

use super::DeviceId;
use super::slice::{Counters, Device, Nodes, Slice};

/// The devices that a driver manages together.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// The driver.
    pub driver: Str,
    /// The pool's name.
    pub name: Str,
    /// The slices of the newest version, sorted by name.
    pub slices: Vec<Arc<Slice>>,
    /// Whether slices of it are still to come.
    pub incomplete: bool,
    /// Whether two devices have the same name.
    pub invalid: bool,
    /// What its devices share, by the name of the set.
    pub counters: BTreeMap<Str, Counters>,
    /// Whether some device must become ready before its pod may run: those are taken last.
    pub delays: bool,
}

impl Pool {
    /// Of the slices of one pool.
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

    /// The only node that reaches any of its devices, if there is only one.
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

    /// Which device one of its own is.
    pub fn id(&self, device: &Device) -> DeviceId {
        DeviceId { driver: self.driver.clone(), pool: self.name.clone(), device: device.name.clone() }
    }
}
