//! `kubectl autoscale`: creates a HorizontalPodAutoscaler for a workload.

use std::borrow::Cow;

use apimachinery::quantity::{self, Quantity};
use apimachinery::{Object, Resource, Value, value};
use client::Target;

use crate::changes::{self, DryRun, Form, RECORD, Results};
use crate::command::{Command, Flag, Group};
use crate::generate::last_applied;
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, Namespace, flags};

pub(super) static COMMAND: Command = Command {
    name: "autoscale",
    group: Group::Deploy,
    summary: "Create an autoscaler for a workload",
    description: "Create a HorizontalPodAutoscaler that adjusts the number of pods of a Deployment, ReplicaSet, \
        StatefulSet, or ReplicationController to its load. If the server does not accept the autoscaler in \
        autoscaling/v2, autoscaling/v1 is tried.",
    examples: "  # Keep web between 2 and 10 pods, with the default metrics of the server
  kubectl autoscale deployment web --min=2 --max=10

  # Aim at 75% of the CPU that the pods request
  kubectl autoscale statefulset/db --max=6 --cpu=75%

  # Aim at 400 millicores and 256 MiB per pod
  kubectl autoscale deployment worker --min=1 --max=20 --cpu=400m --memory=256Mi

  # Print the autoscaler without creating it
  kubectl autoscale deployment web --max=4 --name=web-scaler --dry-run=client -o yaml",
    usage: "kubectl autoscale (-f FILENAME | TYPE NAME | TYPE/NAME) [--min=MINPODS] --max=MAXPODS [--cpu=CPU] [--memory=MEMORY] [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::DIRECTORY,
        flags::SAVE_CONFIG,
        &[
            Flag::int32("min", "-1", "Smallest number of pods; without it, or if negative, the server chooses."),
            Flag::int32("max", "-1", "Largest number of pods (required)."),
            Flag::int32(
                "cpu-percent",
                "-1",
                "Average CPU utilization to aim at, in percent of the requests; without it, or if negative, the \
                    server chooses.",
            )
            .deprecated(
                "Use --cpu with percentage or resource quantity format (e.g., '70%' for utilization or '500m' for \
                    milliCPU).",
            ),
            Flag::text(
                "cpu",
                "",
                "Average CPU usage to aim at: a percentage of the requests such as 70%, or a quantity per pod \
                    such as 500m; a plain number counts in millicores.",
            ),
            Flag::text(
                "memory",
                "",
                "Average memory usage to aim at: a percentage of the requests such as 60%, or a quantity per \
                    pod such as 200Mi or 1Gi; a plain number counts in mebibytes.",
            ),
            Flag::text("name", "", "Name of the autoscaler; by default that of the workload."),
            flags::filename("Files, directories, or URLs with the workloads to autoscale."),
            flags::field_manager("kubectl-autoscale"),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

static AUTOSCALERS: Resource =
    Resource::namespaced("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler");
static OLD_AUTOSCALERS: Resource =
    Resource::namespaced("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler");

/// The target of a resource metric.
#[derive(Clone, Debug, PartialEq)]
enum Goal {
    /// A percentage of the requests.
    Utilization(i64),
    /// An amount per pod.
    Amount(String),
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    changes::require(invocation, &["max"])?;
    let dry_run = DryRun::of(context, invocation)?;
    let goals = check(invocation)?;
    let namespace = context.namespace()?;
    let builder =
        Builder::new(context).namespace(&namespace).filenames(invocation).types_or_names(false, &invocation.args);
    let found = builder.found().await?;
    let mut failures = found.failures;
    let mut count = 0;
    for info in found.infos {
        match autoscale(context, invocation, &info, &goals, &namespace, dry_run).await {
            Ok(()) => count += 1,
            Err(failure) => failures.push(failure),
        }
    }
    Failure::all(failures)?;
    if count == 0 { Err(Failure::new("no objects passed to autoscale")) } else { Ok(()) }
}

/// Checks the flags, and returns the resource metrics.
fn check(invocation: &Invocation) -> Result<Vec<(&'static str, Goal)>, Failure> {
    let (min, max) = (invocation.int("min"), invocation.int("max"));
    if max < 1 {
        return Err(Failure::new(format!("--max=MAXPODS is required and must be at least 1, max: {max}")));
    }
    if max < min {
        let problem = "--max=MAXPODS must be larger or equal to --min=MINPODS";
        return Err(Failure::new(format!("{problem}, max: {max}, min: {min}")));
    }
    let percent = invocation.int("cpu-percent");
    if percent > 0 && !invocation.text("cpu").is_empty() {
        return Err(Failure::new("--cpu-percent and --cpu are mutually exclusive"));
    }
    let mut goals = Vec::new();
    if percent > 0 {
        goals.push(("cpu", Goal::Utilization(percent)));
    }
    for resource in ["cpu", "memory"] {
        let text = invocation.text(resource);
        if !text.is_empty() {
            goals.push((resource, Goal::parse(text, resource).map_err(Failure::new)?));
        }
    }
    Ok(goals)
}

async fn autoscale(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    goals: &[(&str, Goal)],
    namespace: &Namespace,
    dry_run: DryRun,
) -> Result<(), Failure> {
    let resource = &info.mapping.resource;
    if !info.mapping.subresources.iter().any(|subresource| subresource == "scale") {
        let name = format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural);
        return Err(Failure::new(format!(
            "cannot autoscale a {}: could not find scale subresource for {name} in discovery information",
            resource.kind
        )));
    }
    let scaler = autoscaler(invocation, info, goals, namespace);
    if create(context, invocation, &AUTOSCALERS, scaler, namespace, dry_run).await.is_ok() {
        return Ok(());
    }
    // As in kubectl, any failure leads to the older version, and the message is not that of the server.
    let incompatible = |reason: &str| {
        let problem = "failed to create autoscaling/v2 HPA and the configuration is incompatible with autoscaling/v1";
        Err(Failure::new(format!("{problem}: {reason}")))
    };
    if invocation.text("cpu").is_empty() {
        return incompatible("empty input");
    }
    let cpu = goals.iter().find(|(resource, _)| *resource == "cpu");
    let is_percent = invocation.int("cpu-percent") >= 0 || matches!(cpu, Some((_, Goal::Utilization(_))));
    if !is_percent || !invocation.text("memory").is_empty() {
        return incompatible("%!w(<nil>)");
    }
    let scaler = old_autoscaler(invocation, info, namespace);
    create(context, invocation, &OLD_AUTOSCALERS, scaler, namespace, dry_run).await
}

/// Creates an autoscaler and prints it.
async fn create(
    context: &Context,
    invocation: &Invocation,
    resource: &Resource,
    mut scaler: Value,
    namespace: &Namespace,
    dry_run: DryRun,
) -> Result<(), Failure> {
    changes::record(invocation, &mut scaler);
    let mut results = Results::new(context, invocation, dry_run, Form::Typed)?;
    if dry_run == DryRun::Client {
        add_status(&mut scaler);
        return results.print(&scaler, "created");
    }
    if invocation.bool("save-config") {
        add_status(&mut scaler);
        last_applied::save(&mut scaler);
    }
    let options = changes::write_options(invocation, dry_run)?;
    let target = Target::within(resource, namespace.name.as_str());
    let created = context.client()?.create(&target, &scaler, &options).await?;
    results.print(&created, "autoscaled")
}

/// Returns what both versions have in common.
fn base(invocation: &Invocation, info: &Info, namespace: &Namespace, version: &str) -> Value {
    let name = match invocation.text("name") {
        "" => info.name.as_str(),
        name => name,
    };
    let resource = &info.mapping.resource;
    let mut scaler = value!({
        "apiVersion": version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": (resource.api_version()),
                "kind": (resource.kind.clone()),
                "name": (info.name.as_str()),
            },
            "maxReplicas": (invocation.int("max")),
        },
    });
    if let (true, Some(metadata)) = (namespace.explicit, scaler.get_mut("metadata").and_then(Value::as_object_mut)) {
        metadata.insert("namespace", namespace.name.as_str());
    }
    let min = invocation.int("min");
    if let (true, Some(spec)) = (min > 0, spec_of(&mut scaler)) {
        spec.insert("minReplicas", min);
    }
    scaler
}

/// Adds the status that kubectl prints for an object that was not sent.
fn add_status(scaler: &mut Value) {
    let status = match scaler.str_at(&["apiVersion"]) {
        Some("autoscaling/v1") => value!({"currentReplicas": 0, "desiredReplicas": 0}),
        _ => value!({"desiredReplicas": 0, "currentMetrics": null}),
    };
    if let Some(scaler) = scaler.as_object_mut() {
        scaler.insert("status", status);
    }
}

fn spec_of(scaler: &mut Value) -> Option<&mut Object> {
    scaler.get_mut("spec").and_then(Value::as_object_mut)
}

fn autoscaler(invocation: &Invocation, info: &Info, goals: &[(&str, Goal)], namespace: &Namespace) -> Value {
    let mut scaler = base(invocation, info, namespace, "autoscaling/v2");
    let metric = |(resource, goal): &(&str, Goal)| {
        let target = match goal {
            Goal::Utilization(percent) => value!({"type": "Utilization", "averageUtilization": (*percent)}),
            Goal::Amount(amount) => value!({"type": "AverageValue", "averageValue": (amount.as_str())}),
        };
        value!({"type": "Resource", "resource": {"name": (*resource), "target": target}})
    };
    let metrics: Vec<Value> = goals.iter().map(metric).collect();
    if let (false, Some(spec)) = (metrics.is_empty(), spec_of(&mut scaler)) {
        spec.insert("metrics", metrics);
    }
    scaler
}

fn old_autoscaler(invocation: &Invocation, info: &Info, namespace: &Namespace) -> Value {
    let mut scaler = base(invocation, info, namespace, "autoscaling/v1");
    let percent = invocation.int("cpu-percent");
    if let (true, Some(spec)) = (percent >= 0, spec_of(&mut scaler)) {
        spec.insert("targetCPUUtilizationPercentage", percent);
    }
    scaler
}

impl Goal {
    /// Parses `70%`, a quantity, or a number of thousandths of a CPU or of mebibytes.
    fn parse(text: &str, resource: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("empty input".to_owned());
        }
        if let Some(percent) = text.strip_suffix('%') {
            let value = percent.parse::<i32>().ok().filter(|value| *value >= 0);
            let value = value.ok_or_else(|| format!("invalid percentage value: {percent}"))?;
            return Ok(Self::Utilization(value.into()));
        }
        let quantity = match text.parse::<f64>() {
            Ok(number) => format!("{}{}", apimachinery::go::float(number), if resource == "cpu" { "m" } else { "Mi" }),
            Err(_) => text.to_owned(),
        };
        if quantity.parse::<Quantity>().is_err() {
            return Err(format!("invalid resource {resource} value: {text}"));
        }
        let canonical = quantity::canonical(&quantity).map(Cow::into_owned);
        canonical.map(Self::Amount).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_percentages_or_amounts() {
        let amount = |text: &str| Ok(Goal::Amount(text.to_owned()));
        assert_eq!(Goal::parse("70%", "cpu"), Ok(Goal::Utilization(70)));
        assert_eq!(Goal::parse("500", "cpu"), amount("500m"));
        assert_eq!(Goal::parse("200", "memory"), amount("200Mi"));
        assert_eq!(Goal::parse("1.5Gi", "memory"), amount("1536Mi"));
        assert_eq!(Goal::parse("-1%", "cpu"), Err("invalid percentage value: -1".to_owned()));
        assert_eq!(Goal::parse("x", "cpu"), Err("invalid resource cpu value: x".to_owned()));
    }
}
