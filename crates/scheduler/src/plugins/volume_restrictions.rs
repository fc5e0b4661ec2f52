//! VolumeRestrictions: rejects nodes on which an exclusive volume is in use, and enforces ReadWriteOncePod.

use apimachinery::Key;

use super::volume_binding::claim_of;
use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection};
use crate::pod::{Class, Pod, Shape, VolumeUse};
use crate::snapshot::{NodeId, Usage};

const DISK: &str = "node(s) had no available disk";
const CLAIM: &str = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";

pub struct VolumeRestrictions;

struct Exclusive<'a> {
    disks: Vec<&'a VolumeUse>,
    /// ReadWriteOncePod claims.
    claims: Vec<Key>,
    /// Number of pods that use them.
    users: u32,
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let Cycle { snapshot, pod } = cycle;
        let mut claims = Vec::new();
        for own in &pod.claims {
            let key = Key::new(pod.class.namespace.clone(), own.name.clone());
            // VolumeBinding waits for claims that do not exist yet.
            let claim = match claim_of(snapshot, pod, own) {
                Ok((_, claim)) => claim,
                Err(_) if own.ephemeral => continue,
                Err(message) => return PreFilterResult::Reject(message),
            };
            if claim.access_modes.iter().any(|mode| mode == "ReadWriteOncePod") {
                claims.push(key);
            }
        }
        let disks: Vec<_> = pod.shape.volumes.iter().filter(|it| matches!(it, VolumeUse::Disk { .. })).collect();
        if claims.is_empty() && disks.is_empty() {
            return PreFilterResult::Skip;
        }
        let users = claims.iter().map(|key| snapshot.claim_users(key)).sum();
        PreFilterResult::Run(Box::new(Exclusive { disks, claims, users }), None)
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::ClaimChanged(key) => pod.claim_keys().any(|own| own == *key),
            Event::PodRemoved(removed_pod) => removed_pod.shape.volumes.iter().any(|volume| match volume {
                VolumeUse::Claim(key) => pod.claim_keys().any(|own| own == *key),
                VolumeUse::Disk { .. } => pod.shape.volumes.iter().any(|own| own.conflicts(volume)),
            }),
            Event::NodeAdded(_) => true,
            _ => false,
        }
    }
}

impl Exclusive<'_> {
    fn uses(&self, shape: &Shape) -> u32 {
        let uses = |volume: &&VolumeUse| matches!(volume, VolumeUse::Claim(key) if self.claims.contains(key));
        u32::try_from(shape.volumes.iter().filter(uses).count()).unwrap_or(u32::MAX)
    }
}

impl Filter for Exclusive<'_> {
    fn check(&self, _node: NodeId, usage: &Usage) -> Option<Rejection> {
        if self.disks.iter().any(|disk| usage.volumes.iter().any(|used| disk.conflicts(used))) {
            return Some(Rejection::resolvable(DISK));
        }
        (self.users > 0).then_some(Rejection::resolvable(CLAIM))
    }

    fn add(&mut self, _node: NodeId, _class: &Class, shape: &Shape) {
        self.users += self.uses(shape);
    }

    fn remove(&mut self, _node: NodeId, _class: &Class, shape: &Shape) {
        self.users = self.users.saturating_sub(self.uses(shape));
    }
}
