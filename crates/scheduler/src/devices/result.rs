//! `status.allocation` of a ResourceClaim.

use apimachinery::{Object, Str, Value, value};

use super::allocate::AllocatedDevice;
use super::claim::Claim;
use super::slice::{Counters, Nodes};
use super::{Devices, Take};
use crate::hash;

/// Returns the allocation of a claim that got these devices on a node, and the devices that it takes. `seed` makes the
/// share IDs unique.
pub fn allocation(
    devices: &Devices,
    claim: &Claim,
    given: &[AllocatedDevice<'_>],
    node: &Str,
    seed: &str,
) -> (Value, Vec<Take>) {
    let results: Vec<_> = given.iter().zip(0_u32..).map(|(it, at)| result(claim, it, seed, at)).collect();
    let mut inner = Object::new();
    inner.insert("results", results);
    let config = configurations(devices, claim, given);
    if !config.is_empty() {
        inner.insert("config", config);
    }
    let mut allocation = value!({"devices": inner});
    if let (Some(selector), Some(fields)) = (node_selector(given, node), allocation.as_object_mut()) {
        fields.insert("nodeSelector", selector);
    }
    let used = given.iter().filter(|it| !claim.requests[it.request].alternatives[it.alternative].admin);
    let take = |it: &AllocatedDevice<'_>| Take {
        device: it.id.clone(),
        share: it.share.as_ref().map(|share| share.iter().map(|(name, amount)| (name.clone(), *amount)).collect()),
    };
    (allocation, used.map(take).collect())
}

fn result(claim: &Claim, given: &AllocatedDevice<'_>, seed: &str, at: u32) -> Value {
    let request = &claim.requests[given.request];
    let alternative = &request.alternatives[given.alternative];
    let mut result = Object::new();
    result.insert("request", request.full_name(alternative).as_str());
    result.insert("driver", given.id.driver.as_str());
    result.insert("pool", given.id.pool.as_str());
    result.insert("device", given.id.device.as_str());
    if alternative.admin {
        result.insert("adminAccess", true);
    }
    if !alternative.tolerations.is_empty() {
        result.insert("tolerations", alternative.tolerations_written.clone());
    }
    for (field, list) in ["bindingConditions", "bindingFailureConditions"].into_iter().zip(&given.device.conditions) {
        if !list.is_null() {
            result.insert(field, list.clone());
        }
    }
    if let Some(share) = &given.share {
        result.insert("shareID", share_id(claim, given, seed, at));
        if !share.is_empty() {
            result.insert("consumedCapacity", amounts(share));
        }
    }
    result.into()
}

fn amounts(share: &Counters) -> Object {
    share.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string()))).collect()
}

/// Returns a share ID, unique per device, in the form of a UUID.
fn share_id(claim: &Claim, given: &AllocatedDevice<'_>, seed: &str, at: u32) -> String {
    let hex = format!("{:032x}", hash::wide(&[&claim.uid, seed, &given.id.to_string(), &at.to_string()]));
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

/// Returns the configurations of the used classes, each once, and those of the claim that apply to allocated requests.
fn configurations(devices: &Devices, claim: &Claim, given: &[AllocatedDevice<'_>]) -> Vec<Value> {
    let chosen = |request: usize| given.iter().find(|it| it.request == request).map_or(0, |it| it.alternative);
    let mut classes: Vec<(&Str, Vec<Str>)> = Vec::new();
    for (at, request) in claim.requests.iter().enumerate() {
        let Some(alternative) = request.alternatives.get(chosen(at)) else { continue };
        let name = request.full_name(alternative);
        match classes.iter_mut().find(|(class, _)| **class == alternative.class) {
            Some((_, requests)) => requests.push(name),
            None => classes.push((&alternative.class, vec![name])),
        }
    }
    let mut all = Vec::new();
    let mut add = |source: &str, requests: &[Str], config: &Value| {
        let mut entry = config.as_object().cloned().unwrap_or_default();
        entry.remove("requests");
        entry.insert("source", source);
        // A configuration for all requests lists none.
        if !requests.is_empty() && requests.len() != claim.requests.len() {
            entry.insert("requests", requests.iter().map(|it| Value::from(it.as_str())).collect::<Vec<_>>());
        }
        all.push(Value::from(entry));
    };
    for (class, requests) in &classes {
        for config in devices.class(class).into_iter().flat_map(|class| &class.config) {
            add("FromClass", requests, config);
        }
    }
    for config in &claim.config {
        let named = config.list_at(&["requests"]);
        let named: Vec<Str> = named.iter().filter_map(Value::as_str).map(Str::from).collect();
        let applies = |(at, request): (usize, &super::Request)| {
            let chosen = request.alternatives.get(chosen(at));
            named.contains(&request.name) || chosen.is_some_and(|it| named.contains(&request.full_name(it)))
        };
        let times =
            if named.is_empty() { 1 } else { claim.requests.iter().enumerate().filter(|it| applies(*it)).count() };
        (0..times).for_each(|_| add("FromClaim", &named, config));
    }
    all
}

/// Returns a node selector for the nodes that can access all devices; `None` for all nodes.
fn node_selector(given: &[AllocatedDevice<'_>], node: &Str) -> Option<Value> {
    let mut term = Object::new();
    for it in given {
        let nodes = if matches!(it.slice.nodes, Nodes::PerDevice) { &it.device.nodes } else { &it.slice.nodes };
        if it.device.binds_to_node || matches!(nodes, Nodes::Named(_)) {
            let field = value!({"key": "metadata.name", "operator": "In", "values": [(node.as_str())]});
            return Some(value!({"nodeSelectorTerms": [{"matchFields": [field]}]}));
        }
        let Nodes::Matching(_, selector) = nodes else { continue };
        let one = selector.get("nodeSelectorTerms").and_then(Value::as_array).and_then(|terms| terms.first());
        for field in ["matchExpressions", "matchFields"] {
            for requirement in one.and_then(|one| one.get(field)).and_then(Value::as_array).unwrap_or_default() {
                let list = term.get_or_insert_with(field, || Value::Array(Vec::new()));
                if let Some(list) = list.as_array_mut().filter(|list| !list.contains(requirement)) {
                    list.push(requirement.clone());
                }
            }
        }
    }
    (!term.is_empty()).then(|| value!({"nodeSelectorTerms": [term]}))
}
