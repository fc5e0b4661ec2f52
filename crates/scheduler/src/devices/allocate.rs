//! DRA allocator: searches devices for all claims of a pod on one node and takes the first solution in a fixed order.
//!
//! The search goes through claims, their requests and the devices of each request in order, with backtracking. If no
//! device is left, the previous device is released and the next candidate is tried. Within a request only devices after
//! the last chosen one are candidates, so no combination of devices is tried twice.

mod search;

use std::cell::Cell;
use std::collections::BTreeMap;

use apimachinery::Str;

use super::claim::{Alternative, Claim, Class, Mode, Request, Rule};
use super::pool::Pool;
use super::selector;
use super::slice::{Counters, Device, Nodes, Slice};
use super::{DeviceId, DeviceUsage, capacity};
use crate::plugins::node_affinity::NodeMatcher;
use crate::snapshot::{NodeId, Snapshot};

/// Maximum devices per claim.
const RESULTS_MAX: usize = 32;
/// Maximum sum of requests and devices over all claims of a pod; bounds the recursion depth of the search.
const DEPTH_MAX: usize = 2048;
/// Maximum devices tried for one pod on all nodes together.
// DEVIATION: the device search is bounded by a number of steps, which is the same on every host; upstream's is bounded
// by filterTimeout.
const STEPS_MAX: u32 = 2_000_000;

/// Allocates devices to the claims of one pod, one node at a time.
pub struct Allocator<'a> {
    snapshot: &'a Snapshot,
    shared: Vec<(&'a Pool, Vec<AccessibleNodes<'a>>)>,
    steps: Cell<u32>,
}

/// A claim that needs an allocation.
#[derive(Clone, Copy, Debug)]
pub struct PendingClaim<'c> {
    /// `namespace/name`, for messages.
    pub name: &'c str,
    pub claim: &'c Claim,
}

/// A device allocated to a request.
#[derive(Clone, Debug)]
pub struct AllocatedDevice<'a> {
    /// Index of the request in the claim.
    pub request: usize,
    /// Index of the subrequest (`firstAvailable`) in the request.
    pub alternative: usize,
    pub id: DeviceId,
    pub device: &'a Device,
    /// The slice that contains the device.
    pub slice: &'a Slice,
    /// Consumed capacity, if the device allows multiple allocations.
    pub share: Option<Counters>,
}

/// Reason for a failed allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The node does not have the devices.
    #[error("cannot allocate all claims")]
    Absent,
    /// The pools of this node are invalid or incomplete.
    #[error("{0}")]
    Node(String),
    /// A claim or class is invalid on every node.
    #[error("{0}")]
    Claim(String),
    /// The search exceeded its step limit.
    #[error("timed out trying to allocate devices")]
    Steps,
}

/// Nodes that can access the devices of a slice, as node IDs of a snapshot.
enum AccessibleNodes<'a> {
    All,
    Node(Option<NodeId>),
    Matching(NodeMatcher<'a>),
    PerDevice(Vec<AccessibleNodes<'a>>),
    None,
}

/// A device that the node can access.
struct Here<'a> {
    pool: usize,
    slice: &'a Slice,
    device: &'a Device,
    id: DeviceId,
    taken: Option<&'a DeviceUsage>,
}

/// One subrequest with its resolved class and device count.
struct ResolvedRequest<'c> {
    /// Index among all resolved requests of the search.
    number: usize,
    request: &'c Request,
    alternative: &'c Alternative,
    class: &'c Class,
    count: usize,
    /// The devices to allocate, if `allocationMode` is `All`.
    all: Option<Vec<usize>>,
}

/// Input of the search on one node; constant during the search.
struct SearchInput<'c> {
    pending_claims: &'c [PendingClaim<'c>],
    pools: Vec<&'c Pool>,
    here: Vec<Here<'c>>,
    /// Indexed by claim, request and alternative.
    needs: Vec<Vec<Vec<ResolvedRequest<'c>>>>,
    needs_len: usize,
    /// Remaining shared counters, keyed by pool index and counter set.
    counters: BTreeMap<(usize, &'c Str), Counters>,
}

impl<'a> Allocator<'a> {
    /// Creates an allocator over the devices known and free in the snapshot.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let reaches =
            |pool: &'a Pool| pool.slices.iter().map(|slice| AccessibleNodes::of_slice(snapshot, slice)).collect();
        let shared = snapshot.devices.shared_pools().map(|pool| (pool, reaches(pool))).collect();
        Self { snapshot, shared, steps: Cell::new(0) }
    }

    /// Returns the devices of each claim on the node, in the order of `pending_claims`.
    pub fn allocate<'c>(
        &'c self,
        node: NodeId,
        pending_claims: &'c [PendingClaim<'c>],
    ) -> Result<Vec<Vec<AllocatedDevice<'c>>>, Fault> {
        let mut scene = self.scene(node, pending_claims);
        self.add_needs(&mut scene)?;
        let found = search::run(&scene, &self.steps)?;
        found.ok_or_else(|| {
            let invalid = scene.pools.iter().any(|pool| pool.invalid);
            if invalid { Fault::Node("invalid resource pools were encountered".to_owned()) } else { Fault::Absent }
        })
    }

    fn scene<'c>(&'c self, node: NodeId, pending_claims: &'c [PendingClaim<'c>]) -> SearchInput<'c> {
        let mut scene = SearchInput {
            pending_claims,
            pools: Vec::new(),
            here: Vec::new(),
            needs: Vec::new(),
            needs_len: 0,
            counters: BTreeMap::new(),
        };
        let name = self.snapshot.node_name(node);
        let local = self.snapshot.devices.pools_of(name);
        let mut pools: Vec<_> = local.map(|pool| (pool, None)).collect();
        pools.extend(self.shared.iter().map(|(pool, reaches)| (*pool, Some(reaches))));
        // Pools whose devices have no binding conditions come first.
        pools.sort_by_key(|(pool, _)| pool.delays);
        for (pool, reaches) in pools {
            let before = scene.here.len();
            for (at, slice) in pool.slices.iter().enumerate() {
                let reach = reaches.map(|reaches| &reaches[at]);
                for (at, device) in slice.devices.iter().enumerate() {
                    if reach.is_none_or(|reach| reach.includes(node, at)) {
                        let id = pool.id(device);
                        let taken = self.snapshot.devices.taken(&id);
                        scene.here.push(Here { pool: scene.pools.len(), slice, device, id, taken });
                    }
                }
            }
            if scene.here.len() > before {
                self.count(pool, scene.pools.len(), &mut scene.counters);
                scene.pools.push(pool);
            }
        }
        scene
    }

    /// Adds the pool's shared counters, minus the consumption of allocated devices, to `counters`.
    fn count<'c>(&'c self, pool: &'c Pool, at: usize, counters: &mut BTreeMap<(usize, &'c Str), Counters>) {
        if pool.counters.is_empty() {
            return;
        }
        counters.extend(pool.counters.iter().map(|(set, amounts)| ((at, set), amounts.clone())));
        let all = pool.slices.iter().flat_map(|slice| &slice.devices);
        for device in all.filter(|device| self.snapshot.devices.taken(&pool.id(device)).is_some()) {
            for (set, amounts) in &device.consumes {
                let Some(left) = counters.get_mut(&(at, set)) else { continue };
                for (name, amount) in amounts {
                    if let Some(left) = left.get_mut(name) {
                        *left = left.sub(*amount);
                    }
                }
            }
        }
    }

    fn add_needs<'c>(&'c self, scene: &mut SearchInput<'c>) -> Result<(), Fault> {
        let mut depth = 0;
        for pending_claim in scene.pending_claims {
            let mut requests = Vec::new();
            let mut least = 0;
            for request in &pending_claim.claim.requests {
                let mut needs = Vec::new();
                for alternative in &request.alternatives {
                    needs.push(self.need(scene, pending_claim, request, alternative)?);
                    scene.needs_len += 1;
                }
                least += needs.iter().map(|need| need.count).min().unwrap_or_default();
                requests.push(needs);
            }
            if least > RESULTS_MAX {
                let cause = format!("number of requested devices {least} exceeds the claim limit of {RESULTS_MAX}");
                return Err(Fault::Claim(format!("claim {}: {cause}", pending_claim.name)));
            }
            let unknown = pending_claim.claim.constraints.iter().position(|it| it.rule == Rule::Unknown);
            if let Some(at) = unknown {
                let cause = "empty constraint (unsupported constraint type?)";
                return Err(Fault::Claim(format!("claim {}, constraint #{at}: {cause}", pending_claim.name)));
            }
            depth += requests.len() + RESULTS_MAX;
            scene.needs.push(requests);
        }
        if depth > DEPTH_MAX {
            return Err(Fault::Claim("the claims of the pod ask for too many devices".to_owned()));
        }
        Ok(())
    }

    fn need<'c>(
        &'c self,
        scene: &SearchInput<'c>,
        pending_claim: &PendingClaim<'c>,
        request: &'c Request,
        alternative: &'c Alternative,
    ) -> Result<ResolvedRequest<'c>, Fault> {
        let own = if alternative.name.is_empty() { &request.name } else { &alternative.name };
        let wrong = |cause: String| Fault::Claim(format!("claim {}, request {own}: {cause}", pending_claim.name));
        let Some(class) = self.snapshot.devices.class(&alternative.class) else {
            let name = &alternative.class;
            let cause =
                format!("could not retrieve device class {name}: deviceclass.resource.k8s.io {name:?} not found");
            return Err(wrong(cause));
        };
        let mut need = ResolvedRequest { number: scene.needs_len, request, alternative, class, count: 0, all: None };
        match &alternative.mode {
            // A larger count exceeds RESULTS_MAX and is rejected when the devices are counted.
            Mode::Exactly(count) => need.count = usize::try_from(*count).unwrap_or(usize::MAX).min(RESULTS_MAX + 1),
            Mode::Unknown(mode) => return Err(wrong(format!("unsupported count mode {mode}"))),
            Mode::All => {
                for pool in &scene.pools {
                    let state = match (pool.incomplete, pool.invalid) {
                        (true, _) => "being updated",
                        (_, true) => "invalid",
                        _ => continue,
                    };
                    let id = format!("{}/{}", pool.driver, pool.name);
                    let cause = format!("asks for all devices, but resource pool {id} is currently {state}");
                    return Err(Fault::Node(format!("claim {}, request {own}: {cause}", pending_claim.name)));
                }
                let mut all = Vec::new();
                for (at, here) in scene.here.iter().enumerate() {
                    if selectable(pending_claim, &need, here)? && fits(alternative, here, &Counters::new()).is_some() {
                        all.push(at);
                    }
                }
                need.count = all.len();
                need.all = Some(all);
            }
        }
        Ok(need)
    }
}

impl<'a> AccessibleNodes<'a> {
    fn of_slice(snapshot: &'a Snapshot, slice: &'a Slice) -> Self {
        match &slice.nodes {
            Nodes::PerDevice => {
                Self::PerDevice(slice.devices.iter().map(|it| Self::new(snapshot, &it.nodes)).collect())
            }
            nodes => Self::new(snapshot, nodes),
        }
    }

    fn new(snapshot: &'a Snapshot, nodes: &'a Nodes) -> Self {
        match nodes {
            Nodes::Named(name) => Self::Node(snapshot.node(name)),
            Nodes::All => Self::All,
            Nodes::Matching(affinity, _) => Self::Matching(NodeMatcher::of(snapshot, affinity)),
            Nodes::PerDevice | Nodes::Unknown => Self::None,
        }
    }

    fn includes(&self, node: NodeId, device: usize) -> bool {
        match self {
            Self::All => true,
            Self::Node(only) => *only == Some(node),
            Self::Matching(nodes) => nodes.matches(node),
            Self::PerDevice(devices) => devices[device].includes(node, device),
            Self::None => false,
        }
    }
}

/// Whether a device matches the selectors of the class and of the request.
fn selectable(pending_claim: &PendingClaim<'_>, need: &ResolvedRequest<'_>, here: &Here<'_>) -> Result<bool, Fault> {
    let selectors = need.class.selectors.iter().enumerate().map(|(at, it)| (true, at, it));
    let own = need.alternative.selectors.iter().enumerate().map(|(at, it)| (false, at, it));
    for (of_class, at, selector) in selectors.chain(own) {
        let who = if of_class {
            format!("class {}", need.alternative.class)
        } else {
            format!("claim {}", pending_claim.name)
        };
        match selector.matches(&here.id.driver, here.device) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error @ selector::Error::Compile(_)) => {
                return Err(Fault::Claim(format!("{who}: selector #{at}: {error}")));
            }
            Err(error @ selector::Error::Run(_)) => {
                return Err(Fault::Claim(format!("{who}: selector #{at} on device {}: {error}", here.id)));
            }
        }
    }
    Ok(true)
}

/// Returns the capacity that the request consumes, or `None` if the device has too little left.
fn fits(alternative: &Alternative, here: &Here<'_>, taking: &Counters) -> Option<Counters> {
    let none = Counters::new();
    let taken = here.taken.map_or(&none, |taken| &taken.capacity);
    capacity::consume(&here.id.driver, here.device, &alternative.capacity, &[taken, taking])
}
