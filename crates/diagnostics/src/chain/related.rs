//! Objects of a trace: owned objects and the endpoints of pods.

use std::collections::{BTreeMap, BTreeSet};

use api::view::SERVICE_NAME;
use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::time::Time;

/// The objects of a trace, causes first.
pub(super) struct RelatedObjects<'a> {
    pub objects: Vec<TracedObject<'a>>,
    services: BTreeMap<(&'a str, &'a str), &'a Value>,
}

/// An object with its causes in the trace.
pub(super) struct TracedObject<'a> {
    pub object: &'a Value,
    pub causes: Vec<Cause<'a>>,
}

/// The cause of an object.
#[derive(Clone, Copy)]
pub(super) struct Cause<'a> {
    pub uid: &'a str,
}

pub(super) fn of<'a>(root: &'a Value, objects: &'a [Value]) -> RelatedObjects<'a> {
    let mut owned: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for object in objects {
        for owner in Meta::of(object).owner_references() {
            owned.entry(owner.uid()).or_default().push(object);
        }
    }
    let mut seen = BTreeSet::from([Meta::of(root).uid()]);
    let mut found = vec![TracedObject { object: root, causes: Vec::new() }];
    let mut next = 0;
    while let Some(one) = found.get(next) {
        let uid = Meta::of(one.object).uid();
        for child in owned.get(uid).into_iter().flatten().filter(|child| seen.insert(Meta::of(child).uid())) {
            found.push(TracedObject { object: child, causes: vec![Cause { uid }] });
        }
        next += 1;
    }
    for slice in objects.iter().filter(|object| kind(object) == "EndpointSlice") {
        let targets = targets(slice).filter(|uid| seen.contains(uid)).map(|uid| Cause { uid });
        let causes: Vec<Cause<'_>> = targets.collect();
        if !causes.is_empty() && seen.insert(Meta::of(slice).uid()) {
            found.push(TracedObject { object: slice, causes });
        }
    }
    let services = objects.iter().chain([root]).filter(|object| kind(object) == "Service");
    let services = services.map(|service| ((Meta::of(service).namespace(), Meta::of(service).name()), service));
    RelatedObjects { objects: found, services: services.collect() }
}

impl RelatedObjects<'_> {
    /// Returns the creation time of the first object that the object with this UID caused.
    pub(super) fn first_made(&self, uid: &str) -> Option<Time> {
        let made = self.objects.iter().filter(|one| one.causes.iter().any(|cause| cause.uid == uid));
        made.filter_map(|one| Meta::of(one.object).creation_timestamp()).min()
    }

    /// Returns the addresses whose rules an object changes: those of a service, or of an EndpointSlice's service.
    pub(super) fn addresses(&self, object: &Value) -> Option<Vec<String>> {
        let meta = Meta::of(object);
        let service = match kind(object) {
            "Service" => object,
            "EndpointSlice" => self.services.get(&(meta.namespace(), meta.label(SERVICE_NAME)?))?,
            _ => return None,
        };
        let addresses = service.list_at(&["spec", "clusterIPs"]);
        Some(addresses.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }
}

/// Returns the UIDs of the pods in a slice.
fn targets(slice: &Value) -> impl Iterator<Item = &str> {
    let endpoints = slice.list_at(&["endpoints"]);
    endpoints.iter().filter_map(|endpoint| endpoint.str_at(&["targetRef", "uid"]))
}

fn kind(object: &Value) -> &str {
    object.text_at(&["kind"])
}
