//! NodeVolumeLimits: enforces the attach limits of CSI drivers per node.

use std::collections::BTreeSet;

use apimachinery::Str;

use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection};
use crate::pod::{Pod, VolumeUse};
use crate::snapshot::{NodeId, Snapshot, Usage};

const REASON: &str = "node(s) exceed max volume count";

pub struct NodeVolumeLimits;

struct Limits<'a> {
    snapshot: &'a Snapshot,
    /// Volumes that the pod needs, by driver and volume name.
    attachments: BTreeSet<(Str, Str)>,
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let Cycle { snapshot, pod } = cycle;
        if pod.claims.is_empty() || !snapshot.storage.has_limits() {
            return PreFilterResult::Skip;
        }
        let attachments: BTreeSet<_> = pod.claim_keys().filter_map(|key| snapshot.storage.attachment(&key)).collect();
        if attachments.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Run(Box::new(Limits { snapshot, attachments }), None)
        }
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::ClaimChanged(key) => pod.claim_keys().any(|own| own == *key),
            Event::PodRemoved(removed_pod) => {
                removed_pod.shape.volumes.iter().any(|it| matches!(it, VolumeUse::Claim(_)))
            }
            Event::NodeAdded(_) | Event::StorageChanged => true,
            _ => false,
        }
    }
}

impl Filter for Limits<'_> {
    fn check(&self, node: NodeId, usage: &Usage) -> Option<Rejection> {
        let storage = &self.snapshot.storage;
        let key = |volume: &VolumeUse| match volume {
            VolumeUse::Claim(key) => storage.attachment(key),
            VolumeUse::Disk { .. } => None,
        };
        let name = self.snapshot.node_name(node);
        let mut attached: BTreeSet<_> = usage.volumes.iter().filter_map(key).collect();
        // A volume counts until it is detached, which may be long after its pod was deleted.
        attached.extend(storage.attached(name));
        let before = attached.len();
        attached.extend(self.attachments.iter().cloned());
        if attached.len() == before {
            return None;
        }
        let exceeded = |driver: &Str| {
            let number = attached.iter().filter(|(have, _)| have == driver).count();
            storage.limit(name, driver).is_some_and(|most| i64::try_from(number).unwrap_or(i64::MAX) > most)
        };
        let drivers: BTreeSet<&Str> = self.attachments.iter().map(|(driver, _)| driver).collect();
        drivers.into_iter().any(exceeded).then_some(Rejection::resolvable(REASON))
    }
}
