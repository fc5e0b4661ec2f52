//! EndpointSlice packing: distributes endpoints over slices of limited size with few changes.

use std::collections::BTreeMap;

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Object, Resource, Value, value};
use controller::{Action, Preconditions, kinds};

/// The label with the controller of a slice.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The desired slices of one owner.
pub(crate) struct DesiredSlices<'a> {
    /// The Service or Endpoints that the slices are derived from.
    pub owner: &'a Value,
    /// The owner reference.
    pub reference: Value,
    pub labels: Object,
    /// Annotations of the slices that are written.
    pub annotations: Object,
    /// Maximum endpoints per slice.
    pub slice_max: usize,
}

/// Endpoints of one IP family with the same ports.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub ports: Vec<Value>,
    pub endpoints: Vec<Value>,
}

/// The changes to the slices of one IP family.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    create: Vec<Value>,
    update: Vec<Value>,
    delete: Vec<Value>,
    unchanged: usize,
}

/// Groups by [`ports_key`].
pub(crate) type Groups = BTreeMap<String, Group>;

/// Returns a key that is equal for equal ports in any order.
pub(crate) fn ports_key(ports: &[Value]) -> String {
    let mut keys: Vec<String> = ports
        .iter()
        .map(|port| {
            let number = port.get("port").and_then(Value::as_int).unwrap_or(0);
            let part = |field| port.text_at(&[field]);
            format!("{}/{}/{number}/{}", part("name"), part("protocol"), part("appProtocol"))
        })
        .collect();
    keys.sort();
    keys.join(",")
}

/// Computes the slices of one IP family. With `placeholder`, one slice without endpoints is kept if there would be
/// none.
pub(crate) fn pack(
    desired: &DesiredSlices<'_>,
    family: &str,
    existing: &[&Value],
    groups: Groups,
    placeholder: bool,
) -> Changes {
    let mut changes = Changes::default();
    let mut by_ports: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for slice in existing {
        by_ports.entry(ports_key(slice.list_at(&["ports"]))).or_default().push(slice);
    }
    for (key, group) in groups {
        let here = by_ports.remove(&key).unwrap_or_default();
        pack_group(desired, family, &here, group, &mut changes);
    }
    changes.delete.extend(by_ports.into_values().flatten().cloned());
    if placeholder && existing.len() == changes.delete.len() && changes.create.is_empty() {
        let empty = fresh(desired, family, &Group::default());
        let is_it = |slice: &Value| {
            slice.list_at(&["endpoints"]).is_empty()
                && slice.list_at(&["ports"]).is_empty()
                && is_labelled(slice, desired)
        };
        match changes.delete.as_slice() {
            [only] if is_it(only) => changes.delete.clear(),
            _ => changes.create.push(empty),
        }
    }
    changes.recycle(desired);
    changes
}

impl Changes {
    /// Returns the writes, creations and updates before deletions, so that no endpoint is missing in between.
    pub(crate) fn actions(self) -> Vec<Action> {
        let resource = || kinds::ENDPOINT_SLICES.clone();
        let create =
            self.create.into_iter().map(|object| Action::Create { resource: resource(), object, result_event: None });
        let update =
            self.update.into_iter().map(|object| Action::Update { resource: resource(), object, result_event: None });
        let delete = self.delete.into_iter().map(|slice| delete(&kinds::ENDPOINT_SLICES, &slice));
        create.chain(update).chain(delete).collect()
    }

    /// Turns pairs of deletion and creation into updates.
    fn recycle(&mut self, desired: &DesiredSlices<'_>) {
        let uid = Meta::of(desired.owner).uid();
        let (own_slices, others): (Vec<Value>, Vec<Value>) = std::mem::take(&mut self.delete)
            .into_iter()
            .partition(|slice| Meta::of(slice).owner_references().any(|owner| owner.uid() == uid));
        self.delete = others;
        for slice in own_slices {
            match self.create.pop() {
                Some(new) => self.update.push(replaced(slice, &new)),
                None => self.delete.push(slice),
            }
        }
    }
}

/// Deletes an observed slice.
pub(crate) fn delete(resource: &Resource, slice: &Value) -> Action {
    Action::Delete {
        resource: resource.clone(),
        key: Key::of(slice),
        only_if: Preconditions::same(slice),
        propagation: None,
        grace_seconds: None,
        result_event: None,
    }
}

fn pack_group(desired: &DesiredSlices<'_>, family: &str, existing: &[&Value], mut group: Group, changes: &mut Changes) {
    let (mut updated, mut unchanged): (Vec<Value>, Vec<&Value>) = (Vec::new(), Vec::new());
    for slice in existing {
        let have = slice.list_at(&["endpoints"]);
        let retained: Vec<Value> =
            have.iter().filter_map(|endpoint| take_same(&mut group.endpoints, endpoint)).collect();
        if retained.is_empty() && !have.is_empty() {
            changes.delete.push((*slice).clone());
        } else if retained != have || !is_labelled(slice, desired) {
            updated.push(filled(slice, desired, retained));
        } else {
            unchanged.push(slice);
        }
    }
    // Slices that must be written anyway are filled first, the fullest before the others.
    updated.sort_by_key(|slice| std::cmp::Reverse(slice.list_at(&["endpoints"]).len()));
    for slice in &mut updated {
        fill(slice, &mut group.endpoints, desired.slice_max);
    }
    while !group.endpoints.is_empty() {
        let count = group.endpoints.len();
        let fits = |slice: &Value| slice.list_at(&["endpoints"]).len() + count <= desired.slice_max;
        // The fullest slice that has room for all remaining endpoints.
        let best = unchanged
            .iter()
            .enumerate()
            .filter(|(_, slice)| fits(slice))
            .max_by_key(|(_, slice)| slice.list_at(&["endpoints"]).len())
            .map(|(at, _)| at);
        match best {
            Some(at) => {
                let slice = unchanged.remove(at);
                let mut slice = filled(slice, desired, slice.list_at(&["endpoints"]).to_vec());
                fill(&mut slice, &mut group.endpoints, desired.slice_max);
                updated.push(slice);
            }
            None => {
                let mut slice = fresh(desired, family, &Group { ports: group.ports.clone(), endpoints: Vec::new() });
                fill(&mut slice, &mut group.endpoints, desired.slice_max);
                changes.create.push(slice);
            }
        }
    }
    changes.unchanged += unchanged.len();
    changes.update.extend(updated);
}

/// Removes from `desired` the endpoint with the same addresses and target.
fn take_same(desired: &mut Vec<Value>, endpoint: &Value) -> Option<Value> {
    let key = |endpoint: &Value| {
        let target = |field| endpoint.text_at(&["targetRef", field]).to_owned();
        (endpoint.get("addresses").cloned(), target("namespace"), target("name"))
    };
    let endpoint_key = key(endpoint);
    let at = desired.iter().position(|candidate| key(candidate) == endpoint_key)?;
    Some(desired.remove(at))
}

fn fill(slice: &mut Value, endpoints: &mut Vec<Value>, slice_max: usize) {
    let Some(have) = slice.get_mut("endpoints").and_then(Value::as_array_mut) else { return };
    let count = slice_max.saturating_sub(have.len()).min(endpoints.len());
    have.extend(endpoints.drain(..count));
}

fn is_labelled(slice: &Value, desired: &DesiredSlices<'_>) -> bool {
    Meta::of(slice).labels() == Some(&desired.labels)
}

fn fresh(desired: &DesiredSlices<'_>, family: &str, group: &Group) -> Value {
    let meta = Meta::of(desired.owner);
    let mut slice = value!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": (meta.namespace()), "generateName": (format!("{}-", meta.name())),
            "ownerReferences": [(desired.reference.clone())], "labels": (desired.labels.clone())},
        "addressType": family, "endpoints": (group.endpoints.clone()), "ports": (group.ports.clone())});
    annotate(&mut slice, desired);
    slice
}

fn filled(slice: &Value, desired: &DesiredSlices<'_>, endpoints: Vec<Value>) -> Value {
    let mut slice = slice.clone();
    if let Some(object) = slice.as_object_mut() {
        object.insert("endpoints", endpoints);
    }
    if let Some(mut meta) = MetaMut::of(&mut slice) {
        meta.set("labels", desired.labels.clone());
    }
    annotate(&mut slice, desired);
    slice
}

fn annotate(slice: &mut Value, desired: &DesiredSlices<'_>) {
    if let Some(mut meta) = MetaMut::of(slice) {
        for (key, value) in desired.annotations.iter() {
            meta.set_annotation(key, value.as_str().unwrap_or_default());
        }
    }
}

/// Returns the old slice with the contents of the new one.
fn replaced(mut old: Value, new: &Value) -> Value {
    for field in ["endpoints", "ports"] {
        if let Some(object) = old.as_object_mut() {
            object.insert(field, new.get(field).cloned().unwrap_or_default());
        }
    }
    if let Some(mut meta) = MetaMut::of(&mut old) {
        for field in ["labels", "annotations"] {
            if let Some(value) = Meta::of(new).value(field) {
                meta.set(field, value.clone());
            }
        }
    }
    old
}
