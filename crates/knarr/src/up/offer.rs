//! Allocatable resources of a node, if they are less than the host has.

use std::path::Path;

use ::kubelet::node::machine::Machine;
use anyhow::{Context, Result, ensure};
use apimachinery::quantity::{Format, Quantity};
use clap::Args;

/// File in a node's data directory with its allocatable resources.
const FILE: &str = "offer";

/// Allocatable resources of a node.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// CPU that a node offers to pods, such as 2 or 500m [default: all CPUs of the host]. Several nodes on one host
    /// share its CPUs; without this flag, each of them offers all of them.
    #[arg(long, value_name = "QUANTITY")]
    pub node_cpu: Option<Quantity>,
    /// Memory that a node offers to pods, such as 4Gi [default: all memory of the host].
    #[arg(long, value_name = "QUANTITY")]
    pub node_memory: Option<Quantity>,
}

impl Offer {
    /// Rejects more than the host has, and zero.
    pub(crate) fn check(&self) -> Result<()> {
        let machine = Machine::read(Path::new("/"));
        let cpus = Quantity::new(machine.cpus, Format::DecimalSI);
        let memory = Quantity::new(machine.memory_bytes, Format::BinarySI);
        for (flag, offered, there) in [("--node-cpu", self.node_cpu, cpus), ("--node-memory", self.node_memory, memory)]
        {
            let Some(offered) = offered else { continue };
            ensure!(!offered.is_negative() && !offered.is_zero(), "{flag} {offered}: must be greater than 0");
            ensure!(offered <= there, "{flag} {offered}: this host has only {there}");
        }
        Ok(())
    }

    /// Returns the kubelet's reservation that results in these allocatable resources, or `None` if everything is
    /// offered. `eviction_bytes` is the eviction threshold, which the kubelet subtracts too.
    pub(crate) fn reserved(&self, machine: &Machine, eviction_bytes: i64) -> Option<String> {
        let cpu = self.node_cpu.map(|offered| {
            let reserved = machine.cpus.saturating_mul(1000).saturating_sub(offered.milli_value()).max(0);
            format!("cpu={reserved}m")
        });
        let memory = self.node_memory.map(|offered| {
            let reserved = machine.memory_bytes.saturating_sub(offered.value()).saturating_sub(eviction_bytes).max(0);
            format!("memory={reserved}")
        });
        let parts: Vec<String> = cpu.into_iter().chain(memory).collect();
        (!parts.is_empty()).then(|| parts.join(","))
    }

    /// Returns the equivalent flags of `knarr agent`.
    pub(crate) fn flags(&self) -> Vec<String> {
        let cpu = self.node_cpu.map(|cpu| format!("--node-cpu={cpu}"));
        cpu.into_iter().chain(self.node_memory.map(|memory| format!("--node-memory={memory}"))).collect()
    }

    /// Stores the resources in a node's data directory.
    pub(crate) fn keep(&self, data_dir: &Path) -> Result<()> {
        let file = data_dir.join(FILE);
        let text = self.flags().join("\n");
        sys::replace_file(&file, text.as_bytes(), 0o600).with_context(|| format!("failed to write {}", file.display()))
    }

    /// Reads the stored resources of a node, if any.
    pub(crate) fn load(data_dir: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(data_dir.join(FILE)).ok()?;
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        Some(Self { node_cpu: value("--node-cpu="), node_memory: value("--node-memory=") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(cpu: &str, memory: &str) -> Offer {
        Offer { node_cpu: cpu.parse().ok(), node_memory: memory.parse().ok() }
    }

    #[test]
    fn node_reserves_resources_that_it_does_not_offer() {
        let machine = Machine { cpus: 4, memory_bytes: 8 << 30, ..Machine::default() };
        let check = |cpu: &str, memory: &str, expect: Option<&str>| {
            assert_eq!(offer(cpu, memory).reserved(&machine, 100 << 20).as_deref(), expect, "{cpu} {memory}");
        };
        check("", "", None);
        check("1500m", "", Some("cpu=2500m"));
        check("", "1Gi", Some("memory=7411335168"));
        check("4", "8Gi", Some("cpu=0m,memory=0"));
    }

    #[test]
    fn node_resources_are_stored() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Offer::load(dir.path()), None);
        for expected in [offer("", ""), offer("500m", "1Gi")] {
            expected.keep(dir.path()).unwrap();
            assert_eq!(Offer::load(dir.path()), Some(expected));
        }
    }

    #[test]
    fn more_than_the_host_has_is_rejected() {
        assert!(offer("", "").check().is_ok() && offer("1m", "1Mi").check().is_ok());
        for (cpu, memory, expect) in
            [("100000", "", "--node-cpu"), ("", "1Ei", "--node-memory"), ("0", "", "greater than 0")]
        {
            let error = offer(cpu, memory).check().unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
