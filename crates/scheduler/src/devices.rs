//! Devices that claims ask for: what drivers offer, who has what, and what is being given away.

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

use machinery::quantity::Quantity;
use machinery::{Key, Str, Value};

pub use allocate::{Allocator, Asked, Fault, Given};
pub use claim::{Allocation, Alternative, Claim, Class, Constraint, EXTENDED_ANNOTATION, Mode, Request, Rule, Take};
pub use extended::{Extended, is_backed_name};
pub use pool::Pool;
pub use result::allocation;
pub use selector::Selector;
pub use slice::{Attribute, Capacity, Counters, Device, Nodes, Slice};

use selector::Selectors;

/// The extended resource that every class stands for, before its name.
const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Which device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    /// Who offers it.
    pub driver: Str,
    /// The pool that it is in.
    pub pool: Str,
    /// Its name there.
    pub device: Str,
}

/// All that is known of devices.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    claims: BTreeMap<Key, Claim>,
    classes: BTreeMap<Str, Class>,
    /// By name.
    slices: BTreeMap<Str, Arc<Slice>>,
    /// The names of the slices of each pool, by driver and name.
    members: BTreeMap<(Str, Str), BTreeSet<Str>>,
    /// By driver and name.
    pools: BTreeMap<(Str, Str), Pool>,
    /// The pools that only one node reaches, by node, and all others.
    local: BTreeMap<Str, BTreeSet<(Str, Str)>>,
    shared: BTreeSet<(Str, Str)>,
    taken: BTreeMap<DeviceId, Taken>,
    /// What is being given to pods, by the pods' unique identifiers, before the API server shows it.
    in_flight: BTreeMap<Str, Plan>,
    selectors: Selectors,
    /// The class that stands for an extended resource.
    by_resource: BTreeMap<Str, Str>,
    /// Claims that were made for the extended resources of pods, by the pods' unique identifiers.
    extended: BTreeMap<Str, Key>,
}

/// What is gone of a device.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// How often it was given away whole: once, if nobody made a mistake.
    pub whole: u32,
    /// How many have a share.
    pub shares: u32,
    /// What they have together.
    pub capacity: Counters,
}

/// What must be done for a pod's claims of devices before it can be bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Claims that the pod is to use.
    pub reserve: Vec<Reserve>,
    /// A claim that must be made for its extended resources.
    pub create: Option<Create>,
    takes: Vec<Take>,
}

/// A claim that a pod is to use.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserve {
    /// The claim.
    pub key: Key,
    /// Its unique identifier.
    pub uid: Str,
    /// What it gets, if it has nothing yet.
    pub allocation: Option<Value>,
    /// Whether the pod is among its users already.
    pub held: bool,
}

/// A claim that must be made for extended resources.
#[derive(Clone, Debug, PartialEq)]
pub struct Create {
    /// What it asks for.
    pub requests: Vec<Value>,
    /// What it gets.
    pub allocation: Value,
    /// Which request is for which resource of which container.
    pub mappings: Vec<Value>,
}

/// What a change of a claim means to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// Something to those that use it.
    Own,
    /// Something to everybody who waits for devices: it gave some back.
    Freed,
}

/// Each takes over an object as it is now; `None` if it is gone.
impl Devices {
    /// A `ResourceClaim`.
    pub fn set_claim(&mut self, key: &Key, object: Option<&Value>) -> Change {
        let claim = object.map(|object| Claim::new(object, &mut self.selectors));
        let before = self.claims.remove(key);
        if let Some(before) = &before {
            before.allocation.iter().flat_map(|it| &it.takes).for_each(|take| give_back(&mut self.taken, take));
            if before.extended {
                self.extended.remove(&before.owner);
            }
        }
        let change = match (&before, &claim) {
            (Some(before), Some(claim)) if before == claim => Change::None,
            (Some(before), after) => {
                let had = before.allocation.is_some();
                let freed = had && after.as_ref().is_none_or(|claim| claim.allocation.is_none());
                if freed { Change::Freed } else { Change::Own }
            }
            (None, Some(_)) => Change::Own,
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

    /// A `DeviceClass`.
    pub fn set_class(&mut self, name: &Str, object: Option<&Value>) {
        match object.map(|object| Class::new(object, &mut self.selectors)) {
            Some(class) => drop(self.classes.insert(name.clone(), class)),
            None => drop(self.classes.remove(name)),
        }
        let mut by_resource: BTreeMap<Str, Str> = BTreeMap::new();
        // Of several classes for one resource the newest counts, of those the first by name.
        let mut classes: Vec<_> = self.classes.iter().filter(|(_, it)| !it.extended_resource.is_empty()).collect();
        classes.sort_by_key(|(name, class)| (std::cmp::Reverse(class.created_seconds), *name));
        for (name, class) in classes {
            by_resource.entry(class.extended_resource.clone()).or_insert_with(|| name.clone());
        }
        self.by_resource = by_resource;
    }

    /// A `ResourceSlice`.
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
    /// The claim of a key.
    pub fn claim(&self, key: &Key) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// The class of a name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// The name of the class that stands for an extended resource.
    pub fn class_of(&self, resource: &str) -> Option<&Str> {
        match resource.strip_prefix(CLASS_PREFIX) {
            Some(class) => self.classes.get_key_value(class).map(|(name, _)| name),
            None => self.by_resource.get(resource),
        }
    }

    /// The claim that was made for the extended resources of a pod.
    pub fn extended_claim(&self, pod_uid: &str) -> Option<(&Key, &Claim)> {
        let key = self.extended.get(pod_uid)?;
        Some((key, self.claims.get(key)?))
    }

    /// Whether a claim is being given devices.
    pub fn is_in_flight(&self, claim: &Key) -> bool {
        let gets = |it: &Reserve| it.key == *claim && it.allocation.is_some();
        self.in_flight.values().any(|plan| plan.reserve.iter().any(gets))
    }

    /// What is gone of a device.
    pub fn taken(&self, device: &DeviceId) -> Option<&Taken> {
        self.taken.get(device)
    }

    /// The pools that only this node reaches.
    pub fn pools_of(&self, node: &str) -> impl Iterator<Item = &Pool> {
        self.local.get(node).into_iter().flatten().filter_map(|id| self.pools.get(id))
    }

    /// The pools that several nodes may reach.
    pub fn shared_pools(&self) -> impl Iterator<Item = &Pool> {
        self.shared.iter().filter_map(|id| self.pools.get(id))
    }

    /// Takes a plan for done before the API server shows it.
    pub fn assume(&mut self, plan: &Plan, pod_uid: &Str) {
        if *plan != Plan::default() {
            plan.takes.iter().for_each(|take| self::take(&mut self.taken, take));
            self.in_flight.insert(pod_uid.clone(), plan.clone());
        }
    }

    /// A plan was carried out, or was not: what the API server shows is the truth.
    pub fn settle(&mut self, pod_uid: &str) {
        let plan = self.in_flight.remove(pod_uid).unwrap_or_default();
        plan.takes.iter().for_each(|take| give_back(&mut self.taken, take));
    }

    /// The keys of all claims.
    pub fn claim_keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.keys()
    }

    /// The names of all classes.
    pub fn class_names(&self) -> impl Iterator<Item = &Str> {
        self.classes.keys()
    }

    /// The names of all slices.
    pub fn slice_names(&self) -> impl Iterator<Item = &Str> {
        self.slices.keys()
    }
}

impl Plan {
    /// What a pod is to use, and what it takes for that.
    pub const fn new(reserve: Vec<Reserve>, create: Option<Create>, takes: Vec<Take>) -> Self {
        Self { reserve, create, takes }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

fn take(taken: &mut BTreeMap<DeviceId, Taken>, take: &Take) {
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

fn give_back(taken: &mut BTreeMap<DeviceId, Taken>, take: &Take) {
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
    value.str_at(&[field]).unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
