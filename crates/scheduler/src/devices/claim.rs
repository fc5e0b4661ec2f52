//! Claims of devices and classes of them, condensed.

use std::sync::Arc;

use machinery::meta::Meta;
use machinery::quantity::Quantity;
use machinery::{Str, Value};

use super::selector::{Selector, Selectors};
use super::slice::quantities;
use super::{DeviceId, text};
use crate::pod::{NodeAffinity, items};

/// Says of a claim that the scheduler made it for extended resources of a pod.
pub const EXTENDED_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// A `ResourceClaim`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Its unique identifier.
    pub uid: Str,
    /// Who controls it, by unique identifier.
    pub owner: Str,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether the scheduler made it for extended resources.
    pub extended: bool,
    /// What it asks for.
    pub requests: Vec<Request>,
    /// What must hold of all its devices together.
    pub constraints: Vec<Constraint>,
    /// Configurations, as they are written.
    pub config: Vec<Value>,
    /// What it has.
    pub allocation: Option<Allocation>,
    /// Who uses it, by unique identifier.
    pub reserved_for: Vec<Str>,
    /// Whether a driver says that a device will not become ready.
    pub failed: bool,
}

/// What a claim asks for under one name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The name.
    pub name: Str,
    /// The ways to fulfil it, the best first; one without a name of its own is the only one.
    pub alternatives: Vec<Alternative>,
}

/// One way to fulfil a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alternative {
    /// Its name among others; empty if it is the only way.
    pub name: Str,
    /// The class of the devices.
    pub class: Str,
    /// What devices must be like.
    pub selectors: Vec<Arc<Selector>>,
    /// How many devices.
    pub mode: Mode,
    /// Whether it looks at devices that others use.
    pub admin: bool,
    /// The taints that it bears.
    pub tolerations: Vec<Toleration>,
    /// The same, as they are written.
    pub tolerations_written: Value,
    /// How much of each capacity it wants, by name.
    pub capacity: Vec<(Str, Quantity)>,
}

/// How many devices a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// So many.
    Exactly(i64),
    /// Every one that matches.
    All,
    /// Something that is not known.
    Unknown(Str),
}

/// What must hold of devices together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The requests that it speaks of; all if there are none.
    pub requests: Vec<Str>,
    /// What must hold.
    pub rule: Rule,
}

/// What must hold of devices together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All have the same value of this attribute.
    Same(Str),
    /// No two have the same value of this attribute.
    Distinct(Str),
    /// Something that is not known.
    Unknown,
}

/// What a request bears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    key: Str,
    /// `None` for every value.
    value: Option<Str>,
    effect: Str,
    /// An operator that nobody knows: tolerates nothing.
    never: bool,
}

/// What a claim has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// The devices.
    pub takes: Vec<Take>,
    /// The nodes that reach them; `None` for every one.
    pub nodes: Option<NodeAffinity>,
}

/// A device that somebody has, or a share of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Take {
    /// Which one.
    pub device: DeviceId,
    /// How much of each capacity, if it is shared with others.
    pub share: Option<Vec<(Str, Quantity)>>,
}

/// A `DeviceClass`.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// What devices must be like.
    pub selectors: Vec<Arc<Selector>>,
    /// Configurations, as they are written.
    pub config: Vec<Value>,
    /// The extended resource that it stands for; empty for none.
    pub extended_resource: Str,
    /// When it was made, in seconds since 1970.
    pub created_seconds: i64,
}

impl Default for Mode {
    fn default() -> Self {
        Self::Exactly(1)
    }
}

impl Claim {
    /// Condenses an object of kind `ResourceClaim`.
    pub fn new(object: &Value, selectors: &mut Selectors) -> Self {
        let meta = Meta::of(object);
        let devices = object.at(&["spec", "devices"]).unwrap_or(&Value::Null);
        let allocation = object.at(&["status", "allocation"]).filter(|it| !it.is_null());
        let status = object.get("status").unwrap_or(&Value::Null);
        Self {
            uid: meta.uid().into(),
            owner: meta.controller().map(|owner| owner.uid().into()).unwrap_or_default(),
            deleting: meta.is_deleting(),
            extended: meta.annotation(EXTENDED_ANNOTATION) == Some("true"),
            requests: items(devices, "requests").iter().map(|it| Request::new(it, selectors)).collect(),
            constraints: items(devices, "constraints").iter().map(Constraint::new).collect(),
            config: items(devices, "config").to_vec(),
            allocation: allocation.map(Allocation::new),
            reserved_for: items(status, "reservedFor").iter().map(|it| text(it, "uid")).collect(),
            failed: allocation.is_some_and(|allocation| failed(allocation, status)),
        }
    }

    /// Whether some request may be fulfilled in several ways.
    pub fn has_choice(&self) -> bool {
        self.requests.iter().any(|request| request.alternatives.iter().any(|it| !it.name.is_empty()))
    }
}

impl Request {
    fn new(value: &Value, selectors: &mut Selectors) -> Self {
        let exactly = value.get("exactly").filter(|it| !it.is_null());
        let ways = exactly.map_or_else(|| items(value, "firstAvailable"), std::slice::from_ref);
        let mut alternatives: Vec<_> = ways.iter().map(|way| Alternative::new(way, selectors)).collect();
        if exactly.is_some() {
            alternatives.iter_mut().for_each(|it| it.name = Str::default());
        }
        Self { name: text(value, "name"), alternatives }
    }

    /// The name by which the results of an alternative are known.
    pub fn full_name(&self, alternative: &Alternative) -> Str {
        if alternative.name.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.name, alternative.name).into()
        }
    }
}

impl Alternative {
    fn new(value: &Value, selectors: &mut Selectors) -> Self {
        let mode = match value.str_at(&["allocationMode"]) {
            None | Some("" | "ExactCount") => {
                Mode::Exactly(value.get("count").and_then(Value::as_int).filter(|count| *count > 0).unwrap_or(1))
            }
            Some("All") => Mode::All,
            Some(other) => Mode::Unknown(other.into()),
        };
        Self {
            name: text(value, "name"),
            class: text(value, "deviceClassName"),
            selectors: selectors.read(items(value, "selectors")),
            mode,
            admin: value.get("adminAccess").and_then(Value::as_bool) == Some(true),
            tolerations: items(value, "tolerations").iter().map(Toleration::new).collect(),
            tolerations_written: value.get("tolerations").cloned().unwrap_or(Value::Null),
            capacity: quantities(value.at(&["capacity", "requests"])),
        }
    }
}

impl Constraint {
    fn new(value: &Value) -> Self {
        let rule = match (value.str_at(&["matchAttribute"]), value.str_at(&["distinctAttribute"])) {
            (Some(name), _) => Rule::Same(name.into()),
            (None, Some(name)) => Rule::Distinct(name.into()),
            (None, None) => Rule::Unknown,
        };
        let requests = items(value, "requests").iter().filter_map(Value::as_str).map(Str::from).collect();
        Self { requests, rule }
    }

    /// Whether it speaks of devices of an alternative of a request.
    pub fn concerns(&self, request: &Request, alternative: &Alternative) -> bool {
        self.requests.is_empty()
            || self.requests.contains(&request.name)
            || !alternative.name.is_empty() && self.requests.contains(&request.full_name(alternative))
    }
}

impl Toleration {
    fn new(value: &Value) -> Self {
        let (operator, exists) = (text(value, "operator"), value.str_at(&["operator"]) == Some("Exists"));
        Self {
            key: text(value, "key"),
            value: (!exists).then(|| text(value, "value")),
            effect: text(value, "effect"),
            never: !matches!(operator.as_str(), "" | "Equal" | "Exists"),
        }
    }

    /// Whether it bears a taint.
    pub fn tolerates(&self, key: &Str, value: &Str, effect: &Str) -> bool {
        !self.never
            && (self.effect.is_empty() || self.effect == *effect)
            && (self.key.is_empty() || self.key == *key)
            && self.value.as_ref().is_none_or(|wanted| wanted == value)
    }
}

impl Allocation {
    fn new(value: &Value) -> Self {
        let results = value.get("devices").map_or(&[][..], |devices| items(devices, "results"));
        // Who only looks takes nothing.
        let used = results.iter().filter(|it| it.get("adminAccess").and_then(Value::as_bool) != Some(true));
        let take = |it: &Value| Take {
            device: DeviceId { driver: text(it, "driver"), pool: text(it, "pool"), device: text(it, "device") },
            share: it.str_at(&["shareID"]).map(|_| quantities(it.get("consumedCapacity"))),
        };
        let nodes = value.get("nodeSelector").filter(|it| !it.is_null());
        Self { takes: used.map(take).collect(), nodes: nodes.map(NodeAffinity::requiring) }
    }
}

impl Class {
    /// Condenses an object of kind `DeviceClass`.
    pub fn new(object: &Value, selectors: &mut Selectors) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        Self {
            selectors: selectors.read(items(spec, "selectors")),
            config: items(spec, "config").to_vec(),
            extended_resource: text(spec, "extendedResourceName"),
            created_seconds: Meta::of(object).creation_timestamp().map_or(0, machinery::time::Time::unix_seconds),
        }
    }
}

/// Whether a condition is true that says of a device of the allocation that it will not become ready.
fn failed(allocation: &Value, status: &Value) -> bool {
    let same = |a: &Value, b: &Value| ["driver", "pool", "device"].iter().all(|it| a.str_at(&[it]) == b.str_at(&[it]));
    let results = allocation.get("devices").map_or(&[][..], |devices| items(devices, "results"));
    results.iter().any(|result| {
        let bad = items(result, "bindingFailureConditions");
        let own = items(status, "devices").iter().filter(|device| same(device, result));
        own.flat_map(|device| items(device, "conditions")).any(|condition| {
            condition.str_at(&["status"]) == Some("True")
                && bad.iter().any(|it| it.as_str() == condition.str_at(&["type"]))
        })
    })
}
