//! NodeResourcesFit: filters nodes by free resources and scores them by utilization.

use apimachinery::Str;

use crate::devices::is_backed_name;
use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection, SCORE_MAX, Scorer};
use crate::node::Node;
use crate::pod::Pod;
use crate::resources::{Resources, is_extended};
use crate::snapshot::{FreeCapacity, NodeId, Snapshot, Usage};

/// The `scoringStrategy` type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Prefers nodes with low utilization.
    LeastAllocated,
    /// Prefers nodes with high utilization.
    MostAllocated,
    /// Interpolates linearly between points of utilization (percent) and score (0 to 10).
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// The plugin with its arguments.
pub struct Fit {
    pub strategy: Strategy,
    /// Scored resources with weights.
    pub resources: Vec<(Str, i64)>,
    /// `ignoredResources`: extended resources that are not checked.
    pub ignored: Vec<Str>,
    /// `ignoredResourceGroups`: groups (name prefixes) of such resources.
    pub ignored_groups: Vec<Str>,
}

const PODS: u64 = 1;
const CPU: u64 = 1 << 1;
const MEMORY: u64 = 1 << 2;
const EPHEMERAL: u64 = 1 << 3;
/// First bit of the mask for scalar resources, in the order of the pod's requests.
const SCALARS: u32 = 4;

struct Space<'a> {
    snapshot: &'a Snapshot,
    requested: &'a Resources,
    /// By index in the pod's scalar requests.
    counted: Vec<ResourceProvider>,
    /// Whether the pod requests only CPU and memory.
    is_plain: bool,
}

/// Provider of a scalar resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResourceProvider {
    /// The node's allocatable.
    Node,
    /// Devices, on nodes that do not report the resource.
    Devices,
    /// An extender or other component: not checked here.
    External,
}

struct Ranking<'a> {
    snapshot: &'a Snapshot,
    strategy: &'a Strategy,
    resources: Vec<ScoredResource<'a>>,
}

/// A scored resource.
struct ScoredResource<'a> {
    name: &'a str,
    weight: i64,
    requested: i64,
}

impl Default for Fit {
    fn default() -> Self {
        let resources = vec![("cpu".into(), 1), ("memory".into(), 1)];
        Self { strategy: Strategy::LeastAllocated, resources, ignored: Vec::new(), ignored_groups: Vec::new() }
    }
}

impl Plugin for Fit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let requested = &cycle.pod.shape.requests;
        let devices = &cycle.snapshot.devices;
        let counted = requested.scalars.iter().map(|(name, _)| match self.ignores(name) {
            true => ResourceProvider::External,
            false if is_backed_name(name) && devices.class_of(name).is_some() => ResourceProvider::Devices,
            false => ResourceProvider::Node,
        });
        let counted = counted.collect();
        let is_plain = requested.ephemeral <= 0 && requested.scalars.is_empty();
        PreFilterResult::Run(Box::new(Space { snapshot: cycle.snapshot, requested, counted, is_plain }), None)
    }

    fn scorer<'a>(&'a self, cycle: Cycle<'a>, _nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        let [cpu, memory] = cycle.pod.scored;
        let requested = |name: &str| match name {
            "cpu" => cpu,
            "memory" => memory,
            _ => cycle.pod.shape.requests.amount(name),
        };
        let resources = self.resources.iter().map(|(name, weight)| ScoredResource {
            name,
            weight: *weight,
            requested: requested(name),
        });
        // Extended resources do not affect the score of pods that do not request them.
        let resources = resources.filter(|it| it.requested != 0 || !is_extended(it.name)).collect();
        Some(Box::new(Ranking { snapshot: cycle.snapshot, strategy: &self.strategy, resources }))
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::PodRemoved(_) => true,
            Event::PodUpdated(old, new) => shrinks(&old.shape.requests, &new.shape.requests, &pod.shape.requests),
            Event::NodeAdded(node) => self.empty_node_fits(pod, node),
            Event::NodeUpdated(old, new) => {
                self.empty_node_fits(pod, new)
                    && (grows(&old.allocatable, &new.allocatable) || new.pods_max > old.pods_max)
            }
            Event::NodeRemoved(_)
            | Event::PodAdded(_)
            | Event::NamespaceChanged
            | Event::ClaimChanged(_)
            | Event::StorageChanged
            | Event::DeviceClaimChanged(_) => false,
            // A DeviceClass may now back the resource.
            Event::DevicesChanged => !pod.extended.is_empty(),
        }
    }
}

impl Fit {
    fn ignores(&self, name: &Str) -> bool {
        let group = name.split('/').next().unwrap_or_default();
        is_extended(name) && (self.ignored.contains(name) || self.ignored_groups.iter().any(|it| it == group))
    }

    fn empty_node_fits(&self, pod: &Pod, node: &Node) -> bool {
        let counted = |name: &Str| if self.ignores(name) { ResourceProvider::External } else { ResourceProvider::Node };
        let counted: Vec<_> = pod.shape.requests.scalars.iter().map(|(name, _)| counted(name)).collect();
        let usage = Usage::default();
        missing(&pod.shape.requests, &counted, &node.allocatable, node.pods_max, &usage).0 == 0
    }
}

impl Filter for Space<'_> {
    fn check(&self, node: NodeId, usage: &Usage) -> Option<Rejection> {
        // Fast path for pods with only CPU and memory on an unmodified node: one cache line suffices.
        if self.is_plain && std::ptr::eq(usage, self.snapshot.usage(node)) {
            let (mask, hopeless) = missing_in_free_space(self.requested, self.snapshot.free_space(node));
            return (mask != 0).then_some(Rejection { resolvable: !hopeless, text: "", mask });
        }
        let offer = self.snapshot.offer(node);
        let (mask, hopeless) = missing(self.requested, &self.counted, &offer.allocatable, offer.pods_max, usage);
        (mask != 0).then_some(Rejection { resolvable: !hopeless, text: "", mask })
    }

    fn reasons(&self, rejection: Rejection) -> Vec<String> {
        let names = [(CPU, "cpu"), (MEMORY, "memory"), (EPHEMERAL, "ephemeral-storage")];
        let scalars = (SCALARS..64).zip(&self.requested.scalars).map(|(at, (name, _))| (1 << at, name.as_str()));
        let few = names.into_iter().chain(scalars).filter(|(bit, _)| rejection.mask & bit != 0);
        let mut reasons: Vec<_> = few.map(|(_, name)| format!("Insufficient {name}")).collect();
        if rejection.mask & PODS != 0 {
            reasons.insert(0, "Too many pods".to_owned());
        }
        reasons
    }
}

impl Scorer for Ranking<'_> {
    fn score(&self, node: NodeId) -> i64 {
        let (offer, usage) = (self.snapshot.offer(node), self.snapshot.usage(node));
        let (mut sum, mut weights) = (0, 0);
        for it in &self.resources {
            let has = offer.allocatable.amount(it.name);
            if has == 0 {
                continue;
            }
            let taken = match it.name {
                "cpu" => usage.non_zero[0],
                "memory" => usage.non_zero[1],
                name => usage.requested.amount(name),
            };
            let score = self.strategy.score(taken + it.requested, has);
            let counts = score > 0 || !matches!(self.strategy, Strategy::RequestedToCapacityRatio(_));
            sum += score * it.weight;
            weights += if counts { it.weight } else { 0 };
        }
        match self.strategy {
            _ if weights == 0 => 0,
            Strategy::RequestedToCapacityRatio(_) => rounded_quotient(sum, weights),
            Strategy::LeastAllocated | Strategy::MostAllocated => sum / weights,
        }
    }
}

impl Strategy {
    fn score(&self, taken: i64, has: i64) -> i64 {
        match self {
            Self::LeastAllocated if taken > has => 0,
            Self::LeastAllocated => (has - taken) * SCORE_MAX / has,
            Self::MostAllocated => taken.min(has) * SCORE_MAX / has,
            Self::RequestedToCapacityRatio(points) if taken > has => along(points, 100),
            Self::RequestedToCapacityRatio(points) => along(points, taken * 100 / has),
        }
    }
}

/// Interpolates between points; scores of points are 0 to 10.
fn along(points: &[(i64, i64)], at: i64) -> i64 {
    let mut last = None;
    for &(x, y) in points {
        let y = y * (SCORE_MAX / 10);
        match last {
            _ if at > x => last = Some((x, y)),
            None => return y,
            Some((x0, y0)) => return y0 + (y - y0) * (at - x0) / (x - x0),
        }
    }
    last.map_or(0, |(_, y)| y)
}

fn rounded_quotient(sum: i64, by: i64) -> i64 {
    (sum * 2 + by).div_euclid(by * 2)
}

/// Returns the insufficient resources as bits, and whether the pod would not fit on the empty node either.
fn missing(
    requested: &Resources,
    counted: &[ResourceProvider],
    has: &Resources,
    pods_max: i64,
    usage: &Usage,
) -> (u64, bool) {
    let (mut mask, mut hopeless) = (0, false);
    if usage.pods + 1 > pods_max {
        mask |= PODS;
    }
    let taken = &usage.requested;
    let mut compare = |bit: u64, requested: i64, has: i64, taken: i64| {
        if requested > 0 && requested > has - taken {
            mask |= bit;
            hopeless |= requested > has;
        }
    };
    compare(CPU, requested.cpu_milli, has.cpu_milli, taken.cpu_milli);
    compare(MEMORY, requested.memory, has.memory, taken.memory);
    compare(EPHEMERAL, requested.ephemeral, has.ephemeral, taken.ephemeral);
    for (at, (name, amount)) in requested.scalars.iter().enumerate() {
        let by_devices = counted[at] == ResourceProvider::Devices && has.scalar(name) == 0;
        if by_devices || counted[at] == ResourceProvider::External {
            continue;
        }
        // Beyond 60 resources the last bit stands for all others.
        let bit = 1 << (u32::try_from(at).unwrap_or(u32::MAX).saturating_add(SCALARS)).min(63);
        compare(bit, *amount, has.scalar(name), taken.scalar(name));
    }
    (mask, hopeless)
}

/// Like [`missing`], for a pod that requests only CPU and memory.
const fn missing_in_free_space(requested: &Resources, free_space: &FreeCapacity) -> (u64, bool) {
    let (mut mask, mut hopeless) = (0, false);
    if free_space.free[2] < 1 {
        mask |= PODS;
    }
    if requested.cpu_milli > 0 && requested.cpu_milli > free_space.free[0] {
        mask |= CPU;
        hopeless |= requested.cpu_milli > free_space.whole[0];
    }
    if requested.memory > 0 && requested.memory > free_space.free[1] {
        mask |= MEMORY;
        hopeless |= requested.memory > free_space.whole[1];
    }
    (mask, hopeless)
}

fn grows(old: &Resources, new: &Resources) -> bool {
    new.cpu_milli > old.cpu_milli
        || new.memory > old.memory
        || new.ephemeral > old.ephemeral
        || new.scalars.iter().any(|(name, amount)| *amount > old.scalar(name))
}

/// Whether a pod shrank a request for a resource that another pod wants.
fn shrinks(old: &Resources, new: &Resources, requested: &Resources) -> bool {
    let less = |old: i64, new: i64, requested: i64| requested > 0 && new < old;
    less(old.cpu_milli, new.cpu_milli, requested.cpu_milli)
        || less(old.memory, new.memory, requested.memory)
        || less(old.ephemeral, new.ephemeral, requested.ephemeral)
        || requested.scalars.iter().any(|(name, amount)| less(old.scalar(name), new.scalar(name), *amount))
}
