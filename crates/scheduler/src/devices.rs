//! Dynamic resource allocation: devices published by drivers, allocated devices, and allocations in flight.

mod allocate;
mod capacity;
mod claim;
mod extended;
mod pool;
mod result;
mod selector;
mod slice;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use apimachinery::quantity::Quantity;
use apimachinery::{Key, Str, Value};

pub use allocate::{AllocatedDevice, Allocator, Fault, PendingClaim};
pub use claim::{Allocation, Alternative, Claim, Class, Constraint, EXTENDED_ANNOTATION, Mode, Request, Rule, Take};
pub use extended::{ExtendedResourceClaim, is_backed_name};
pub use pool::Pool;
pub use result::allocation;
pub use selector::Selector;
pub use slice::{Attribute, Capacity, Counters, Device, Nodes, Slice};

use selector::Selectors;

/// Prefix of the implicit extended resource name of every DeviceClass.
const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Identity of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    pub driver: Str,
    pub pool: Str,
    /// Name within the pool.
    pub device: Str,
}

/// Cache of ResourceClaims, DeviceClasses and ResourceSlices, with the current usage of each device.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    claims: BTreeMap<Key, Claim>,
    classes: BTreeMap<Str, Class>,
    /// Keyed by slice name.
    slices: BTreeMap<Str, Arc<Slice>>,
    /// Names of the slices of each pool, keyed by driver and pool name.
    members: BTreeMap<(Str, Str), BTreeSet<Str>>,
    /// Keyed by driver and pool name.
    pools: BTreeMap<(Str, Str), Pool>,
    /// `local`: pools that only one node can access, keyed by node. `shared`: all other pools.
    local: BTreeMap<Str, BTreeSet<(Str, Str)>>,
    shared: BTreeSet<(Str, Str)>,
    taken: BTreeMap<DeviceId, DeviceUsage>,
    /// Allocations assumed for pods before the watch reports them, keyed by pod UID.
    in_flight: BTreeMap<Str, Plan>,
    selectors: Selectors,
    /// Name of the DeviceClass that backs an extended resource.
    by_resource: BTreeMap<Str, Str>,
    /// Claims created for extended resources of pods, keyed by pod UID.
    extended: BTreeMap<Str, Key>,
}

/// Current usage of a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceUsage {
    /// Number of exclusive allocations; more than one means a double allocation.
    pub whole: u32,
    /// Number of shared allocations.
    pub shares: u32,
    /// Sum of the capacity consumed by shared allocations.
    pub capacity: Counters,
}

/// Writes needed for a pod's ResourceClaims before the pod can be bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Claims to reserve for the pod.
    pub reserve: Vec<Reserve>,
    /// A claim to create for the pod's extended resources.
    pub create: Option<Create>,
    takes: Vec<Take>,
}

/// A claim to reserve for a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserve {
    pub key: Key,
    pub uid: Str,
    /// Allocation to write; `None` if the claim is allocated already.
    pub allocation: Option<Value>,
    /// Whether the pod is already in `status.reservedFor`.
    pub reserved: bool,
}

/// A claim to create for extended resources.
#[derive(Clone, Debug, PartialEq)]
pub struct Create {
    /// `spec.devices.requests`.
    pub requests: Vec<Value>,
    /// `status.allocation`.
    pub allocation: Value,
    /// Maps each request to a container and its extended resource.
    pub mappings: Vec<Value>,
}

/// Effect of a claim change on waiting pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// No effect.
    None,
    /// Affects only the pods that use the claim.
    ClaimUsers,
    /// Affects all pods that wait for devices, because the claim released some.
    Released,
}

/// The `set_*` functions take the current object; `None` means that the object was deleted.
impl Devices {
    /// Updates a ResourceClaim.
    pub fn set_claim(&mut self, key: &Key, object: Option<&Value>) -> Change {
        let claim = object.map(|object| Claim::new(object, &mut self.selectors));
        let before = self.claims.remove(key);
        if let Some(before) = &before {
            before.allocation.iter().flat_map(|it| &it.takes).for_each(|take| release(&mut self.taken, take));
            if before.extended {
                self.extended.remove(&before.owner);
            }
        }
        let change = match (&before, &claim) {
            (Some(before), Some(claim)) if before == claim => Change::None,
            (Some(before), after) => {
                let had = before.allocation.is_some();
                let freed = had && after.as_ref().is_none_or(|claim| claim.allocation.is_none());
                if freed { Change::Released } else { Change::ClaimUsers }
            }
            (None, Some(_)) => Change::ClaimUsers,
            (None, None) => Change::None,
        };
        if let Some(claim) = claim {
            claim.allocation.iter().flat_map(|it| &it.takes).for_each(|take| self::take(&mut self.taken, take));
            if claim.extended {
                self.extended.insert(claim.owner.clone(), key.clone());
            }
            self.claims.insert(key.clone(), claim);
        }
        change
    }

    /// Updates a DeviceClass.
    pub fn set_class(&mut self, name: &Str, object: Option<&Value>) {
        match object.map(|object| Class::new(object, &mut self.selectors)) {
            Some(class) => drop(self.classes.insert(name.clone(), class)),
            None => drop(self.classes.remove(name)),
        }
        let mut by_resource: BTreeMap<Str, Str> = BTreeMap::new();
        // Of several classes with the same extended resource the newest is used; of equal age, the first by name.
        let mut classes: Vec<_> = self.classes.iter().filter(|(_, it)| !it.extended_resource.is_empty()).collect();
        classes.sort_by_key(|(name, class)| (std::cmp::Reverse(class.created_seconds), *name));
        for (name, class) in classes {
            by_resource.entry(class.extended_resource.clone()).or_insert_with(|| name.clone());
        }
        self.by_resource = by_resource;
    }

    /// Updates a ResourceSlice.
    pub fn set_slice(&mut self, name: &Str, object: Option<&Value>) {
        let new = object.map(|object| Arc::new(Slice::new(object)));
        let old = match &new {
            Some(slice) => self.slices.insert(name.clone(), Arc::clone(slice)),
            None => self.slices.remove(name),
        };
        let pool_of = |slice: &Arc<Slice>| (slice.driver.clone(), slice.pool.clone());
        let (new, old) = (new.as_ref().map(pool_of), old.as_ref().map(pool_of));
        if let Some(members) = old.as_ref().and_then(|pool| self.members.get_mut(pool)) {
            members.remove(name);
        }
        if let Some(pool) = &new {
            self.members.entry(pool.clone()).or_default().insert(name.clone());
        }
        for pool in new.into_iter().chain(old).collect::<BTreeSet<_>>() {
            self.rebuild(pool);
        }
    }

    fn rebuild(&mut self, id: (Str, Str)) {
        if let Some(before) = self.pools.remove(&id) {
            self.shared.remove(&id);
            if let Some(node) = before.only_node()
                && let Some(pools) = self.local.get_mut(node)
            {
                pools.remove(&id);
                if pools.is_empty() {
                    self.local.remove(node);
                }
            }
        }
        let names = self.members.get(&id).into_iter().flatten();
        let own: Vec<_> = names.filter_map(|name| self.slices.get(name)).map(Arc::clone).collect();
        if own.is_empty() {
            self.members.remove(&id);
            return;
        }
        let pool = Pool::new(&own);
        match pool.only_node() {
            Some(node) => drop(self.local.entry(node.clone()).or_default().insert(id.clone())),
            None => drop(self.shared.insert(id.clone())),
        }
        self.pools.insert(id, pool);
    }
}

impl Devices {
    pub fn claim(&self, key: &Key) -> Option<&Claim> {
        self.claims.get(key)
    }

    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// Returns the name of the DeviceClass that backs an extended resource.
    pub fn class_of(&self, resource: &str) -> Option<&Str> {
        match resource.strip_prefix(CLASS_PREFIX) {
            Some(class) => self.classes.get_key_value(class).map(|(name, _)| name),
            None => self.by_resource.get(resource),
        }
    }

    /// Returns the claim that was created for the extended resources of a pod.
    pub fn extended_claim(&self, pod_uid: &str) -> Option<(&Key, &Claim)> {
        let key = self.extended.get(pod_uid)?;
        Some((key, self.claims.get(key)?))
    }

    /// Whether an assumed plan allocates devices to the claim.
    pub fn is_in_flight(&self, claim: &Key) -> bool {
        let gets = |it: &Reserve| it.key == *claim && it.allocation.is_some();
        self.in_flight.values().any(|plan| plan.reserve.iter().any(gets))
    }

    /// Returns the usage of a device; `None` if it is free.
    pub fn taken(&self, device: &DeviceId) -> Option<&DeviceUsage> {
        self.taken.get(device)
    }

    /// Returns the pools that only this node can access.
    pub fn pools_of(&self, node: &str) -> impl Iterator<Item = &Pool> {
        self.local.get(node).into_iter().flatten().filter_map(|id| self.pools.get(id))
    }

    /// Returns the pools that more than one node may access.
    pub fn shared_pools(&self) -> impl Iterator<Item = &Pool> {
        self.shared.iter().filter_map(|id| self.pools.get(id))
    }

    /// Counts the plan's devices as allocated before the watch reports them.
    pub fn assume(&mut self, plan: &Plan, pod_uid: &Str) {
        if *plan != Plan::default() {
            plan.takes.iter().for_each(|take| self::take(&mut self.taken, take));
            self.in_flight.insert(pod_uid.clone(), plan.clone());
        }
    }

    /// Drops the assumed plan of a pod after it succeeded or failed: from now on only observed objects count.
    pub fn drop_assumed(&mut self, pod_uid: &str) {
        let plan = self.in_flight.remove(pod_uid).unwrap_or_default();
        plan.takes.iter().for_each(|take| release(&mut self.taken, take));
    }

    pub fn claim_keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.keys()
    }

    pub fn class_names(&self) -> impl Iterator<Item = &Str> {
        self.classes.keys()
    }

    pub fn slice_names(&self) -> impl Iterator<Item = &Str> {
        self.slices.keys()
    }
}

impl Plan {
    /// Creates a plan; `takes` are the devices that its allocations use.
    pub const fn new(reserve: Vec<Reserve>, create: Option<Create>, takes: Vec<Take>) -> Self {
        Self { reserve, create, takes }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

fn take(taken: &mut BTreeMap<DeviceId, DeviceUsage>, take: &Take) {
    let it = taken.entry(take.device.clone()).or_default();
    match &take.share {
        None => it.whole += 1,
        Some(share) => {
            it.shares += 1;
            for (name, amount) in share {
                let sum = it.capacity.entry(name.clone()).or_default();
                *sum = sum.add(*amount);
            }
        }
    }
}

fn release(taken: &mut BTreeMap<DeviceId, DeviceUsage>, take: &Take) {
    let Some(it) = taken.get_mut(&take.device) else { return };
    match &take.share {
        None => it.whole = it.whole.saturating_sub(1),
        Some(share) => {
            it.shares = it.shares.saturating_sub(1);
            for (name, amount) in share {
                let sum = it.capacity.entry(name.clone()).or_default();
                *sum = sum.sub(*amount);
            }
            it.capacity.retain(|_, amount: &mut Quantity| !amount.is_zero());
        }
    }
    if it.whole == 0 && it.shares == 0 {
        taken.remove(&take.device);
    }
}

fn text(value: &Value, field: &str) -> Str {
    value.text_at(&[field]).into()
}

#[cfg(test)]
mod tests;
