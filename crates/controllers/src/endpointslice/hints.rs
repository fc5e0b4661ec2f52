//! EndpointSlice hints: zones and nodes for topology-aware routing and trafficDistribution.

use std::collections::BTreeMap;

use api::view::Node;
use apimachinery::meta::Meta;
use apimachinery::quantity::Quantity;
use apimachinery::{Value, value};

use crate::endpoint_slices::Groups;

use super::ZONE;

/// Maximum overload of a zone relative to its share before hints are omitted: upstream's overload threshold.
const OVERLOAD_MAX: f64 = 0.2;
const MODE: &str = "service.kubernetes.io/topology-mode";
const MODE_OLD: &str = "service.kubernetes.io/topology-aware-hints";

/// Whether hints are computed from the CPU capacity of zones.
pub(super) fn need_nodes(service: &Value) -> bool {
    distribution(service).is_empty() && is_auto(service)
}

/// Adds hints to the endpoints of a Service that requests them.
pub(super) fn add(service: &Value, groups: &mut Groups, nodes: &[&Value]) {
    match distribution(service) {
        "PreferClose" | "PreferSameZone" => each(groups, |endpoint| {
            let zone = zone(endpoint)?;
            Some(value!({"forZones": [{"name": zone}]}))
        }),
        "PreferSameNode" => each(groups, |endpoint| {
            let (zone, node) = (zone(endpoint)?, endpoint.str_at(&["nodeName"])?.to_owned());
            Some(value!({"forNodes": [{"name": node}], "forZones": [{"name": zone}]}))
        }),
        _ if is_auto(service) => by_shares(groups, nodes),
        _ => {}
    }
}

fn distribution(service: &Value) -> &str {
    service.text_at(&["spec", "trafficDistribution"])
}

fn is_auto(service: &Value) -> bool {
    let meta = Meta::of(service);
    matches!(meta.annotation(MODE).or_else(|| meta.annotation(MODE_OLD)), Some("Auto" | "auto"))
}

fn zone(endpoint: &Value) -> Option<String> {
    endpoint.str_at(&["zone"]).map(str::to_owned)
}

fn each(groups: &mut Groups, hint: impl Fn(&Value) -> Option<Value>) {
    for endpoint in groups.values_mut().flat_map(|group| &mut group.endpoints) {
        if let (Some(hints), Some(endpoint)) = (hint(endpoint), endpoint.as_object_mut()) {
            endpoint.insert("hints", hints);
        }
    }
}

/// Assigns ready endpoints to zones by their share of CPUs, preferring the endpoint's own zone.
fn by_shares(groups: &mut Groups, nodes: &[&Value]) {
    let Some(shares) = shares(nodes) else { return };
    let endpoints: Vec<&mut Value> = groups.values_mut().flat_map(|group| &mut group.endpoints).collect();
    let mut ready: Vec<&mut Value> =
        endpoints.into_iter().filter(|endpoint| endpoint.is_true_at(&["conditions", "ready"])).collect();
    let total = ready.len() as f64;
    if ready.iter().any(|endpoint| zone(endpoint).is_none()) {
        return;
    }
    // Minimum endpoints of a zone without overload. If the sum exceeds the total, no hints are added.
    let fewest = |share: f64| (total * share / (1.0 + OVERLOAD_MAX)).ceil().max(1.0);
    if shares.values().map(|share| fewest(*share)).sum::<f64>() > total {
        return;
    }
    let mut desired: BTreeMap<String, usize> =
        shares.iter().map(|(zone, share)| (zone.clone(), fewest(*share) as usize)).collect();
    let mut spare = Vec::new();
    for endpoint in &mut ready {
        let own = zone(endpoint).unwrap_or_default();
        match desired.get_mut(&own) {
            Some(left) if *left > 0 => {
                *left -= 1;
                set(endpoint, &own);
            }
            _ => spare.push(endpoint),
        }
    }
    for endpoint in spare {
        let needy = desired.iter_mut().find(|(_, left)| **left > 0);
        let to = match needy {
            Some((zone, left)) => {
                *left -= 1;
                zone.clone()
            }
            None => zone(endpoint).unwrap_or_default(),
        };
        set(endpoint, &to);
    }
}

fn set(endpoint: &mut Value, zone: &str) {
    if let Some(endpoint) = endpoint.as_object_mut() {
        endpoint.insert("hints", value!({"forZones": [{"name": zone}]}));
    }
}

/// Returns each zone's share of the CPUs of ready nodes; `None` if it is unknown or there is only one zone.
fn shares(nodes: &[&Value]) -> Option<BTreeMap<String, f64>> {
    let mut processors: BTreeMap<String, f64> = BTreeMap::new();
    for node in nodes {
        let control_plane = Meta::of(node).labels().is_some_and(|labels| {
            labels.contains_key("node-role.kubernetes.io/control-plane")
                || labels.contains_key("node-role.kubernetes.io/master")
        });
        if !Node(node).is_ready() || control_plane {
            continue;
        }
        let zone = Meta::of(node).label(ZONE).filter(|zone| !zone.is_empty())?;
        let cpu: Quantity = node.str_at(&["status", "allocatable", "cpu"])?.parse().ok()?;
        *processors.entry(zone.to_owned()).or_default() += cpu.as_f64();
    }
    let total: f64 = processors.values().sum();
    (processors.len() > 1 && total > 0.0)
        .then(|| processors.into_iter().map(|(zone, cpu)| (zone, cpu / total)).collect())
}
