//! ResourceSlices: the devices published by drivers, condensed for the allocator.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::quantity::Quantity;
use apimachinery::{Object, Str, Value};
use cel::Val;
use cel::library::opaque::Opaque;
use cel::library::semver::Semver;
use cel::value::{Entries, Key};

use super::text;
use crate::pod::NodeAffinity;

/// Amounts by counter or capacity name.
pub type Counters = BTreeMap<Str, Quantity>;

/// A ResourceSlice.
#[derive(Clone, Debug)]
pub struct Slice {
    pub driver: Str,
    pub pool: Str,
    /// Pool generation; only the slices of the newest count.
    pub generation: i64,
    /// Number of slices in this generation of the pool.
    pub slices: i64,
    pub nodes: Nodes,
    pub devices: Vec<Device>,
    /// Shared counters by counter set.
    pub counters: Vec<(Str, Counters)>,
}

/// Nodes that can access devices.
#[derive(Clone, Debug)]
pub enum Nodes {
    Named(Str),
    All,
    /// Nodes that match; with the node selector as written.
    Matching(NodeAffinity, Value),
    /// Specified per device.
    PerDevice,
    /// Not specified: no node has access.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Device {
    /// Name within the pool.
    pub name: Str,
    /// Used if the slice specifies nodes per device.
    pub nodes: Nodes,
    pub attributes: BTreeMap<Str, Attribute>,
    pub capacity: BTreeMap<Str, Capacity>,
    /// Consumed shared counters: counter set and amounts.
    pub consumes: Vec<(Str, Counters)>,
    /// Key, value and effect.
    pub taints: Vec<[Str; 3]>,
    /// `allowMultipleAllocations`.
    pub shared: bool,
    /// `bindsToNode`: the allocation is restricted to the node chosen at allocation.
    pub binds_to_node: bool,
    /// `bindingConditions` and `bindingFailureConditions`, as written.
    pub conditions: [Value; 2],
    /// Attributes and capacities as CEL values.
    pub seen: [Val<'static>; 2],
}

/// Value of a device attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    Int(i64),
    Bool(bool),
    Text(Str),
    /// A semantic version.
    Version(Str),
    /// A type unknown to this version; equal to no value.
    Unknown,
}

/// A capacity of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    pub value: Quantity,
    /// Constrains the amounts that can be requested.
    pub policy: Option<Policy>,
}

/// The `requestPolicy` of a capacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Consumed by requests that do not specify an amount.
    pub default: Option<Quantity>,
    /// The valid amounts, sorted.
    pub values: Vec<Quantity>,
    pub range: Option<Range>,
}

/// Range of valid amounts.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    pub min: Quantity,
    pub max: Option<Quantity>,
    pub step: Option<Quantity>,
}

impl Slice {
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
            devices: spec.list_at(&["devices"]).iter().map(|device| Device::new(device, &driver)).collect(),
            counters: spec.list_at(&["sharedCounters"]).iter().map(set).collect(),
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
            consumes: value
                .list_at(&["consumesCounters"])
                .iter()
                .map(|it| (text(it, "counterSet"), counters(it)))
                .collect(),
            taints: value.list_at(&["taints"]).iter().map(taint).collect(),
            shared: is("allowMultipleAllocations"),
            binds_to_node: is("bindsToNode"),
            conditions: [list("bindingConditions"), list("bindingFailureConditions")],
            seen,
        }
    }

    /// Looks up an attribute by its fully qualified name; the driver's own domain may be omitted in the slice.
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
        let mut values: Vec<_> = value.list_at(&["validValues"]).iter().filter_map(quantity).collect();
        values.sort();
        let range = at(&["validRange", "min"]).map(|min| Range {
            min,
            max: at(&["validRange", "max"]),
            step: at(&["validRange", "step"]),
        });
        Self { default: at(&["default"]), values, range }
    }
}

/// Parses a map of quantities; invalid ones are omitted.
pub(super) fn quantities(object: Option<&Value>) -> Vec<(Str, Quantity)> {
    let entries = object.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(name, value)| Some((name.into(), quantity(value)?))).collect()
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::Int(int) => Some(Quantity::new(*int, apimachinery::quantity::Format::DecimalSI)),
        other => other.as_str()?.parse().ok(),
    }
}

fn counters(value: &Value) -> Counters {
    let entries = value.get("counters").and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(name, it)| Some((name.into(), quantity(it.get("value")?)?))).collect()
}

/// Builds the nested CEL map: by domain (the driver's name if omitted), then by name. A domain that the device does not
/// have is an empty map.
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
