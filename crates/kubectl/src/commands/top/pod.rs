//! `kubectl top pod`.

use std::io::Write;

use apimachinery::meta::Meta;
use apimachinery::quantity::Quantity;
use apimachinery::{Resource, Value, fields};
use client::{ListOptions, Target};

use super::{Measure, check_labels, check_sort, descending, require_metrics};
use crate::command::{Command, Flag};
use crate::print::tabwriter::TabWriter;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "pod",
    aliases: &["pods", "po"],
    summary: "Show the CPU and memory usage of pods",
    description: "Show how much CPU and memory pods use. Metrics of a new pod can take a few minutes to appear.",
    examples: "  # Show the pods of the current namespace, those with the highest CPU usage first
  kubectl top pod --sort-by=cpu

  # Show each container of the pod web
  kubectl top pod web --containers

  # Show the pods with the label app=worker, and their total
  kubectl top pod -l app=worker --sum

  # Show the pods of all namespaces, without a header
  kubectl top pod --all-namespaces --no-headers",
    usage: "kubectl top pod [NAME | -l label] [options]",
    flags: &[
        flags::SELECTOR,
        flags::ALL_NAMESPACES,
        &[
            Flag::bool("containers", "Show the usage of each container."),
            Flag::text(
                "field-selector",
                "",
                "Select objects by fields with '=', '==' and '!=', for example --field-selector \
                 status.phase=Running; each type supports only a few fields.",
            ),
            Flag::bool("no-headers", "Leave out the header of the table."),
            Flag::bool("show-swap", "Also show the usage of swap memory."),
            Flag::text("sort-by", "", "Sort by usage, highest first: cpu or memory."),
            Flag::bool("sum", "Add a line with the total usage."),
            // DEVIATION: `kubectl top` requests JSON whether or not `--use-protocol-buffers` is set. The output is the same.
            Flag::bool("use-protocol-buffers", "Accepted for compatibility; metrics are requested as JSON.")
                .default("true"),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
const METRICS: Resource = Resource::namespaced("metrics.k8s.io", "v1beta1", "pods", "PodMetrics");

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let sort_by = invocation.text("sort-by");
    let name = match invocation.args.as_slice() {
        [] => "",
        [name] => name.as_str(),
        _ => return Err(Failure::usage(&invocation.name(), "pod [NAME | -l label]")),
    };
    let selects = !invocation.text("selector").is_empty() || !invocation.text("field-selector").is_empty();
    check_sort(sort_by)?;
    if !name.is_empty() && selects {
        return Err(Failure::new("only one of NAME or selector can be provided"));
    }
    check_labels(invocation.text("selector"))?;
    fields::Selector::parse(invocation.text("field-selector")).map_err(|error| Failure::new(error.to_string()))?;
    require_metrics(context).await?;
    let all = invocation.bool("all-namespaces");
    let namespace = context.namespace()?.name;
    let mut pods = read(context, invocation, &METRICS, if all { "" } else { &namespace }, name).await?;
    if pods.is_empty() {
        if !read(context, invocation, &PODS, &namespace, name).await?.is_empty() {
            return Err(Failure::new("metrics not available yet"));
        }
        if all {
            writeln!(context.err(), "No resources found")?;
        } else {
            writeln!(context.err(), "No resources found in {namespace} namespace.")?;
        }
        return Ok(());
    }
    pods.sort_by_cached_key(|pod| {
        let meta = Meta::of(pod);
        let namespace = if all { meta.namespace() } else { "" };
        let key = if sort_by.is_empty() { (namespace.to_owned(), meta.name().to_owned()) } else { Default::default() };
        (descending(sort_by, |measure| usage(pod, measure)), key)
    });
    let text = table(invocation, &pods);
    context.out().write_all(TabWriter::for_tables().format(&text).as_bytes())?;
    Ok(())
}

async fn read(
    context: &Context,
    invocation: &Invocation,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Vec<Value>, Failure> {
    let client = context.client()?;
    if !name.is_empty() {
        return Ok(vec![client.get(&Target::named(resource, namespace, name)).await?]);
    }
    let options = ListOptions {
        label_selector: invocation.text("selector").to_owned(),
        field_selector: invocation.text("field-selector").to_owned(),
        ..ListOptions::default()
    };
    Ok(client.list_all(&Target::within(resource, namespace), &options).await?.items)
}

fn containers(pod: &Value) -> &[Value] {
    pod.get("containers").and_then(Value::as_array).unwrap_or_default()
}

/// Returns the usage of all containers together.
fn usage(pod: &Value, measure: Measure) -> Quantity {
    containers(pod).iter().fold(Quantity::default(), |sum, container| sum.add(measure.of(container.get("usage"))))
}

fn table(invocation: &Invocation, pods: &[Value]) -> String {
    let (all, by_container) = (invocation.bool("all-namespaces"), invocation.bool("containers"));
    let measures = Measure::columns(invocation.bool("show-swap"));
    let mut text = String::new();
    let mut width = measures.len() + 1;
    if !invocation.bool("no-headers") {
        width += usize::from(all) + usize::from(by_container);
        text.push_str(if all { "NAMESPACE\t" } else { "" });
        text.push_str(if by_container { "POD\t" } else { "" });
        text.push_str("NAME\t");
        text.extend(measures.iter().map(|measure| format!("{}\t", measure.column())));
        text.push('\n');
    }
    for pod in pods {
        let meta = Meta::of(pod);
        let namespace = if all { format!("{}\t", meta.namespace()) } else { String::new() };
        if !by_container {
            text.push_str(&format!("{namespace}{}\t", meta.name()));
            text.extend(measures.iter().map(|measure| format!("{}\t", measure.format(usage(pod, *measure)))));
            text.push('\n');
            continue;
        }
        let sort_by = invocation.text("sort-by");
        let mut containers = containers(pod).to_vec();
        containers.sort_by_cached_key(|container| {
            let name = container.str_at(&["name"]).unwrap_or_default();
            let name = if sort_by.is_empty() { name.to_owned() } else { String::new() };
            (descending(sort_by, |measure| measure.of(container.get("usage"))), name)
        });
        for container in &containers {
            let name = container.str_at(&["name"]).unwrap_or_default();
            text.push_str(&format!("{namespace}{}\t{name}\t", meta.name()));
            let cell = |measure: &Measure| format!("{}\t", measure.format(measure.of(container.get("usage"))));
            text.extend(measures.iter().map(cell));
            text.push('\n');
        }
    }
    if invocation.bool("sum") {
        text.push_str(&sum(pods, measures, width));
    }
    text
}

fn sum(pods: &[Value], measures: &[Measure], width: usize) -> String {
    let mut text = "\t".repeat(width.saturating_sub(2)) + "________\t________\t\n";
    text.push_str(&"\t".repeat(width.saturating_sub(3)));
    text.push('\t');
    for measure in measures {
        let total = pods.iter().fold(Quantity::default(), |sum, pod| sum.add(usage(pod, *measure)));
        text.push_str(&format!("{}\t", measure.format(total)));
    }
    text.push('\n');
    text
}
