//! `kubectl top`: the measured CPU and memory of nodes and pods.

mod node;
mod pod;

use std::str::FromStr;

use apimachinery::quantity::Quantity;
use apimachinery::{Value, labels};

use crate::command::Command;
use crate::command::Group;
use crate::mapper::ApiGroup;
use crate::{Context, Failure};

pub(super) static COMMAND: Command = Command {
    name: "top",
    group: Group::ClusterManagement,
    summary: "Show the CPU and memory usage of nodes or pods",
    description: "Show how much CPU and memory nodes or pods used recently. The values come from the Metrics API, \
         so a provider such as Metrics Server must run in the cluster. They serve autoscaling and can differ from \
         what tools of the operating system report; use a monitoring system for precise values and history.",
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
    const fn columns(with_swap: bool) -> &'static [Self] {
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
    let mapper = context.mapper().await?;
    if has_metrics(&mapper.groups().await?) {
        return Ok(());
    }
    // The API may be newer than the cache.
    mapper.refresh().await?;
    if has_metrics(&mapper.groups().await?) { Ok(()) } else { Err(Failure::new("Metrics API not available")) }
}

fn has_metrics(groups: &[ApiGroup]) -> bool {
    groups.iter().any(|group| group.name == "metrics.k8s.io" && group.versions.iter().any(|it| it == "v1beta1"))
}

/// Fails if a label selector is malformed.
fn check_labels(selector: &str) -> Result<(), Failure> {
    labels::Selector::parse(selector).map(drop).map_err(|error| Failure::new(error.to_string()))
}

fn check_sort(sort_by: &str) -> Result<(), Failure> {
    match sort_by {
        "" | "cpu" | "memory" => Ok(()),
        _ => Err(Failure::new("--sort-by accepts only cpu or memory")),
    }
}
