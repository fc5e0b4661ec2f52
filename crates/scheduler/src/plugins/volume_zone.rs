//! VolumeZone: restricts a pod to the zones and regions of its volumes.

use apimachinery::Str;

use super::volume_binding::claim_of;
use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection};
use crate::pod::Pod;
use crate::snapshot::{NodeId, Snapshot, Usage};

const REASON: &str = "node(s) had no available volume zone";
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
/// Zone and region labels: each with its current name, which deprecated labels map to.
const LABELS: &[(&str, &str)] = &[
    (ZONE, ZONE),
    (REGION, REGION),
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
];

pub struct VolumeZone;

struct Zones<'a> {
    snapshot: &'a Snapshot,
    /// Label, its current name, and the accepted values.
    requirements: Vec<(&'static str, &'static str, Vec<Str>)>,
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let Cycle { snapshot, pod } = cycle;
        let mut requirements = Vec::new();
        let claims = pod.claims.iter().filter_map(|own| claim_of(snapshot, pod, own).ok());
        for volume in claims.filter_map(|(_, claim)| snapshot.storage.volume(&claim.volume)) {
            for (label, present) in LABELS {
                if let Some(zones) = crate::pod::label(&volume.labels, label) {
                    // A volume with several zones has a label value joined by "__".
                    requirements.push((*label, *present, zones.split("__").map(Str::from).collect()));
                }
            }
        }
        if requirements.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Run(Box::new(Zones { snapshot, requirements }), None)
        }
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::ClaimChanged(key) => pod.claim_keys().any(|own| own == *key),
            Event::NodeAdded(_) | Event::StorageChanged => true,
            Event::NodeUpdated(old, new) => old.labels != new.labels,
            _ => false,
        }
    }
}

impl Filter for Zones<'_> {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        let label = |key: &str| {
            let value = self.snapshot.label(node, self.snapshot.symbol_of(key)?)?;
            Some(self.snapshot.text(value))
        };
        // A node without any zone or region label belongs to a cluster without zones.
        if LABELS.iter().all(|(key, _)| label(key).is_none()) {
            return None;
        }
        let right = |(key, present, values): &(&str, &str, Vec<Str>)| {
            label(key).or_else(|| label(present)).is_some_and(|have| values.iter().any(|value| value == have))
        };
        (!self.requirements.iter().all(right)).then_some(Rejection::fixed(REASON))
    }
}
