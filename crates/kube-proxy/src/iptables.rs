//! The iptables backend: upstream's chains, written by `iptables-restore` in one transaction per address family.
//!
//! ```text
//! PREROUTING, OUTPUT ──> KUBE-SERVICES ──> KUBE-SVC-… (any endpoint), KUBE-SVL-… (this node) ──> KUBE-SEP-… ──> DNAT
//!                             │  └──> KUBE-FW-… (source ranges) ──> KUBE-EXT-… (external) ──> KUBE-SVC-…, KUBE-SVL-…
//!                             └─last─> KUBE-NODEPORTS ──> KUBE-EXT-…
//! POSTROUTING ──> KUBE-POSTROUTING: mark ──> masquerade
//! ```
//!
//! The chains of a service are written when the service changes. The chains that lead to them are always rewritten,
//! because iptables cannot otherwise keep their order. Leftovers of an earlier run are listed once, before all rules
//! are replaced.

mod chains;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use netlink::Protocol;
use netlink::namespace::set_sysctl;
use netlink::nft::Family;

use crate::service_state::{Backend, Changes, Frontend};
use crate::settings::Settings;

use chains::{Chains, FILTER_BASE, FIREWALL, JUMPS, NAT_BASE, PortFrontends, is_own_chain};
pub use program::Error;
use program::{is_there, restore, save};

/// Sysctl that allows packets with loopback addresses on other interfaces.
const LOCALNET: &str = "ipv4/conf/all/route_localnet";
const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// Writes rules and tracks the written state.
#[derive(Debug, Default)]
pub struct Writer {
    settings: Settings,
    ports: BTreeMap<Family, Ports>,
    /// Last written chains of the filter table: most changes leave them unchanged.
    filter: BTreeMap<Family, String>,
}

/// Service ports with their frontends; the frontends of a port share chains.
type Ports = BTreeMap<(Arc<str>, Protocol), PortFrontends>;

/// Existing rules in the kernel, from other programs or an earlier run.
#[derive(Debug, Default)]
struct ExistingRules {
    /// Service chains in the table `nat`.
    chains: BTreeSet<String>,
    /// `nat` and `filter`: output of `iptables-save` for each table.
    nat: String,
    filter: String,
}

impl Writer {
    /// Replaces all rules, regardless of the existing state.
    pub fn everything(&mut self, settings: Settings, changes: &Changes) -> Result<(), Error> {
        *self = Self { settings, ..Self::default() };
        for family in FAMILIES.into_iter().filter(|family| is_there(*family)) {
            let found = ExistingRules::read(family)?;
            let (chains, removed) = self.take(family, changes);
            let stale =
                found.chains.iter().filter(|name| !chains.contains_key(*name)).cloned().chain(removed).collect();
            let text = self.nat(family, &chains, &stale, &found.missing_jumps("nat"));
            let filter = self.filter(family);
            let jumps = found.missing_jumps("filter");
            restore(family, &format!("{text}{}", table("filter", &filter, &jumps)))?;
            self.filter.insert(family, filter);
        }
        let here = self.settings.every_address || self.settings.node_addresses.iter().any(IpAddr::is_loopback);
        if here && self.settings.localhost {
            // Packets from loopback addresses may be sent to pods, now that the firewall rule blocks other hosts.
            set_sysctl(LOCALNET, "1").map_err(Error::Localhost)?;
        }
        Ok(())
    }

    /// Applies a change.
    pub fn change(&mut self, changes: &Changes) -> Result<(), Error> {
        for family in FAMILIES.into_iter().filter(|family| is_there(*family)) {
            if !changes.frontends.keys().any(|frontend| Family::of(frontend.address) == family) {
                continue;
            }
            let (chains, removed) = self.take(family, changes);
            let mut text = self.nat(family, &chains, &removed, "");
            let filter = self.filter(family);
            if self.filter.get(&family) != Some(&filter) {
                text.push_str(&table("filter", &filter, ""));
            }
            restore(family, &text)?;
            self.filter.insert(family, filter);
        }
        Ok(())
    }

    /// Records a change. Returns the chains of the affected ports and the names of deleted chains.
    fn take(&mut self, family: Family, changes: &Changes) -> (Chains, BTreeSet<String>) {
        let ports = self.ports.entry(family).or_default();
        let settings = &self.settings;
        let of_family = || changes.frontends.iter().filter(|(frontend, _)| Family::of(frontend.address) == family);
        let port = |frontend: &Frontend, backend: &Backend| (Arc::clone(&backend.name), frontend.protocol);
        let touched: BTreeSet<(Arc<str>, Protocol)> = of_family()
            .flat_map(|(frontend, (old, new))| [old, new].into_iter().flatten().map(|it| port(frontend, it)))
            .collect();
        let chains = |ports: &Ports| -> Chains {
            let known = touched.iter().filter_map(|port| ports.get_key_value(port));
            known.flat_map(|(port, frontends)| chains::of_port(port, frontends, family, settings)).collect()
        };
        let before = chains(ports);
        for (frontend, (old, new)) in of_family() {
            if let Some(frontends) = old.as_ref().and_then(|old| ports.get_mut(&port(frontend, old))) {
                frontends.remove(frontend);
            }
            if let Some(new) = new {
                ports.entry(port(frontend, new)).or_default().insert(*frontend, new.clone());
            }
        }
        ports.retain(|_, frontends| !frontends.is_empty());
        let now = chains(ports);
        let removed = before.into_keys().filter(|name| !now.contains_key(name)).collect();
        (now, removed)
    }

    /// Formats the table `nat`: rewrites the base chains and these service chains, deletes the chains in `removed`.
    fn nat(&self, family: Family, chains: &Chains, removed: &BTreeSet<String>, jumps: &str) -> String {
        let mut text = String::from("*nat\n");
        for name in NAT_BASE.iter().copied().chain(chains.keys().map(String::as_str)) {
            declare(&mut text, name);
        }
        for name in removed {
            declare(&mut text, name);
        }
        text.push_str(jumps);
        chains::nat_base(&mut text, family, &self.settings);
        let none = Ports::new();
        for ((name, protocol), frontends) in self.ports.get(&family).unwrap_or(&none) {
            chains::nat_entrances(&mut text, name, *protocol, frontends);
        }
        chains::nat_node_ports(&mut text, family, &self.settings);
        for (name, rules) in chains {
            for rule in rules {
                let _ = writeln!(text, "-A {name} {rule}");
            }
        }
        for name in removed {
            let _ = writeln!(text, "-X {name}");
        }
        text.push_str("COMMIT\n");
        text
    }

    /// Formats the rules of the table `filter`.
    fn filter(&self, family: Family) -> String {
        let mut text = String::new();
        let none = Ports::new();
        for ((name, protocol), frontends) in self.ports.get(&family).unwrap_or(&none) {
            chains::filter_entrances(&mut text, name, *protocol, frontends);
        }
        chains::filter_base(&mut text, family, self.settings.mark);
        text
    }
}

/// Checks whether iptables can be used.
pub fn check() -> Result<(), Error> {
    save(Family::Ip, "nat").map(drop)
}

/// Removes all rules; does nothing if iptables is not installed.
pub fn clean_up() -> Result<(), Error> {
    for family in FAMILIES.into_iter().filter(|family| is_there(*family)) {
        for table in ["nat", "filter"] {
            let saved = match save(family, table) {
                Ok(saved) => saved,
                Err(Error::NotInstalled { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let text = removal(table, &saved);
            if text.is_empty() {
                continue;
            }
            if family == Family::Ip && declared(&saved).any(|name| name == FIREWALL) {
                // Must be first: afterwards no firewall rule protects the loopback interface.
                set_sysctl(LOCALNET, "0").map_err(Error::Localhost)?;
            }
            restore(family, &text)?;
        }
    }
    Ok(())
}

/// Formats the removal of all kube-proxy chains from a table; empty if the table has none.
fn removal(table: &str, saved: &str) -> String {
    // Upstream's kubelet uses the same firewall chain; its canary chain shows that it is running.
    let kubelets = declared(saved).any(|name| name == "KUBE-KUBELET-CANARY");
    let is_removable = |name: &str| is_own_chain(name) && !(kubelets && name == FIREWALL);
    let chains: Vec<&str> = declared(saved).filter(|name| is_removable(name)).collect();
    if chains.is_empty() {
        return String::new();
    }
    let mut text = format!("*{table}\n");
    chains.iter().for_each(|name| declare(&mut text, name));
    let jumps = saved.lines().filter_map(|line| line.strip_prefix("-A "));
    for jump in jumps.filter(|line| leads_to(line).is_some_and(is_removable) && !line.starts_with("KUBE-")) {
        let _ = writeln!(text, "-D {jump}");
    }
    for name in chains {
        let _ = writeln!(text, "-X {name}");
    }
    text.push_str("COMMIT\n");
    text
}

/// Returns the chains declared in the output of `iptables-save`.
fn declared(saved: &str) -> impl Iterator<Item = &str> {
    saved.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next())
}

/// Returns the target chain of a rule.
fn leads_to(rule: &str) -> Option<&str> {
    rule.rsplit_once(" -j ").and_then(|(_, rest)| rest.split(' ').next())
}

fn declare(text: &mut String, chain: &str) {
    let _ = writeln!(text, ":{chain} - [0:0]");
}

fn table(name: &str, rules: &str, jumps: &str) -> String {
    let mut text = format!("*{name}\n");
    FILTER_BASE.iter().for_each(|chain| declare(&mut text, chain));
    format!("{text}{jumps}{rules}COMMIT\n")
}

impl ExistingRules {
    fn read(family: Family) -> Result<Self, Error> {
        let (nat, filter) = (save(family, "nat")?, save(family, "filter")?);
        let base = |name: &&str| NAT_BASE.contains(name);
        let chains = declared(&nat).filter(|name| is_own_chain(name) && !base(name)).map(str::to_owned).collect();
        Ok(Self { chains, nat, filter })
    }

    /// Formats the jumps from built-in chains that do not exist yet.
    fn missing_jumps(&self, table: &str) -> String {
        let saved = if table == "nat" { &self.nat } else { &self.filter };
        let mut text = String::new();
        for jump in JUMPS.iter().filter(|jump| jump.table == table) {
            let from = format!("-A {} ", jump.from);
            let there = saved.lines().any(|line| line.starts_with(&from) && leads_to(line) == Some(jump.to));
            if !there {
                let _ = writeln!(text, "-I {} 1 {}-j {}", jump.from, jump.matching, jump.to);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests;
