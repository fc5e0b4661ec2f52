//! Canonical form of Endpoints subsets.
//!
//! Each port occurs once with all its addresses. Ports with equal addresses share a subset.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use apimachinery::{Object, Value};

/// Maximum addresses in one Endpoints object.
pub const ADDRESSES_MAX: usize = 1000;

/// Addresses with the same ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subset {
    pub ready: Vec<Value>,
    pub unready: Vec<Value>,
    pub ports: Vec<Value>,
}

impl Subset {
    /// Returns a subset with one address and at most one port.
    pub fn single(address: Value, port: Option<Value>, ready: bool) -> Self {
        let ports = port.into_iter().collect();
        if ready {
            Self { ready: vec![address], unready: Vec::new(), ports }
        } else {
            Self { ready: Vec::new(), unready: vec![address], ports }
        }
    }

    /// Returns the subset as JSON, without empty fields.
    pub fn to_value(&self) -> Value {
        let mut subset = Object::new();
        for (field, items) in [("addresses", &self.ready), ("notReadyAddresses", &self.unready), ("ports", &self.ports)]
        {
            if !items.is_empty() {
                subset.insert(field, items.clone());
            }
        }
        Value::Object(subset)
    }
}

/// Reads the subsets of an Endpoints object in canonical form.
pub fn read(endpoints: &Value) -> Vec<Subset> {
    repack(
        endpoints
            .list_at(&["subsets"])
            .iter()
            .map(|subset| {
                let items = |field| subset.list_at(&[field]).to_vec();
                Subset { ready: items("addresses"), unready: items("notReadyAddresses"), ports: items("ports") }
            })
            .collect(),
    )
}

/// Brings subsets into canonical form.
pub fn repack(subsets: Vec<Subset>) -> Vec<Subset> {
    let mut addresses: BTreeMap<AddressKey, Value> = BTreeMap::new();
    let mut by_port: BTreeMap<PortKey, (Option<Value>, BTreeMap<AddressKey, bool>)> = BTreeMap::new();
    for subset in subsets {
        let ports: Vec<Option<Value>> =
            if subset.ports.is_empty() { vec![None] } else { subset.ports.into_iter().map(Some).collect() };
        let all = subset.ready.into_iter().map(|it| (it, true)).chain(subset.unready.into_iter().map(|it| (it, false)));
        for (address, ready) in all {
            let key = address_key(&address);
            for port in &ports {
                let (_, have) =
                    by_port.entry(port_key(port.as_ref())).or_insert_with(|| (port.clone(), BTreeMap::new()));
                // An address that is listed as not ready anywhere is not ready.
                have.entry(key.clone()).and_modify(|have| *have &= ready).or_insert(ready);
            }
            addresses.entry(key).or_insert(address);
        }
    }
    let mut by_addresses: BTreeMap<Vec<(AddressKey, bool)>, Vec<Value>> = BTreeMap::new();
    let mut order: Vec<Vec<(AddressKey, bool)>> = Vec::new();
    for (port, have) in by_port.into_values() {
        let have: Vec<(AddressKey, bool)> = have.into_iter().collect();
        if !by_addresses.contains_key(&have) {
            order.push(have.clone());
        }
        by_addresses.entry(have).or_default().extend(port);
    }
    let pick = |keys: &[(AddressKey, bool)], is_ready: bool| -> Vec<Value> {
        keys.iter().filter(|(_, ready)| *ready == is_ready).map(|(key, _)| addresses[key].clone()).collect()
    };
    order
        .into_iter()
        .map(|keys| Subset {
            ready: pick(&keys, true),
            unready: pick(&keys, false),
            ports: by_addresses.remove(&keys).unwrap_or_default(),
        })
        .collect()
}

/// Truncates to `addresses_max` addresses, ready ones first. Returns whether any were dropped.
pub fn truncate(subsets: Vec<Subset>, addresses_max: usize) -> (Vec<Subset>, bool) {
    let count = |subsets: &[Subset]| subsets.iter().map(|it| it.ready.len() + it.unready.len()).sum::<usize>();
    if count(&subsets) <= addresses_max {
        return (subsets, false);
    }
    let mut left = addresses_max;
    let mut cut = subsets;
    for part in [true, false] {
        for subset in &mut cut {
            let items = if part { &mut subset.ready } else { &mut subset.unready };
            items.truncate(left);
            left -= items.len();
        }
    }
    cut.retain(|subset| !(subset.ready.is_empty() && subset.unready.is_empty()));
    (cut, true)
}

/// Returns all addresses of an IP family, with their readiness.
pub fn of_family<'a>(subset: &'a Subset, family: &'a str) -> impl Iterator<Item = (&'a Value, bool)> {
    let all = subset.ready.iter().map(|it| (it, true)).chain(subset.unready.iter().map(|it| (it, false)));
    all.filter(move |(it, _)| crate::service::family(it.text_at(&["ip"])) == Some(family))
}

type AddressKey = (Option<IpAddr>, String, String);
type PortKey = (String, String, i64, String);

fn address_key(address: &Value) -> AddressKey {
    let ip = address.text_at(&["ip"]);
    (ip.parse().ok(), ip.to_owned(), address.text_at(&["targetRef", "uid"]).to_owned())
}

fn port_key(port: Option<&Value>) -> PortKey {
    let Some(port) = port else { return PortKey::default() };
    let part = |field| port.text_at(&[field]).to_owned();
    (part("name"), part("protocol"), port.get("port").and_then(Value::as_int).unwrap_or(0), part("appProtocol"))
}

/// Returns the IP families of the addresses.
pub fn families(subsets: &[Subset]) -> BTreeSet<&'static str> {
    let all = subsets.iter().flat_map(|subset| subset.ready.iter().chain(&subset.unready));
    all.filter_map(|address| crate::service::family(address.text_at(&["ip"]))).collect()
}
