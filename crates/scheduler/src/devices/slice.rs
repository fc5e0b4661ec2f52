//! What drivers offer: slices of pools of devices, condensed.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::Val;
use cel::library::opaque::Opaque;
use cel::library::semver::Semver;
use cel::value::{Entries, Key};
use machinery::quantity::Quantity;
use machinery::{Object, Str, Value};

use super::text;
use crate::pod::{NodeAffinity, items};

/// Amounts by name.
pub type Counters = BTreeMap<Str, Quantity>;

/// A `ResourceSlice`.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Who offers the devices.
    pub driver: Str,
    /// The pool that it is a part of.
    pub pool: Str,
    /// Which version of the pool; only the newest counts.
    pub generation: i64,
    /// How many slices that version has.
    pub slices: i64,
    /// Who reaches the devices.
    pub nodes: Nodes,
    /// The devices.
    pub devices: Vec<Device>,
    /// What devices of the pool share, by name.
    pub counters: Vec<(Str, Counters)>,
}

/// Which nodes reach devices.
#[derive(Clone, Debug)]
pub enum Nodes {
    /// This one.
    Named(Str),
    /// Every one.
    All,
    /// Those that match; with the selector as it is written.
    Matching(NodeAffinity, Value),
    /// Each device says for itself.
    PerDevice,
    /// None that is known.
    Unknown,
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name in the pool.
    pub name: Str,
    /// Who reaches it, if devices of the slice say for themselves.
    pub nodes: Nodes,
    /// What it is like, by name.
    pub attributes: BTreeMap<Str, Attribute>,
    /// How much of what it has, by name.
    pub capacity: BTreeMap<Str, Capacity>,
    /// What it takes of what the pool's devices share: a set of counters and the amounts.
    pub consumes: Vec<(Str, Counters)>,
    /// What keeps claims away: key, value, effect.
    pub taints: Vec<[Str; 3]>,
    /// Whether several may have it at once.
    pub shared: bool,
    /// Whether who has it must stay on the node that was chosen first.
    pub binds_to_node: bool,
    /// Conditions that must become true before its pod may run, and those that say that they will not; as written.
    pub conditions: [Value; 2],
    /// Attributes and capacities as expressions see them.
    pub seen: [Val<'static>; 2],
}

/// What a device is like in one respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
    /// Text.
    Text(Str),
    /// A semantic version.
    Version(Str),
    /// Something that is not known, which is like nothing.
    Unknown,
}

/// How much a device has of something.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// The amount.
    pub value: Quantity,
    /// What one may ask for, if not anything.
    pub policy: Option<Policy>,
}

/// What one may ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// What who does not ask gets.
    pub default: Option<Quantity>,
    /// One of these, sorted.
    pub values: Vec<Quantity>,
    /// Or something between these.
    pub range: Option<Range>,
}

/// From the least to the most, in steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The least.
    pub min: Quantity,
    /// The most.
    pub max: Option<Quantity>,
    /// The step.
    pub step: Option<Quantity>,
}

impl Slice {
    /// Condenses an object of kind `ResourceSlice`.
    pub fn new(object: &Value) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let pool = spec.get("pool").unwrap_or(&Value::Null);
        let number = |field: &str| pool.get(field).and_then(Value::as_int).unwrap_or_default();
        let driver = text(spec, "driver");
        let per_device = spec.get("perDeviceNodeSelection").and_then(Value::as_bool) == Some(true);
        let set = |it: &Value| (text(it, "name"), counters(it));
        Self {
            pool: text(pool, "name"),
            generation: number("generation"),
            slices: number("resourceSliceCount"),
            nodes: if per_device { Nodes::PerDevice } else { Nodes::new(spec) },
            devices: items(spec, "devices").iter().map(|device| Device::new(device, &driver)).collect(),
            counters: items(spec, "sharedCounters").iter().map(set).collect(),
            driver,
        }
    }
}

impl Nodes {
    fn new(value: &Value) -> Self {
        let selector = value.get("nodeSelector").filter(|it| !it.is_null());
        match value.str_at(&["nodeName"]) {
            Some(name) if !name.is_empty() => Self::Named(name.into()),
            _ if value.get("allNodes").and_then(Value::as_bool) == Some(true) => Self::All,
            _ => selector.map_or(Self::Unknown, |it| Self::Matching(NodeAffinity::requiring(it), it.clone())),
        }
    }
}

impl Device {
    fn new(value: &Value, driver: &Str) -> Self {
        let is = |field: &str| value.get(field).and_then(Value::as_bool) == Some(true);
        let entries = |field: &str| value.get(field).and_then(Value::as_object).into_iter().flat_map(Object::iter);
        let attributes: BTreeMap<Str, _> =
            entries("attributes").map(|(name, it)| (name.into(), Attribute::new(it))).collect();
        let capacity: BTreeMap<Str, _> =
            entries("capacity").filter_map(|(name, it)| Some((name.into(), Capacity::new(it)?))).collect();
        let taint = |it: &Value| [text(it, "key"), text(it, "value"), text(it, "effect")];
        let list = |field: &str| value.get(field).cloned().unwrap_or(Value::Null);
        let amount = |it: &Capacity| Some(Val::Opaque(Opaque::Quantity(Arc::new(it.value))));
        let seen = [by_domain(driver, &attributes, Attribute::seen), by_domain(driver, &capacity, amount)];
        Self {
            name: text(value, "name"),
            nodes: Nodes::new(value),
            attributes,
            capacity,
            consumes: items(value, "consumesCounters")
                .iter()
                .map(|it| (text(it, "counterSet"), counters(it)))
                .collect(),
            taints: items(value, "taints").iter().map(taint).collect(),
            shared: is("allowMultipleAllocations"),
            binds_to_node: is("bindsToNode"),
            conditions: [list("bindingConditions"), list("bindingFailureConditions")],
            seen,
        }
    }

    /// An attribute by its full name: a driver need not write its own domain.
    pub fn attribute(&self, name: &str, driver: &str) -> Option<&Attribute> {
        self.attributes.get(name).or_else(|| {
            let (domain, own) = name.split_once('/')?;
            self.attributes.get(own).filter(|_| domain == driver)
        })
    }
}

impl Attribute {
    fn new(value: &Value) -> Self {
        let field = |name: &str| value.get(name).filter(|it| !it.is_null());
        if let Some(text) = field("string").and_then(Value::as_str) {
            Self::Text(text.into())
        } else if let Some(int) = field("int").and_then(Value::as_int) {
            Self::Int(int)
        } else if let Some(bool) = field("bool").and_then(Value::as_bool) {
            Self::Bool(bool)
        } else if let Some(text) = field("version").and_then(Value::as_str) {
            Self::Version(text.into())
        } else {
            Self::Unknown
        }
    }

    fn seen(&self) -> Option<Val<'static>> {
        Some(match self {
            Self::Int(int) => Val::Int(*int),
            Self::Bool(bool) => Val::Bool(*bool),
            Self::Text(text) => Val::text(text.as_str()),
            Self::Version(text) => Val::Opaque(Opaque::Semver(Arc::new(Semver::parse(text).ok()?))),
            Self::Unknown => return None,
        })
    }
}

impl Capacity {
    fn new(value: &Value) -> Option<Self> {
        let policy = value.get("requestPolicy").filter(|it| !it.is_null());
        Some(Self { value: quantity(value.get("value")?)?, policy: policy.map(Policy::new) })
    }
}

impl Policy {
    fn new(value: &Value) -> Self {
        let at = |keys: &[&str]| value.at(keys).and_then(quantity);
        let mut values: Vec<_> = items(value, "validValues").iter().filter_map(quantity).collect();
        values.sort();
        let range = at(&["validRange", "min"]).map(|min| Range {
            min,
            max: at(&["validRange", "max"]),
            step: at(&["validRange", "step"]),
        });
        Self { default: at(&["default"]), values, range }
    }
}

/// An object of quantities, without what is none.
pub fn quantities(object: Option<&Value>) -> Vec<(Str, Quantity)> {
    let entries = object.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(name, value)| Some((name.into(), quantity(value)?))).collect()
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::Int(int) => Some(Quantity::new(*int, machinery::quantity::Format::DecimalSI)),
        other => other.as_str()?.parse().ok(),
    }
}

fn counters(value: &Value) -> Counters {
    let entries = value.get("counters").and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(name, it)| Some((name.into(), quantity(it.get("value")?)?))).collect()
}

/// A map of maps as expressions see it: by domain, which is the driver's where none is written, and by name. A domain
/// that the device does not have is an empty map.
fn by_domain<T>(driver: &Str, entries: &BTreeMap<Str, T>, seen: impl Fn(&T) -> Option<Val<'static>>) -> Val<'static> {
    let mut domains: BTreeMap<&str, Entries<'static>> = BTreeMap::new();
    for (name, value) in entries {
        let (domain, own) = name.split_once('/').unwrap_or((driver.as_str(), name));
        if let (Some(key), Some(value)) = (Key::of(&Val::text(own)), seen(value)) {
            domains.entry(domain).or_default().insert(key, value);
        }
    }
    let mut all = Entries::new();
    for (domain, entries) in domains {
        if let Some(key) = Key::of(&Val::text(domain)) {
            all.insert(key, Val::map(entries));
        }
    }
    Val::map(all.with_otherwise(Val::map(Entries::new())))
}
