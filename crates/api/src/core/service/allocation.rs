//! Allocation and release of cluster IPs and node ports of Services.
//!
//! A plan is computed from the service, its old state, the configured ranges and the allocated values. The API server
//! stores the service, the new allocations and the releases in one transaction, so no repair loop is needed.
//!
//! Ranges have two bands: dynamic allocation uses the upper one first, so that the lower one remains available for
//! values chosen by users.

mod bands;
mod families;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use apimachinery::field::Error;
use apimachinery::names::parse_ip;
use apimachinery::{Errors, Path, Str, Value};

use super::{
    addresses, is_headless, needs_address, needs_health_check, needs_node_ports, node_ports, spec_mut, text, texts,
};
use bands::GeneratedIds;

/// First node port of a dry-run service, outside of the default node port range.
const REHEARSED_PORT: u16 = 32769;

/// Configured ranges.
#[derive(Clone, Debug)]
pub struct Config {
    /// Service CIDRs: network address and prefix length. The family of the first range is the default family.
    pub ranges: Vec<(IpAddr, u8)>,
    /// The node port range.
    pub node_ports: RangeInclusive<u16>,
}

/// Lookup of allocated values.
pub trait AllocationLookup {
    /// Returns the service that has an address.
    fn ip(&self, ip: IpAddr) -> Option<Str>;
    /// Returns the service that has a node port with any protocol.
    fn port(&self, port: u16) -> Option<Str>;
}

/// Seed of dynamic allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomSource {
    /// For a service that is stored.
    Seed(u64),
    /// For a dry run: node ports are taken from outside the range.
    DryRun(u64),
}

/// A value that only one service can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allocation {
    Ip(IpAddr),
    /// A node port, for all protocols.
    Port(u16),
}

/// Allocations and releases to commit together with the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The new allocations. If another service has one of them at commit time, the plan must be computed again.
    pub claims: Vec<Allocation>,
    pub releases: Vec<Allocation>,
}

/// Allocation failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AllocationError {
    /// The request is invalid.
    #[error("{}", apimachinery::field::aggregate(.0).unwrap_or_default())]
    Invalid(Errors),
    /// The range is full, or no range is configured for the family.
    #[error("{0}")]
    Internal(String),
}

/// Sets addresses, families and ports of `service` and returns the allocations and releases. `old` is the service that
/// is being replaced, `random` the seed of dynamic allocation.
pub fn plan(
    service: &mut Value,
    old: Option<&Value>,
    config: &Config,
    taken: &dyn AllocationLookup,
    random: RandomSource,
) -> Result<Plan, AllocationError> {
    if let Some(old) = old {
        keep_allocated(service, old);
    }
    addresses::normalize(service, old);
    families::set_families(service, old, config)?;
    let (RandomSource::Seed(seed) | RandomSource::DryRun(seed)) = random;
    let rehearses = matches!(random, RandomSource::DryRun(_));
    let rng = GeneratedIds::new(seed);
    let mut ledger = Allocator { config, taken, rng, rehearses, ports: BTreeSet::new(), plan: Plan::default() };
    match old {
        None => ledger.address(service)?,
        Some(old) => ledger.readdress(service, old)?,
    }
    match old {
        None if needs_node_ports(service) => ledger.open_ports(service)?,
        None => {}
        Some(old) => ledger.reopen_ports(service, old)?,
    }
    ledger.health_check(service, old)?;
    Ok(ledger.plan)
}

/// Returns all allocations of a service, which its deletion releases.
pub fn allocated_claims(service: &Value) -> Vec<Allocation> {
    let ips = texts(service, "clusterIPs").into_iter().filter_map(parse_ip).map(Allocation::Ip);
    let ports = node_ports(service).into_iter().chain(needs_health_check(service).then(|| health_port(service)));
    let ports = ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| *port != 0).map(Allocation::Port);
    let claims: BTreeSet<Allocation> = ips.filter(|_| needs_address(service)).chain(ports).collect();
    claims.into_iter().collect()
}

/// Restores allocated values that the client omitted, so that a manifest can be applied again.
pub fn keep_allocated(new: &mut Value, old: &Value) {
    let keep = |new: &mut Value, field: &str| {
        let absent = new.at(&["spec", field]).is_none_or(|value| match value {
            Value::Array(items) => items.is_empty(),
            Value::String(text) => text.is_empty(),
            value => value.is_null() || value == &Value::Int(0),
        });
        if let (true, Some(value), Some(spec)) = (absent, old.at(&["spec", field]).cloned(), spec_mut(new)) {
            spec.insert(field, value);
        }
    };
    if needs_address(old) && needs_address(new) {
        keep(new, "clusterIP");
        keep(new, "clusterIPs");
    }
    if needs_node_ports(old) && needs_node_ports(new) {
        keep_node_ports(new, old);
    }
    if needs_health_check(old) && needs_health_check(new) {
        keep(new, "healthCheckNodePort");
    }
}

/// Restores omitted node ports by port name, unless another port uses them now.
fn keep_node_ports(new: &mut Value, old: &Value) {
    let given = node_ports(new);
    let had = old.list_at(&["spec", "ports"]);
    let name = |port: &Value| port.text_at(&["name"]).to_owned();
    let ports = new.get_mut("spec").and_then(|spec| spec.get_mut("ports")).and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if port.get("nodePort").and_then(Value::as_int).unwrap_or_default() != 0 {
            continue;
        }
        let before = had.iter().rev().find(|before| name(before) == name(port));
        let number = before.and_then(|before| before.get("nodePort")?.as_int()).unwrap_or_default();
        if let Some(port) = port.as_object_mut().filter(|_| number != 0 && !given.contains(&number)) {
            port.insert("nodePort", number);
        }
    }
}

fn health_port(service: &Value) -> i64 {
    service.int_at(&["spec", "healthCheckNodePort"]).unwrap_or_default()
}

/// An allocation in progress: its inputs, and the plan so far.
struct Allocator<'a> {
    config: &'a Config,
    taken: &'a dyn AllocationLookup,
    rng: GeneratedIds,
    rehearses: bool,
    ports: BTreeSet<u16>,
    plan: Plan,
}

impl Allocator<'_> {
    /// Allocates an address per family, those chosen by the client first.
    fn address(&mut self, service: &mut Value) -> Result<(), AllocationError> {
        if !needs_address(service) || is_headless(service) {
            return Ok(());
        }
        let families: Vec<String> = texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
        self.addresses(service, &families, 0)
    }

    fn readdress(&mut self, service: &mut Value, old: &Value) -> Result<(), AllocationError> {
        if families::keeps_families(service, old) {
            return Ok(());
        }
        if !needs_address(old) && needs_address(service) {
            return self.address(service);
        }
        if is_headless(old) {
            return Ok(());
        }
        let had: Vec<_> = texts(old, "clusterIPs").into_iter().filter_map(parse_ip).collect();
        if !needs_address(service) {
            self.plan.releases.extend(had.into_iter().map(Allocation::Ip));
            return Ok(());
        }
        let families: Vec<String> = texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
        match (texts(old, "ipFamilies").len(), families.len()) {
            (1, 2) => self.addresses(service, &families, 1)?,
            (2, 1) => self.plan.releases.extend(had.get(1).copied().map(Allocation::Ip)),
            _ => {}
        }
        Ok(())
    }

    /// Allocates an address for each family from index `from`.
    fn addresses(&mut self, service: &mut Value, families: &[String], from: usize) -> Result<(), AllocationError> {
        let mut all: Vec<String> = texts(service, "clusterIPs").into_iter().map(str::to_owned).collect();
        all.resize(all.len().max(families.len()), String::new());
        let requested_ips: Vec<Value> = all.iter().map(|ip| Value::from(ip.as_str())).collect();
        for (at, family) in families.iter().enumerate().skip(from) {
            let ip = match all[at].as_str() {
                "" => bands::pick_ip(self.config, family, self.taken, &mut self.rng).ok_or_else(|| {
                    AllocationError::Internal("failed to allocate a serviceIP: range is full".to_owned())
                })?,
                chosen => self.chosen_ip(chosen).map_err(|message| {
                    let spec = Path::of("spec");
                    let detail = format!("failed to allocate IP {chosen}: {message}");
                    AllocationError::Invalid(vec![Error::invalid(
                        &spec.field("clusterIPs"),
                        requested_ips.clone(),
                        detail,
                    )])
                })?,
            };
            self.plan.claims.push(Allocation::Ip(ip));
            if all[at].is_empty() {
                all[at] = ip.to_string();
            }
        }
        if let Some(spec) = spec_mut(service) {
            spec.insert("clusterIP", all.first().cloned().unwrap_or_default());
            spec.insert("clusterIPs", all.into_iter().map(Value::from).collect::<Vec<_>>());
        }
        Ok(())
    }

    fn chosen_ip(&self, chosen: &str) -> Result<IpAddr, String> {
        let ip = parse_ip(chosen).ok_or("failed to parse service IP")?;
        bands::check_ip(self.config, ip)?;
        if self.taken.ip(ip).is_some() { Err("provided IP is already allocated".to_owned()) } else { Ok(ip) }
    }

    /// Allocates a node port per port; ports with the same number and different protocols share one.
    fn open_ports(&mut self, service: &mut Value) -> Result<(), AllocationError> {
        let allocate = allocates_ports(service);
        let mut ports = Port::all(service);
        for at in 0..ports.len() {
            let Port { number, node } = ports[at];
            if node == 0 && !allocate {
                continue;
            }
            let opened =
                ports[..at].iter().rev().find(|before| before.number == number).map_or(0, |before| before.node);
            ports[at].node = match (opened, node) {
                (0, _) => {
                    let requested_port = ports.iter().find(|port| port.number == number && port.node != 0);
                    match requested_port.map(|requested_port| requested_port.node) {
                        Some(requested_port) => self.open(at, requested_port)?,
                        None => self.pick_port()?,
                    }
                }
                (opened, 0) => opened,
                (opened, node) if opened == node => node,
                (_, node) => self.open(at, node)?,
            };
        }
        Port::write(service, &ports);
        Ok(())
    }

    fn reopen_ports(&mut self, service: &mut Value, old: &Value) -> Result<(), AllocationError> {
        let had = if needs_node_ports(old) { node_ports(old) } else { Vec::new() };
        if needs_node_ports(service) {
            let allocate = allocates_ports(service);
            let mut ports = Port::all(service);
            for at in 0..ports.len() {
                let node = ports[at].node;
                if node == 0 && allocate {
                    ports[at].node = self.pick_port()?;
                } else if node != 0 && !had.contains(&node) && !ports[..at].iter().any(|before| before.node == node) {
                    self.open(at, node)?;
                }
            }
            Port::write(service, &ports);
        }
        let has = if needs_node_ports(service) { node_ports(service) } else { Vec::new() };
        let released: BTreeSet<u16> =
            had.into_iter().filter(|port| !has.contains(port)).filter_map(|port| u16::try_from(port).ok()).collect();
        self.plan.releases.extend(released.into_iter().map(Allocation::Port));
        Ok(())
    }

    fn health_check(&mut self, service: &mut Value, old: Option<&Value>) -> Result<(), AllocationError> {
        let needed = old.is_some_and(needs_health_check);
        match (needed, needs_health_check(service)) {
            (false, true) => {
                let requested_port = health_port(service);
                let port = if requested_port == 0 {
                    self.pick_port().map_err(|_| {
                        AllocationError::Internal(
                            "failed to allocate a HealthCheck NodePort 0: range is full".to_owned(),
                        )
                    })?
                } else {
                    self.take(requested_port).map_err(|detail| {
                        AllocationError::Internal(format!(
                            "failed to allocate requested HealthCheck NodePort {requested_port}: {detail}"
                        ))
                    })?
                };
                if let Some(spec) = spec_mut(service) {
                    spec.insert("healthCheckNodePort", port);
                }
            }
            (true, false) => {
                let port = old.map(health_port).and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
                self.plan.releases.extend(port.map(Allocation::Port));
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, at: usize, node: i64) -> Result<i64, AllocationError> {
        self.take(node).map_err(|detail| {
            let spec = Path::of("spec");
            let ports = spec.field("ports");
            let port = ports.index(at);
            AllocationError::Invalid(vec![Error::invalid(&port.field("nodePort"), node, detail)])
        })
    }

    fn take(&mut self, port: i64) -> Result<i64, String> {
        let range = &self.config.node_ports;
        let number = u16::try_from(port).ok().filter(|port| range.contains(port)).ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            format!("provided port is not in the valid range. The range of valid ports is {low}-{high}")
        })?;
        if self.ports.contains(&number) || self.taken.port(number).is_some() {
            return Err("provided port is already allocated".to_owned());
        }
        self.claim_port(number);
        Ok(port)
    }

    fn pick_port(&mut self) -> Result<i64, AllocationError> {
        if self.rehearses {
            let port = self.ports.last().map_or(REHEARSED_PORT, |last| last.saturating_add(1));
            self.ports.insert(port);
            return Ok(port.into());
        }
        let (taken, own) = (self.taken, &self.ports);
        let is_free = |port: u16| !own.contains(&port) && taken.port(port).is_none();
        let port = bands::pick_port(&self.config.node_ports, is_free, &mut self.rng)
            .ok_or_else(|| AllocationError::Internal("failed to allocate a nodePort: range is full".to_owned()))?;
        self.claim_port(port);
        Ok(port.into())
    }

    fn claim_port(&mut self, port: u16) {
        self.ports.insert(port);
        self.plan.claims.push(Allocation::Port(port));
    }
}

/// A service port with its node port, or 0.
#[derive(Clone, Copy)]
struct Port {
    number: i64,
    node: i64,
}

impl Port {
    fn all(service: &Value) -> Vec<Self> {
        let ports = service.list_at(&["spec", "ports"]);
        let number = |port: &Value, field: &str| port.get(field).and_then(Value::as_int).unwrap_or_default();
        ports.iter().map(|port| Self { number: number(port, "port"), node: number(port, "nodePort") }).collect()
    }

    fn write(service: &mut Value, ports: &[Self]) {
        let list = service.get_mut("spec").and_then(|spec| spec.get_mut("ports")).and_then(Value::as_array_mut);
        for (into, port) in list.into_iter().flatten().zip(ports) {
            if let Some(into) = into.as_object_mut().filter(|_| port.node != 0) {
                into.insert("nodePort", port.node);
            }
        }
    }
}

/// Whether ports without a node port get one.
fn allocates_ports(service: &Value) -> bool {
    let requested = service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool);
    text(service, "type") == "NodePort" || requested.unwrap_or(true)
}

#[cfg(test)]
mod tests;
