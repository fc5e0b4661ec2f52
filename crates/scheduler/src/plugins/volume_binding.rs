//! VolumeBinding: restricts a pod to nodes that can access its PersistentVolumes or on which they can be provisioned.

use apimachinery::{Key, Str};

use super::node_affinity::NodeMatcher;
use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection};
use crate::pod::{Pod, PodClaim};
use crate::snapshot::{NodeId, Snapshot, Usage};
use crate::storage::{Claim, Plan, Provision, Volume};

const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";
const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";
const PV_NOT_FOUND: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

pub struct VolumeBinding;

/// A pod's PersistentVolumeClaims and the candidate volumes.
struct Volumes<'a> {
    snapshot: &'a Snapshot,
    /// For each bound claim: the nodes that can access its volume; `None` if the volume was deleted.
    bound: Vec<Option<NodeMatcher<'a>>>,
    /// Unbound claims with delayed binding, smallest first.
    delayed: Vec<DelayedClaim<'a>>,
}

struct DelayedClaim<'a> {
    key: Key,
    claim: &'a Claim,
    selected_node: Str,
    /// Matching volumes, smallest first, with the nodes that can access them. A volume that is pre-bound to the claim
    /// comes first.
    volumes: Vec<(&'a Str, NodeMatcher<'a>)>,
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        if cycle.pod.claims.is_empty() {
            return PreFilterResult::Skip;
        }
        match Volumes::new(cycle.snapshot, cycle.pod) {
            Ok(volumes) => PreFilterResult::Run(Box::new(volumes), None),
            Err(message) => PreFilterResult::Reject(message),
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

impl Filter for Volumes<'_> {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        self.plan(node).err().map(Rejection::fixed)
    }
}

/// Returns the claim writes needed if the pod is bound to this feasible node.
pub fn plan(snapshot: &Snapshot, pod: &Pod, node: NodeId) -> Plan {
    if pod.claims.is_empty() {
        return Plan::default();
    }
    Volumes::new(snapshot, pod).ok().and_then(|volumes| volumes.plan(node).ok()).unwrap_or_default()
}

/// Returns the claim of a pod's volume, or why it is missing or unusable.
pub fn claim_of<'a>(snapshot: &'a Snapshot, pod: &Pod, own: &PodClaim) -> Result<(Key, &'a Claim), String> {
    let key = Key::new(pod.class.namespace.clone(), own.name.clone());
    let Some(claim) = snapshot.storage.claim(&key) else {
        return Err(if own.ephemeral {
            format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {:?}", own.name)
        } else {
            format!("persistentvolumeclaim {:?} not found", own.name)
        });
    };
    if own.ephemeral && claim.owner != pod.uid {
        let namespace = &pod.class.namespace;
        return Err(format!(
            "PVC {namespace}/{} was not created for pod {namespace}/{} (pod is not owner)",
            own.name, pod.name
        ));
    }
    Ok((key, claim))
}

impl<'a> Volumes<'a> {
    /// Fails if a claim makes every node infeasible.
    fn new(snapshot: &'a Snapshot, pod: &Pod) -> Result<Self, String> {
        let mut this = Self { snapshot, bound: Vec::new(), delayed: Vec::new() };
        let mut immediate = false;
        for own in &pod.claims {
            let (key, claim) = claim_of(snapshot, pod, own)?;
            if claim.lost {
                let message = format!(
                    "persistentvolumeclaim {:?} bound to non-existent persistentvolume {:?}",
                    own.name, claim.volume
                );
                return Err(message);
            }
            if claim.deleting {
                return Err(format!("persistentvolumeclaim {:?} is being deleted", own.name));
            }
            if claim.bound {
                let volume = snapshot.storage.volume(&claim.volume);
                this.bound.push(volume.map(|volume| NodeMatcher::of(snapshot, &volume.affinity)));
                continue;
            }
            let class = snapshot.storage.class(&claim.class);
            if class.is_none() && !claim.class.is_empty() {
                let message = format!("storageclass.storage.k8s.io {:?} not found", claim.class);
                return Err(message);
            }
            if claim.volume.is_empty() && class.is_some_and(|class| class.waits_for_consumer) {
                this.delayed.push(DelayedClaim::new(snapshot, key, claim));
            } else {
                immediate = true;
            }
        }
        if immediate {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        this.delayed.sort_by_key(|delayed| delayed.claim.requested);
        Ok(this)
    }

    /// Returns the claim writes for this node, or why the node is infeasible.
    fn plan(&self, node: NodeId) -> Result<Plan, &'static str> {
        for volume in &self.bound {
            match volume {
                None => return Err(PV_NOT_FOUND),
                Some(nodes) if !nodes.matches(node) => return Err(ELSEWHERE),
                Some(_) => {}
            }
        }
        let name = self.snapshot.node_name(node);
        let label = |key: &str| {
            let value = self.snapshot.label(node, self.snapshot.symbol_of(key)?)?;
            Some(self.snapshot.text(value))
        };
        let mut plan = Plan::default();
        for it in &self.delayed {
            if it.selected_node.is_empty() {
                let taken = |volume: &Str| plan.bind.iter().any(|(have, _)| have == volume);
                let found = it.volumes.iter().find(|(volume, nodes)| !taken(volume) && nodes.matches(node));
                if let Some((volume, _)) = found {
                    plan.bind.push(((*volume).clone(), it.key.clone()));
                    continue;
                }
            } else if it.selected_node != *name {
                return Err(NO_VOLUME);
            }
            match self.snapshot.storage.can_provision(it.claim, label) {
                Provision::Yes => plan.provision.push(it.key.clone()),
                Provision::No => return Err(NO_VOLUME),
                Provision::InsufficientCapacity => return Err(NOT_ENOUGH_SPACE),
            }
        }
        Ok(plan)
    }
}

impl<'a> DelayedClaim<'a> {
    fn new(snapshot: &'a Snapshot, key: Key, claim: &'a Claim) -> Self {
        let storage = &snapshot.storage;
        let mut volumes: Vec<(&Str, &Volume)> =
            storage.volumes().filter(|(name, volume)| storage.fits(name, volume, &key, claim)).collect();
        volumes.sort_by_key(|(_, volume)| (volume.claim.is_none(), volume.capacity));
        let volumes = volumes.into_iter().map(|(name, it)| (name, NodeMatcher::of(snapshot, &it.affinity))).collect();
        Self { selected_node: storage.selected_node(&key, claim), key, claim, volumes }
    }
}

#[cfg(test)]
mod tests;
