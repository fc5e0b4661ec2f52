//! `kubectl top node`.

use std::io::Write;

use apimachinery::meta::Meta;
use apimachinery::quantity::{Format, Quantity};
use apimachinery::{Resource, Value};
use client::{ListOptions, Target};

use super::{Measure, check_labels, check_sort, descending, require_metrics};
use crate::command::{Command, Flag};
use crate::print::tabwriter::TabWriter;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "node",
    aliases: &["nodes", "no"],
    summary: "Show the CPU and memory usage of nodes",
    description: "Show how much CPU and memory nodes use, as amounts and as percentages of what they can allocate \
         to pods.",
    examples: "  # Show all nodes, those with the highest memory usage first
  kubectl top node --sort-by=memory

  # Show the node node-1, in percent of its whole capacity
  kubectl top node node-1 --show-capacity

  # Show the nodes with the label pool=batch, with their swap usage
  kubectl top node -l pool=batch --show-swap",
    usage: "kubectl top node [NAME | -l label] [options]",
    flags: &[
        flags::SELECTOR,
        &[
            Flag::bool("no-headers", "Leave out the header of the table."),
            Flag::bool(
                "show-capacity",
                "Compute percentages from the capacity of the nodes instead of their allocatable resources.",
            ),
            Flag::bool("show-swap", "Also show the usage of swap memory."),
            Flag::text("sort-by", "", "Sort by usage, highest first: cpu or memory."),
            Flag::bool("use-protocol-buffers", "Accepted for compatibility; metrics are requested as JSON.")
                .default("true"),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");
const METRICS: Resource = Resource::cluster("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics");
const UNKNOWN: &str = "<unknown>";

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let (sort_by, selector) = (invocation.text("sort-by"), invocation.text("selector"));
    let name = match invocation.args.as_slice() {
        [] => "",
        [name] => name.as_str(),
        _ => return Err(Failure::usage(&invocation.name(), "node [NAME | -l label]")),
    };
    check_sort(sort_by)?;
    if !name.is_empty() && !selector.is_empty() {
        return Err(Failure::new("only one of NAME or --selector can be provided"));
    }
    check_labels(selector)?;
    require_metrics(context).await?;
    let mut metrics = read(context, &METRICS, name, selector).await?;
    if metrics.is_empty() {
        return Err(Failure::new("metrics not available yet"));
    }
    let nodes = read(context, &NODES, name, selector).await?;
    metrics.sort_by_cached_key(|item| {
        let usage = |measure: Measure| measure.of(item.get("usage"));
        let name = if sort_by.is_empty() { Meta::of(item).name().to_owned() } else { String::new() };
        (descending(sort_by, usage), name)
    });
    let text = table(invocation, &metrics, &nodes);
    context.out().write_all(TabWriter::for_tables().format(&text).as_bytes())?;
    Ok(())
}

async fn read(context: &Context, resource: &Resource, name: &str, selector: &str) -> Result<Vec<Value>, Failure> {
    let client = context.client()?;
    if !name.is_empty() {
        return Ok(vec![client.get(&Target::named(resource, "", name)).await?]);
    }
    let options = ListOptions { label_selector: selector.to_owned(), ..ListOptions::default() };
    Ok(client.list_all(&Target::all(resource), &options).await?.items)
}

fn table(invocation: &Invocation, metrics: &[Value], nodes: &[Value]) -> String {
    let measures = Measure::columns(invocation.bool("show-swap"));
    let field = if invocation.bool("show-capacity") { "capacity" } else { "allocatable" };
    let mut text = String::new();
    if !invocation.bool("no-headers") {
        text.push_str("NAME\t");
        for measure in measures {
            text.push_str(&format!("{}\t{}\t", measure.column(), measure.percent_column()));
        }
        text.push('\n');
    }
    for item in metrics {
        let name = Meta::of(item).name();
        let node = nodes.iter().find(|node| Meta::of(node).name() == name);
        text.push_str(&format!("{name}\t"));
        for measure in measures {
            let used = measure.of(item.get("usage"));
            let available = node.and_then(|node| available(*measure, node, field));
            if *measure == Measure::Swap && node.is_some() && available.is_none() {
                text.push_str(&format!("{UNKNOWN}\t{UNKNOWN}\t"));
                continue;
            }
            text.push_str(&format!("{}\t", measure.format(used)));
            if let Some(available) = available {
                text.push_str(&format!("{}%\t", percent(used, available)));
            }
        }
        text.push('\n');
    }
    for node in nodes {
        let name = Meta::of(node).name();
        if !metrics.iter().any(|item| Meta::of(item).name() == name) {
            text.push_str(&format!("{name}\t{}\n", format!("{UNKNOWN}\t").repeat(2 * measures.len())));
        }
    }
    text
}

fn available(measure: Measure, node: &Value, field: &str) -> Option<Quantity> {
    if measure == Measure::Swap {
        let bytes = node.at(&["status", "nodeInfo", "swap", "capacity"]).and_then(Value::as_int)?;
        return Some(Quantity::new(bytes, Format::BinarySI));
    }
    measure.find(node.at(&["status", field]))
}

fn percent(used: Quantity, available: Quantity) -> i64 {
    if available.is_zero() {
        return 0;
    }
    (used.milli_value() as f64 / available.milli_value() as f64 * 100.0) as i64
}
