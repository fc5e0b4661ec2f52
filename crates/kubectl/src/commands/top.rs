//! `kubectl top`: the measured CPU and memory of nodes and pods.

mod node;
mod pod;

use std::str::FromStr;

use apimachinery::Value;
use apimachinery::quantity::Quantity;

use crate::command::Command;
use crate::command::Group;
use crate::{Context, Failure};

pub static COMMAND: Command = Command {
    name: "top",
    group: Group::ClusterManagement,
    summary: "Display resource (CPU/memory) usage",
    description: "Display resource (CPU/memory) usage.

 This command provides a view of recent resource consumption for nodes and pods. It fetches metrics from the Metrics Server, which aggregates this data from the kubelet on each node. The Metrics Server must be installed and running in the cluster for this command to work.

 The metrics shown are specifically optimized for Kubernetes autoscaling decisions, such as those made by the Horizontal Pod Autoscaler (HPA) and Vertical Pod Autoscaler (VPA). Because of this, the values may not match those from standard OS tools like 'top', as the metrics are designed to provide a stable signal for autoscalers rather than for pinpoint accuracy.

 FAQ for Metrics Server: https://github.com/kubernetes-sigs/metrics-server/blob/master/FAQ.md

 When to use this command:

  *  For on-the-fly spot-checks of resource usage (e.g. identify which pods are consuming the most resources at a glance, or get a quick sense of the load on your nodes)
  *  Understand current resource consumption patterns
  *  Validate the behavior of your HPA or VPA configurations by seeing the metrics they use for scaling decisions.

 It is not intended to be a replacement for full-featured monitoring solutions. Its primary design goal is to provide a low-overhead signal for autoscalers, not to be a perfectly accurate monitoring tool. For high-accuracy reporting, historical analysis, dashboarding, or alerting, you should use a dedicated monitoring solution.",
    usage: "kubectl top [flags] [options]",
    commands: &[&node::COMMAND, &pod::COMMAND],
    ..Command::EMPTY
};

/// A measured resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Cpu,
    Memory,
    Swap,
}

impl Measure {
    /// Returns the columns of a table.
    const fn shown(with_swap: bool) -> &'static [Self] {
        if with_swap { &[Self::Cpu, Self::Memory, Self::Swap] } else { &[Self::Cpu, Self::Memory] }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Swap => "swap",
        }
    }

    const fn column(self) -> &'static str {
        match self {
            Self::Cpu => "CPU(cores)",
            Self::Memory => "MEMORY(bytes)",
            Self::Swap => "SWAP(bytes)",
        }
    }

    const fn percent_column(self) -> &'static str {
        match self {
            Self::Cpu => "CPU(%)",
            Self::Memory => "MEMORY(%)",
            Self::Swap => "SWAP(%)",
        }
    }

    fn format(self, quantity: Quantity) -> String {
        match self {
            Self::Cpu => format!("{}m", quantity.milli_value()),
            Self::Memory | Self::Swap => format!("{}Mi", quantity.value() / (1024 * 1024)),
        }
    }

    /// Returns the quantity in a list of resources; zero if it is missing.
    fn of(self, resources: Option<&Value>) -> Quantity {
        self.find(resources).unwrap_or_default()
    }

    fn find(self, resources: Option<&Value>) -> Option<Quantity> {
        let text = resources?.get(self.name())?.as_str()?;
        Quantity::from_str(text).ok()
    }
}

/// Returns a key that sorts the largest usage first.
fn descending(sort_by: &str, quantity: impl Fn(Measure) -> Quantity) -> std::cmp::Reverse<i64> {
    std::cmp::Reverse(match sort_by {
        "cpu" => quantity(Measure::Cpu).milli_value(),
        "memory" => quantity(Measure::Memory).value(),
        _ => 0,
    })
}

/// Fails unless the server has the metrics API.
async fn require_metrics(context: &Context) -> Result<(), Failure> {
    let groups = context.mapper().await?.groups().await?;
    let known =
        groups.iter().any(|group| group.name == "metrics.k8s.io" && group.versions.iter().any(|it| it == "v1beta1"));
    if known { Ok(()) } else { Err(Failure::new("Metrics API not available")) }
}

fn check_sort(sort_by: &str) -> Result<(), Failure> {
    match sort_by {
        "" | "cpu" | "memory" => Ok(()),
        _ => Err(Failure::new("--sort-by accepts only cpu or memory")),
    }
}
