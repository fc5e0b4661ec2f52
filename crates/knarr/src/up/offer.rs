//! What a node offers to pods, where that is less than the machine has.

use std::path::Path;

use ::kubelet::node::machine::Machine;
use anyhow::{Context, Result, ensure};
use clap::Args;
use machinery::quantity::{Format, Quantity};

/// The file in a node's directory that says what it offers.
const FILE: &str = "offer";

/// What a node offers.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// CPU that a node offers to pods, such as 2 or 500m [default: all that the machine has]. The nodes of one machine share its CPUs: give
    /// each its part, or they promise them several times.
    #[arg(long, value_name = "QUANTITY")]
    pub node_cpu: Option<Quantity>,
    /// Memory that a node offers to pods, such as 4Gi [default: all that the machine has].
    #[arg(long, value_name = "QUANTITY")]
    pub node_memory: Option<Quantity>,
}

impl Offer {
    /// Refuses what the machine does not have.
    pub fn check(&self) -> Result<()> {
        let machine = Machine::read(Path::new("/"));
        let cpus = Quantity::new(machine.cpus, Format::DecimalSI);
        let memory = Quantity::new(machine.memory_bytes, Format::BinarySI);
        for (flag, offered, there) in [("--node-cpu", self.node_cpu, cpus), ("--node-memory", self.node_memory, memory)]
        {
            let Some(offered) = offered else { continue };
            ensure!(!offered.is_negative() && !offered.is_zero(), "{flag} {offered}: a node must offer something");
            ensure!(offered <= there, "{flag} {offered}: this machine has only {there}");
        }
        Ok(())
    }

    /// What the kubelet is to reserve so that it offers this; nothing if it offers everything. `kept_bytes` of memory it keeps in any case.
    pub fn reserved(&self, machine: &Machine, kept_bytes: i64) -> Option<String> {
        let cpu = self.node_cpu.map(|offered| {
            let reserved = machine.cpus.saturating_mul(1000).saturating_sub(offered.milli_value()).max(0);
            format!("cpu={reserved}m")
        });
        let memory = self.node_memory.map(|offered| {
            let reserved = machine.memory_bytes.saturating_sub(offered.value()).saturating_sub(kept_bytes).max(0);
            format!("memory={reserved}")
        });
        let parts: Vec<String> = cpu.into_iter().chain(memory).collect();
        (!parts.is_empty()).then(|| parts.join(","))
    }

    /// The flags of an agent that say this.
    pub fn flags(&self) -> Vec<String> {
        let cpu = self.node_cpu.map(|cpu| format!("--node-cpu={cpu}"));
        cpu.into_iter().chain(self.node_memory.map(|memory| format!("--node-memory={memory}"))).collect()
    }

    /// Keeps it in a node's directory.
    pub fn keep(&self, data_dir: &Path) -> Result<()> {
        let file = data_dir.join(FILE);
        let text = self.flags().join("\n");
        sys::replace_file(&file, text.as_bytes(), 0o600)
            .with_context(|| format!("{} cannot be written", file.display()))
    }

    /// What was kept in a node's directory, if anything.
    pub fn kept(data_dir: &Path) -> Option<Self> {
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
    fn a_node_reserves_what_it_does_not_offer() {
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
    fn what_a_node_offers_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Offer::kept(dir.path()), None);
        for kept in [offer("", ""), offer("500m", "1Gi")] {
            kept.keep(dir.path()).unwrap();
            assert_eq!(Offer::kept(dir.path()), Some(kept));
        }
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        assert!(offer("", "").check().is_ok() && offer("1m", "1Mi").check().is_ok());
        for (cpu, memory, expect) in
            [("100000", "", "--node-cpu"), ("", "1Ei", "--node-memory"), ("0", "", "something")]
        {
            let refused = offer(cpu, memory).check().unwrap_err().to_string();
            assert!(refused.contains(expect), "{refused}");
        }
    }
}
