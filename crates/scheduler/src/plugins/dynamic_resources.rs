//! DynamicResources: restricts a pod to nodes where its ResourceClaims are allocated or can be allocated.

use std::cell::RefCell;
use std::collections::BTreeSet;

use apimachinery::{Key, Str};

use super::node_affinity::NodeMatcher;
use crate::devices::{
    AllocatedDevice, Allocator, Claim, Create, Devices, ExtendedResourceClaim, Fault, PendingClaim, Plan, Reserve,
    allocation,
};
use crate::framework::{Cycle, Direction, Event, Filter, Plugin, PreFilterResult, Rejection, Release, Scorer, scale};
use crate::pod::{Pod, Source};
use crate::snapshot::{NodeId, Snapshot, Usage};

const NO_DEVICES: &str = "cannot allocate all claims";
const ELSEWHERE: &str = "resourceclaim not available on the node";
const LEFT_OVER: &str = "cannot schedule extended resource claim";
const NOT_COUNTED: &str = "cannot fit resource";
const TOO_LONG: &str = "timed out trying to allocate devices";

/// Maximum pods in `status.reservedFor` of a claim.
const USERS_MAX: usize = 256;
/// Score of the first alternative of a request; each further alternative scores one less.
const WAYS_MAX: usize = 8;

pub struct DynamicResources;

/// The filter and scorer: a pod's claims and the results of the checked nodes.
struct Claims<'a> {
    snapshot: &'a Snapshot,
    pod: &'a Pod,
    own: Vec<Own<'a>>,
    backing: Backing<'a>,
    allocator: Allocator<'a>,
    seen: RefCell<AllocationFailures>,
}

/// A claim of the pod.
struct Own<'a> {
    key: Key,
    /// For messages.
    name: String,
    claim: &'a Claim,
    /// Nodes that can access the allocated devices; `None` if the claim is not allocated or all nodes can.
    nodes: Option<NodeMatcher<'a>>,
}

/// Whether devices back extended resources of the pod.
enum Backing<'a> {
    No,
    Yes,
    /// Devices back them, and a claim of an earlier attempt exists.
    ExistingClaim(&'a Key),
}

#[derive(Default)]
struct AllocationFailures {
    /// Claims whose devices some node cannot access.
    unavailable: BTreeSet<usize>,
    /// Allocation errors of nodes; a rejection's mask is an index into this list.
    faults: Vec<String>,
    failure: Option<String>,
}

/// Devices found on a node.
struct NodeAllocation<'c> {
    /// For each claim without allocation.
    given: Vec<Vec<AllocatedDevice<'c>>>,
}

struct Ranking<'a> {
    claims: Claims<'a>,
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn gate(&self, pod: &Pod, devices: &Devices) -> Option<String> {
        own_claims(pod, devices).err()
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        match Claims::new(cycle) {
            Ok(None) => PreFilterResult::Skip,
            Ok(Some(claims)) => PreFilterResult::Run(Box::new(claims), None),
            Err(message) => PreFilterResult::Reject(message),
        }
    }

    fn scorer<'a>(&'a self, cycle: Cycle<'a>, _nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        let claims = Claims::new(cycle).ok().flatten()?;
        let has_choice = claims.own.iter().any(|own| own.claim.allocation.is_none() && own.claim.has_choice());
        has_choice.then(|| Box::new(Ranking { claims }) as Box<dyn Scorer>)
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::DeviceClaimChanged(key) => pod.uses_device_claim(key),
            Event::DevicesChanged | Event::NodeAdded(_) => true,
            Event::NodeUpdated(old, new) => old.labels != new.labels || old.allocatable != new.allocatable,
            _ => false,
        }
    }
}

impl Filter for Claims<'_> {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        let extended = match self.extended(node) {
            Ok(extended) => extended,
            Err(reason) => return Some(Rejection::fixed(reason)),
        };
        let fault = self.find(node, extended.as_ref(), |_| ()).err();
        if let Some(fault) = fault {
            return Some(self.reject(fault));
        }
        let mut seen = self.seen.borrow_mut();
        let mut reached = true;
        for (at, own) in self.own.iter().enumerate() {
            if own.claim.failed || own.nodes.as_ref().is_some_and(|nodes| !nodes.matches(node)) {
                seen.unavailable.insert(at);
                reached = false;
            }
        }
        (!reached).then_some(Rejection::fixed(ELSEWHERE))
    }

    fn reasons(&self, rejection: Rejection) -> Vec<String> {
        let number = usize::try_from(rejection.mask).unwrap_or_default();
        let fault = number.checked_sub(1).and_then(|at| self.seen.borrow().faults.get(at).cloned());
        vec![fault.unwrap_or_else(|| rejection.text.to_owned())]
    }

    fn failure(&self) -> Option<String> {
        self.seen.borrow().failure.clone()
    }

    fn post_filter(&self) -> Option<(&'static str, Option<Release>)> {
        let seen = self.seen.borrow();
        let free = |own: &&Own<'_>| match own.claim.reserved_for.as_slice() {
            [] => true,
            [one] => *one == self.pod.uid,
            _ => false,
        };
        if let Some(own) = seen.unavailable.iter().map(|at| &self.own[*at]).find(free) {
            let release = Release::Deallocate(own.key.clone());
            return Some(("deallocation of ResourceClaim completed", Some(release)));
        }
        if let Backing::ExistingClaim(key) = self.backing {
            return Some(("deletion of ResourceClaim completed", Some(Release::Delete(key.clone()))));
        }
        Some(("still not schedulable", None))
    }
}

impl Scorer for Ranking<'_> {
    fn score(&self, node: NodeId) -> i64 {
        let Ok(extended) = self.claims.extended(node) else { return 0 };
        let rank = |found: NodeAllocation<'_>| {
            let mut sum = 0;
            for (own, given) in self.claims.unallocated().zip(&found.given) {
                for (at, request) in own.claim.requests.iter().enumerate() {
                    let choice = request.alternatives.iter().any(|it| !it.name.is_empty());
                    let chosen = given.iter().find(|it| it.request == at).filter(|_| choice);
                    sum += chosen.map_or(0, |it| WAYS_MAX.saturating_sub(it.alternative));
                }
            }
            i64::try_from(sum).unwrap_or(i64::MAX)
        };
        self.claims.find(node, extended.as_ref(), rank).unwrap_or_default()
    }

    fn normalize(&self, _nodes: &[NodeId], scores: &mut [i64]) {
        scale(scores, Direction::HighIsGood);
    }
}

/// Returns the claim writes needed if the pod is bound to this feasible node.
pub fn plan(snapshot: &Snapshot, pod: &Pod, node: NodeId) -> Plan {
    if pod.device_claims.is_empty() && pod.extended.is_empty() {
        return Plan::default();
    }
    let Ok(Some(claims)) = Claims::new(Cycle { snapshot, pod }) else { return Plan::default() };
    let Ok(extended) = claims.extended(node) else { return Plan::default() };
    claims.find(node, extended.as_ref(), |found| claims.plan(node, extended.as_ref(), &found)).unwrap_or_default()
}

impl<'a> Claims<'a> {
    /// Returns `None` if the pod needs no devices; an error if the pod is unschedulable on every node.
    fn new(cycle: Cycle<'a>) -> Result<Option<Self>, String> {
        let Cycle { snapshot, pod } = cycle;
        let devices = &snapshot.devices;
        let claims = own_claims(pod, devices)?;
        let backing = match devices.extended_claim(&pod.uid) {
            _ if !devices.backs(pod) => Backing::No,
            Some((key, _)) => Backing::ExistingClaim(key),
            None => Backing::Yes,
        };
        if claims.is_empty() && matches!(backing, Backing::No) {
            return Ok(None);
        }
        let mut own = Vec::with_capacity(claims.len());
        for (key, claim) in claims {
            let name = format!("{}/{}", key.namespace, key.name);
            if claim.allocation.is_some() {
                if claim.reserved_for.len() >= USERS_MAX && !claim.reserved_for.contains(&pod.uid) {
                    return Err("resourceclaim in use".to_owned());
                }
            } else if devices.is_in_flight(&key) {
                return Err(format!("resource claim {name} is in the process of being allocated"));
            } else {
                validate_claim(devices, &name, claim)?;
            }
            let nodes = claim.allocation.as_ref().and_then(|it| it.nodes.as_ref());
            let nodes = nodes.map(|nodes| NodeMatcher::of(snapshot, nodes));
            own.push(Own { key, name, claim, nodes });
        }
        let (allocator, seen) = (Allocator::new(snapshot), RefCell::default());
        Ok(Some(Self { snapshot, pod, own, backing, allocator, seen }))
    }

    /// Returns the extended resources that devices must provide on a node. The error is the reason why the node is
    /// infeasible.
    fn extended(&self, node: NodeId) -> Result<Option<ExtendedResourceClaim>, &'static str> {
        match self.backing {
            Backing::No => Ok(None),
            Backing::ExistingClaim(_) => Err(LEFT_OVER),
            Backing::Yes => {
                let extended = self.snapshot.devices.extended(self.pod, &self.snapshot.offer(node).allocatable);
                let extended = extended.ok_or(NOT_COUNTED)?;
                Ok(Some(extended).filter(|extended| !extended.claim.requests.is_empty()))
            }
        }
    }

    fn unallocated(&self) -> impl Iterator<Item = &Own<'a>> {
        self.own.iter().filter(|own| own.claim.allocation.is_none())
    }

    /// Finds devices on a node for all unallocated claims and passes them to the callback.
    fn find<T>(
        &self,
        node: NodeId,
        extended: Option<&ExtendedResourceClaim>,
        inspect: impl FnOnce(NodeAllocation<'_>) -> T,
    ) -> Result<T, Fault> {
        let own = self.unallocated().map(|own| PendingClaim { name: &own.name, claim: own.claim });
        let more = extended.map(|extended| PendingClaim { name: "<extended-resources>", claim: &extended.claim });
        let pending_claims: Vec<_> = own.chain(more).collect();
        let given =
            if pending_claims.is_empty() { Vec::new() } else { self.allocator.allocate(node, &pending_claims)? };
        Ok(inspect(NodeAllocation { given }))
    }

    fn reject(&self, fault: Fault) -> Rejection {
        match fault {
            Fault::Absent => Rejection::fixed(NO_DEVICES),
            Fault::Steps => Rejection::fixed(TOO_LONG),
            Fault::Node(message) => {
                let faults = &mut self.seen.borrow_mut().faults;
                let at = faults.iter().position(|have| *have == message).unwrap_or_else(|| {
                    faults.push(message);
                    faults.len() - 1
                });
                Rejection { mask: at as u64 + 1, ..Rejection::fixed("") }
            }
            Fault::Claim(message) => {
                self.seen.borrow_mut().failure.get_or_insert(message);
                Rejection::fixed(NO_DEVICES)
            }
        }
    }

    fn plan(&self, node: NodeId, extended: Option<&ExtendedResourceClaim>, found: &NodeAllocation<'_>) -> Plan {
        let (devices, name) = (&self.snapshot.devices, self.snapshot.node_name(node));
        let (mut reserve, mut takes) = (Vec::new(), Vec::new());
        let mut given = found.given.iter();
        for own in &self.own {
            let got = own.claim.allocation.is_none().then(|| given.next()).flatten().map(|given| {
                let (written, taken) = allocation(devices, own.claim, given, name, &self.pod.uid);
                takes.extend(taken);
                written
            });
            let reserved = own.claim.reserved_for.contains(&self.pod.uid);
            reserve.push(Reserve { key: own.key.clone(), uid: own.claim.uid.clone(), allocation: got, reserved });
        }
        let create = extended.zip(given.next()).map(|(extended, given)| {
            let (written, taken) = allocation(devices, &extended.claim, given, name, &self.pod.uid);
            takes.extend(taken);
            Create { requests: extended.requests(), allocation: written, mappings: extended.mappings.clone() }
        });
        Plan::new(reserve, create, takes)
    }
}

/// Returns the claims of a pod, or why one is missing or unusable.
fn own_claims<'a>(pod: &Pod, devices: &'a Devices) -> Result<Vec<(Key, &'a Claim)>, String> {
    let (namespace, name) = (&pod.class.namespace, &pod.name);
    let mut claims = Vec::new();
    for own in &pod.device_claims {
        let (claim, made): (&Str, bool) = match &own.source {
            Source::Named(claim) => (claim, false),
            Source::FromTemplate(claim) => (claim, true),
            Source::NotNeeded => continue,
            Source::NotCreated => return Err(format!("pod \"{namespace}/{name}\": ResourceClaim not created yet")),
            Source::Unknown => {
                let field = &own.name;
                return Err(format!("pod \"{namespace}/{name}\", spec.resourceClaim {field:?}: API not supported"));
            }
        };
        let key = Key::new(namespace.clone(), claim.clone());
        let Some(found) = devices.claim(&key) else {
            return Err(format!("could not find v1.ResourceClaim \"{namespace}/{claim}\""));
        };
        if found.deleting {
            return Err(format!("resourceclaim {claim:?} is being deleted"));
        }
        if made && found.owner != pod.uid {
            let owner = format!("ResourceClaim {namespace}/{claim} was not created for pod {namespace}/{name}");
            return Err(format!("{owner} (pod is not owner)"));
        }
        claims.push((key, found));
    }
    Ok(claims)
}

/// Fails if a request has an unknown type or names a DeviceClass that does not exist.
fn validate_claim(devices: &Devices, name: &str, claim: &Claim) -> Result<(), String> {
    for request in &claim.requests {
        if request.alternatives.is_empty() {
            return Err(format!("resource claim {name}, request {}: unknown request type", request.name));
        }
        for alternative in &request.alternatives {
            if devices.class(&alternative.class).is_none() {
                let (request, class) = (request.full_name(alternative), &alternative.class);
                return Err(format!("request {request}: device class {class} does not exist"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
