//! Which addresses and node ports a service gets, and which it gives back.
//!
//! A plan is made from the service, what it was, what the cluster has and what is taken; whoever stores the service makes
//! the claims and the releases in the same transaction, so there is nothing to repair.
//!
//! Ranges have two bands: what is drawn comes from the upper one first, so that the lower one stays free for those who
//! choose themselves.

mod bands;
mod families;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use machinery::field::Error;
use machinery::names::parse_ip;
use machinery::{Errors, Path, Str, Value};

use super::{
    addresses, is_headless, needs_address, needs_health_check, needs_node_ports, node_ports, spec_mut, text, texts,
};
use bands::Draw;

/// The first node port of a service that is not stored: one that no range of defaults has.
const REHEARSED_PORT: u16 = 32769;

/// What the cluster has to give.
#[derive(Clone, Debug)]
pub struct Config {
    /// The ranges of addresses: the first address of each and its number of leading bits. The family of the first range
    /// is what a service gets that does not say.
    pub ranges: Vec<(IpAddr, u8)>,
    /// The ports that are opened on every node.
    pub node_ports: RangeInclusive<u16>,
}

/// What is taken already.
pub trait Taken {
    /// Who has an address.
    fn ip(&self, ip: IpAddr) -> Option<Str>;
    /// Who has a node port, whatever its protocol.
    fn port(&self, port: u16) -> Option<Str>;
}

/// What draws are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chance {
    /// A seed, for a service that is stored.
    Seed(u64),
    /// A seed, for a service that is not: it gets no ports of the cluster, but numbers beyond them.
    Rehearsal(u64),
}

/// Something that only one service can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// An address.
    Ip(IpAddr),
    /// A node port, whatever its protocol.
    Port(u16),
}

/// What to take and what to give back when the service is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be taken. If one of them is taken by now, the plan must be made again.
    pub claims: Vec<Claim>,
    /// To be given back.
    pub releases: Vec<Claim>,
}

/// Why a service gets nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// It asks for what it cannot have.
    #[error("{}", machinery::field::aggregate(.0).unwrap_or_default())]
    Invalid(Errors),
    /// There is nothing left, or nothing of that kind.
    #[error("{0}")]
    Internal(String),
}

/// Gives `service` its addresses, families and ports, and says what to take and to give back. `old` is what it replaces,
/// and `chance` what the draws are made from.
pub fn plan(
    service: &mut Value,
    old: Option<&Value>,
    config: &Config,
    taken: &dyn Taken,
    chance: Chance,
) -> Result<Plan, Refusal> {
    if let Some(old) = old {
        keep_allocated(service, old);
    }
    addresses::normalize(service, old);
    families::settle(service, old, config)?;
    let (Chance::Seed(seed) | Chance::Rehearsal(seed)) = chance;
    let rehearses = matches!(chance, Chance::Rehearsal(_));
    let draw = Draw::new(seed);
    let mut ledger = Ledger { config, taken, draw, rehearses, ports: BTreeSet::new(), plan: Plan::default() };
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

/// All that a service has, to be given back when it goes.
pub fn held(service: &Value) -> Vec<Claim> {
    let ips = texts(service, "clusterIPs").into_iter().filter_map(parse_ip).map(Claim::Ip);
    let ports = node_ports(service).into_iter().chain(needs_health_check(service).then(|| health_port(service)));
    let ports = ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| *port != 0).map(Claim::Port);
    let held: BTreeSet<Claim> = ips.filter(|_| needs_address(service)).chain(ports).collect();
    held.into_iter().collect()
}

/// Puts back what the service was given and the client left out, so that what it once sent can be sent again.
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

/// A port without a node port gets the one it had, by its name, unless another has it now.
fn keep_node_ports(new: &mut Value, old: &Value) {
    let given = node_ports(new);
    let had = old.at(&["spec", "ports"]).and_then(Value::as_array).unwrap_or_default();
    let name = |port: &Value| port.str_at(&["name"]).unwrap_or_default().to_owned();
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
    service.at(&["spec", "healthCheckNodePort"]).and_then(Value::as_int).unwrap_or_default()
}

/// What is drawn while a plan is made.
struct Ledger<'a> {
    config: &'a Config,
    taken: &'a dyn Taken,
    draw: Draw,
    rehearses: bool,
    ports: BTreeSet<u16>,
    plan: Plan,
}

impl Ledger<'_> {
    /// An address for each family, those that the client chose first of all.
    fn address(&mut self, service: &mut Value) -> Result<(), Refusal> {
        if !needs_address(service) || is_headless(service) {
            return Ok(());
        }
        let families: Vec<String> = texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
        self.addresses(service, &families, 0)
    }

    fn readdress(&mut self, service: &mut Value, old: &Value) -> Result<(), Refusal> {
        if families::is_settled(service, old) {
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
            self.plan.releases.extend(had.into_iter().map(Claim::Ip));
            return Ok(());
        }
        let families: Vec<String> = texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
        match (texts(old, "ipFamilies").len(), families.len()) {
            (1, 2) => self.addresses(service, &families, 1)?,
            (2, 1) => self.plan.releases.extend(had.get(1).copied().map(Claim::Ip)),
            _ => {}
        }
        Ok(())
    }

    /// Gives an address of each family from the one at `from` on.
    fn addresses(&mut self, service: &mut Value, families: &[String], from: usize) -> Result<(), Refusal> {
        let mut all: Vec<String> = texts(service, "clusterIPs").into_iter().map(str::to_owned).collect();
        all.resize(all.len().max(families.len()), String::new());
        let asked: Vec<Value> = all.iter().map(|ip| Value::from(ip.as_str())).collect();
        for (at, family) in families.iter().enumerate().skip(from) {
            let ip = match all[at].as_str() {
                "" => bands::draw_ip(self.config, family, self.taken, &mut self.draw)
                    .ok_or_else(|| Refusal::Internal("failed to allocate a serviceIP: range is full".to_owned()))?,
                chosen => self.chosen_ip(chosen).map_err(|why| {
                    let spec = Path::of("spec");
                    let detail = format!("failed to allocate IP {chosen}: {why}");
                    Refusal::Invalid(vec![Error::invalid(&spec.field("clusterIPs"), asked.clone(), detail)])
                })?,
            };
            self.plan.claims.push(Claim::Ip(ip));
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

    /// A node port for each port, the same one for both protocols of a number.
    fn open_ports(&mut self, service: &mut Value) -> Result<(), Refusal> {
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
                    let asked = ports.iter().find(|port| port.number == number && port.node != 0);
                    match asked.map(|asked| asked.node) {
                        Some(asked) => self.open(at, asked)?,
                        None => self.draw_port()?,
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

    fn reopen_ports(&mut self, service: &mut Value, old: &Value) -> Result<(), Refusal> {
        let had = if needs_node_ports(old) { node_ports(old) } else { Vec::new() };
        if needs_node_ports(service) {
            let allocate = allocates_ports(service);
            let mut ports = Port::all(service);
            for at in 0..ports.len() {
                let node = ports[at].node;
                if node == 0 && allocate {
                    ports[at].node = self.draw_port()?;
                } else if node != 0 && !had.contains(&node) && !ports[..at].iter().any(|before| before.node == node) {
                    self.open(at, node)?;
                }
            }
            Port::write(service, &ports);
        }
        let has = if needs_node_ports(service) { node_ports(service) } else { Vec::new() };
        let gone: BTreeSet<u16> =
            had.into_iter().filter(|port| !has.contains(port)).filter_map(|port| u16::try_from(port).ok()).collect();
        self.plan.releases.extend(gone.into_iter().map(Claim::Port));
        Ok(())
    }

    fn health_check(&mut self, service: &mut Value, old: Option<&Value>) -> Result<(), Refusal> {
        let needed = old.is_some_and(needs_health_check);
        match (needed, needs_health_check(service)) {
            (false, true) => {
                let asked = health_port(service);
                let port = if asked == 0 {
                    self.draw_port().map_err(|_| {
                        Refusal::Internal("failed to allocate a HealthCheck NodePort 0: range is full".to_owned())
                    })?
                } else {
                    self.take(asked).map_err(|why| {
                        Refusal::Internal(format!("failed to allocate requested HealthCheck NodePort {asked}: {why}"))
                    })?
                };
                if let Some(spec) = spec_mut(service) {
                    spec.insert("healthCheckNodePort", port);
                }
            }
            (true, false) => {
                let port = old.map(health_port).and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
                self.plan.releases.extend(port.map(Claim::Port));
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, at: usize, node: i64) -> Result<i64, Refusal> {
        self.take(node).map_err(|why| {
            let spec = Path::of("spec");
            let ports = spec.field("ports");
            let port = ports.index(at);
            Refusal::Invalid(vec![Error::invalid(&port.field("nodePort"), node, why)])
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

    fn draw_port(&mut self) -> Result<i64, Refusal> {
        if self.rehearses {
            let port = self.ports.last().map_or(REHEARSED_PORT, |last| last.saturating_add(1));
            self.ports.insert(port);
            return Ok(port.into());
        }
        let (taken, own) = (self.taken, &self.ports);
        let is_free = |port: u16| !own.contains(&port) && taken.port(port).is_none();
        let port = bands::draw_port(&self.config.node_ports, is_free, &mut self.draw)
            .ok_or_else(|| Refusal::Internal("failed to allocate a nodePort: range is full".to_owned()))?;
        self.claim_port(port);
        Ok(port.into())
    }

    fn claim_port(&mut self, port: u16) {
        self.ports.insert(port);
        self.plan.claims.push(Claim::Port(port));
    }
}

/// A port of a service with its node port, 0 if it has none.
#[derive(Clone, Copy)]
struct Port {
    number: i64,
    node: i64,
}

impl Port {
    fn all(service: &Value) -> Vec<Self> {
        let ports = service.at(&["spec", "ports"]).and_then(Value::as_array).unwrap_or_default();
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

/// Whether ports that have no node port get one.
fn allocates_ports(service: &Value) -> bool {
    let wanted = service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool);
    text(service, "type") == "NodePort" || wanted.unwrap_or(true)
}

#[cfg(test)]
mod tests;
