//! ResourceClaims and DeviceClasses, condensed for the allocator.

use std::sync::Arc;

use apimachinery::meta::Meta;
use apimachinery::quantity::Quantity;
use apimachinery::{Str, Value};

use super::selector::{Selector, Selectors};
use super::slice::quantities;
use super::{DeviceId, text};
use crate::pod::{NodeAffinity, Toleration};

/// Annotation on claims that the scheduler created for extended resources of a pod.
pub const EXTENDED_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// A ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    pub uid: Str,
    /// UID of the controller.
    pub owner: Str,
    /// Whether `deletionTimestamp` is set.
    pub deleting: bool,
    /// Whether the scheduler created the claim for extended resources.
    pub extended: bool,
    pub requests: Vec<Request>,
    pub constraints: Vec<Constraint>,
    /// `spec.devices.config`, unchanged.
    pub config: Vec<Value>,
    pub allocation: Option<Allocation>,
    /// UIDs of the consumers.
    pub reserved_for: Vec<Str>,
    /// Whether a binding failure condition of an allocated device is true.
    pub failed: bool,
}

/// A named device request of a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    pub name: Str,
    /// The `firstAvailable` subrequests, best first; a single alternative without name for `exactly`.
    pub alternatives: Vec<Alternative>,
}

/// One way to fulfil a request: `exactly` or a subrequest of `firstAvailable`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alternative {
    /// Name of the subrequest; empty for `exactly`.
    pub name: Str,
    /// Name of the DeviceClass.
    pub class: Str,
    pub selectors: Vec<Arc<Selector>>,
    pub mode: Mode,
    /// `adminAccess`: also allocates devices that are in use.
    pub admin: bool,
    pub tolerations: Vec<Toleration>,
    /// The tolerations as written in the claim.
    pub tolerations_written: Value,
    /// Requested capacity, by name.
    pub capacity: Vec<(Str, Quantity)>,
}

/// The `allocationMode` of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `ExactCount` with this count.
    Exactly(i64),
    /// Every matching device.
    All,
    /// A mode unknown to this version.
    Unknown(Str),
}

/// A constraint over the devices of several requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Names of the requests to which it applies; empty for all.
    pub requests: Vec<Str>,
    pub rule: Rule,
}

/// The condition of a [`Constraint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `matchAttribute`: all devices have the same value.
    Same(Str),
    /// `distinctAttribute`: all devices have different values.
    Distinct(Str),
    /// A condition unknown to this version.
    Unknown,
}

/// The devices allocated to a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    pub takes: Vec<Take>,
    /// Nodes that can access the devices; `None` for all nodes.
    pub nodes: Option<NodeAffinity>,
}

/// An allocated device, or a share of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Take {
    pub device: DeviceId,
    /// Consumed capacity, if the device allows multiple allocations.
    pub share: Option<Vec<(Str, Quantity)>>,
}

/// A DeviceClass.
#[derive(Clone, Debug, Default)]
pub struct Class {
    pub selectors: Vec<Arc<Selector>>,
    /// `spec.config`, unchanged.
    pub config: Vec<Value>,
    /// `extendedResourceName`; empty if not set.
    pub extended_resource: Str,
    /// Creation time in seconds since 1970.
    pub created_seconds: i64,
}

impl Default for Mode {
    fn default() -> Self {
        Self::Exactly(1)
    }
}

impl Claim {
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
            requests: devices.list_at(&["requests"]).iter().map(|it| Request::new(it, selectors)).collect(),
            constraints: devices.list_at(&["constraints"]).iter().map(Constraint::new).collect(),
            config: devices.list_at(&["config"]).to_vec(),
            allocation: allocation.map(Allocation::new),
            reserved_for: status.list_at(&["reservedFor"]).iter().map(|it| text(it, "uid")).collect(),
            failed: allocation.is_some_and(|allocation| failed(allocation, status)),
        }
    }

    /// Whether some request has alternatives (`firstAvailable`).
    pub fn has_choice(&self) -> bool {
        self.requests.iter().any(|request| request.alternatives.iter().any(|it| !it.name.is_empty()))
    }
}

impl Request {
    fn new(value: &Value, selectors: &mut Selectors) -> Self {
        let exactly = value.get("exactly").filter(|it| !it.is_null());
        let ways = exactly.map_or_else(|| value.list_at(&["firstAvailable"]), std::slice::from_ref);
        let mut alternatives: Vec<_> = ways.iter().map(|way| Alternative::new(way, selectors)).collect();
        if exactly.is_some() {
            alternatives.iter_mut().for_each(|it| it.name = Str::default());
        }
        Self { name: text(value, "name"), alternatives }
    }

    /// Returns the name used in allocation results: `request` or `request/subrequest`.
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
            selectors: selectors.read(value.list_at(&["selectors"])),
            mode,
            admin: value.get("adminAccess").and_then(Value::as_bool) == Some(true),
            tolerations: value.list_at(&["tolerations"]).iter().map(Toleration::new).collect(),
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
        let requests = value.list_at(&["requests"]).iter().filter_map(Value::as_str).map(Str::from).collect();
        Self { requests, rule }
    }

    /// Whether the constraint applies to this alternative of the request.
    pub fn applies_to(&self, request: &Request, alternative: &Alternative) -> bool {
        self.requests.is_empty()
            || self.requests.contains(&request.name)
            || !alternative.name.is_empty() && self.requests.contains(&request.full_name(alternative))
    }
}

impl Allocation {
    fn new(value: &Value) -> Self {
        let results = value.get("devices").map_or(&[][..], |devices| devices.list_at(&["results"]));
        // Requests with admin access do not occupy devices.
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
    pub fn new(object: &Value, selectors: &mut Selectors) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        Self {
            selectors: selectors.read(spec.list_at(&["selectors"])),
            config: spec.list_at(&["config"]).to_vec(),
            extended_resource: text(spec, "extendedResourceName"),
            created_seconds: Meta::of(object).creation_timestamp().map_or(0, apimachinery::time::Time::unix_seconds),
        }
    }
}

/// Whether a device of the allocation has a true binding failure condition.
fn failed(allocation: &Value, status: &Value) -> bool {
    let same = |a: &Value, b: &Value| ["driver", "pool", "device"].iter().all(|it| a.str_at(&[it]) == b.str_at(&[it]));
    let results = allocation.get("devices").map_or(&[][..], |devices| devices.list_at(&["results"]));
    results.iter().any(|result| {
        let bad = result.list_at(&["bindingFailureConditions"]);
        let own = status.list_at(&["devices"]).iter().filter(|device| same(device, result));
        own.flat_map(|device| device.list_at(&["conditions"])).any(|condition| {
            condition.str_at(&["status"]) == Some("True")
                && bad.iter().any(|it| it.as_str() == condition.str_at(&["type"]))
        })
    })
}
