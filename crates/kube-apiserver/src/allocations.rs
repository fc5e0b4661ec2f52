//! Cluster IP and node port allocation, in the transaction that writes the Service.
//!
//! An allocation is a key in the store. A cluster IP is allocated by an `IPAddress` object, which clients see; a node
//! port by an internal key.

use std::net::IpAddr;

use api::core::service::allocation::{Allocation, AllocationError, AllocationLookup, Config, Plan, RandomSource};
use api::kind::{Kind, Persistence};
use api::resources::IP_ADDRESSES;
use api_registry::decode::kind_name;
use api_registry::options::WriteOptions;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{GroupVersion, Str, Value, value};
use bytes::Bytes;
use mvcc::{Delete, Operation, Span, Txn};

use crate::ids::generate_ids;
use crate::storage::Storage;
use crate::storage_format;
use client::clock::now;

/// Returns the internal kind of node port allocations, which clients do not see.
pub fn port_kind() -> Kind {
    let version = GroupVersion { group: "".into(), version: "v1".into() };
    let persistence = Persistence::Stored { prefix: "ranges/servicenodeports".into(), version, expires: false };
    let scope = apimachinery::meta::Scope::Cluster;
    Kind { persistence, scope, ..Kind::stored("", "v1", "RangeAllocation", "servicenodeports") }
}

/// Returns the random source for the allocations of a write.
pub fn random_source(options: &WriteOptions) -> RandomSource {
    let seed = seed();
    if options.dry_run { RandomSource::DryRun(seed) } else { RandomSource::Seed(seed) }
}

/// Returns a random seed for allocations.
pub fn seed() -> u64 {
    u64::from_str_radix(&generate_ids().uid[..8], 16).unwrap_or_default()
}

/// Plans the allocations of an object and sets them in the object. The plan is empty for kinds without allocations.
pub fn plan(
    storage: &Storage,
    kind: &Kind,
    object: &mut Value,
    old: Option<&Value>,
    random: RandomSource,
) -> Result<Plan, Status> {
    let Some(allocates) = &kind.allocates else { return Ok(Plan::default()) };
    (allocates.plan)(object, old, &storage.ranges, storage, random).map_err(|rejection| match rejection {
        AllocationError::Invalid(errors) => Status::invalid(kind_name(kind), Meta::of(object).name(), &errors),
        AllocationError::Internal(message) => Status::internal_error(message),
    })
}

/// Returns the plan that releases the allocations of a deleted object.
pub fn releases(kind: &Kind, object: &Value) -> Plan {
    let allocated = kind.allocates.as_ref().map(|allocates| (allocates.allocated_claims)(object));
    Plan { claims: Vec::new(), releases: allocated.unwrap_or_default() }
}

/// Adds the claims and releases of a plan to the transaction of the object.
pub fn join(storage: &Storage, txn: &mut Txn, plan: &Plan, owner: &Value) {
    for claim in &plan.claims {
        let (key, value) = (key(storage, *claim), storage_format::encode(&object(*claim, owner)));
        let mut create = storage_format::create(key, value);
        txn.compare.append(&mut create.compare);
        txn.success.append(&mut create.success);
    }
    for claim in &plan.releases {
        let span = Span::key(key(storage, *claim));
        txn.success.push(Operation::Delete(Delete { span, want_previous: false }));
    }
}

fn key(storage: &Storage, claim: Allocation) -> Bytes {
    let root = &storage.layout.root;
    Bytes::from(match claim {
        Allocation::Ip(ip) => format!("{root}/ipaddresses/{ip}"),
        Allocation::Port(port) => format!("{root}/ranges/servicenodeports/{port}"),
    })
}

/// Returns the object that represents an allocation.
fn object(claim: Allocation, owner: &Value) -> Value {
    let meta = Meta::of(owner);
    let (namespace, name) = (meta.namespace(), meta.name());
    let created = now().to_seconds().to_string();
    match claim {
        Allocation::Ip(ip) => {
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            value!({
                "apiVersion": "networking.k8s.io/v1",
                "kind": "IPAddress",
                "metadata": {
                    "name": (ip.to_string()),
                    "uid": (generate_ids().uid),
                    "creationTimestamp": created,
                    "labels": {
                        "ipaddress.kubernetes.io/ip-family": family,
                        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                    },
                },
                "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
            })
        }
        Allocation::Port(port) => value!({
            "apiVersion": "v1",
            "kind": "RangeAllocation",
            "metadata": {"name": (port.to_string()), "uid": (generate_ids().uid), "creationTimestamp": created},
            "range": (format!("{namespace}/{name}")),
            "data": "",
        }),
    }
}

impl AllocationLookup for Storage {
    fn ip(&self, ip: IpAddr) -> Option<Str> {
        let found = self.object(IP_ADDRESSES, "", &ip.to_string())?;
        let owner = found.at(&["spec", "parentRef"])?;
        let text = |field: &str| owner.str_at(&[field]).unwrap_or_default().to_owned();
        Some(format!("{}/{}", text("namespace"), text("name")).into())
    }

    fn port(&self, port: u16) -> Option<Str> {
        let entry = self.cache.kind_cache(&self.ports).get(&port.to_string())?;
        entry.object().str_at(&["range"]).map(Str::from)
    }
}

/// Parses `--service-cluster-ip-range` and `--service-node-port-range`.
pub fn ranges(cidrs: &[String], ports: &str) -> Result<Config, String> {
    let mut ranges = Vec::new();
    for cidr in cidrs {
        let (address, bits) = cidr.split_once('/').ok_or_else(|| format!("{cidr:?} is not an address range"))?;
        let parsed = address.parse::<IpAddr>().ok().zip(bits.parse::<u8>().ok());
        let range = parsed.filter(|(ip, bits)| *bits <= if ip.is_ipv4() { 32 } else { 128 });
        ranges.push(range.ok_or_else(|| format!("{cidr:?} is not an address range"))?);
    }
    let (low, high) = ports.split_once('-').ok_or_else(|| format!("{ports:?} is not a port range"))?;
    let parsed = low.trim().parse().ok().zip(high.trim().parse().ok()).filter(|(low, high): &(u16, u16)| low <= high);
    let (low, high) = parsed.ok_or_else(|| format!("{ports:?} is not a port range"))?;
    Ok(Config { ranges, node_ports: low..=high })
}
