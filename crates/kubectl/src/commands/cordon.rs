//! `kubectl cordon` and `kubectl uncordon`: whether pods may be scheduled to a node.

use std::io::Write;

use apimachinery::{Value, value};
use client::{Patch, WriteOptions};

use crate::changes::{DryRun, inner_message};
use crate::command::{Command, Group};
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, flags};

pub(super) static CORDON: Command = Command {
    name: "cordon",
    group: Group::ClusterManagement,
    summary: "Keep new pods off a node",
    description: "Mark nodes as unschedulable, so that the scheduler places no new pods on them. Pods that run there \
        stay.",
    examples: "  # Place no new pods on worker-1
  kubectl cordon worker-1

  # Cordon all nodes of a rack
  kubectl cordon -l rack=r7",
    usage: "kubectl cordon NODE [options]",
    flags: &[flags::SELECTOR, flags::DRY_RUN],
    run: Some(|context, invocation| Box::pin(run(context, invocation, Cordon::Cordoned))),
    ..Command::EMPTY
};

pub(super) static UNCORDON: Command = Command {
    name: "uncordon",
    group: Group::ClusterManagement,
    summary: "Allow new pods on a node again",
    description: "Mark nodes as schedulable again, after \"kubectl cordon\" or \"kubectl drain\".",
    examples: "  # Return worker-1 to service
  kubectl uncordon worker-1

  # Return all nodes of a rack to service
  kubectl uncordon -l rack=r7",
    usage: "kubectl uncordon NODE [options]",
    flags: &[flags::SELECTOR, flags::DRY_RUN],
    run: Some(|context, invocation| Box::pin(run(context, invocation, Cordon::Uncordoned))),
    ..Command::EMPTY
};

/// Whether a node is to be cordoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cordon {
    Cordoned,
    Uncordoned,
}

async fn run(context: &Context, invocation: &Invocation, desired: Cordon) -> Result<(), Failure> {
    let dry_run = check(context, invocation)?;
    let nodes = nodes(context, invocation, 500).await?;
    set(context, &nodes, desired, dry_run).await
}

/// Checks the arguments that select nodes.
pub(super) fn check(context: &Context, invocation: &Invocation) -> Result<DryRun, Failure> {
    if invocation.args.is_empty() && !invocation.is_set("selector") {
        let problem = format!("USAGE: {} NODE [flags]", invocation.command.name);
        return Err(Failure::usage(&invocation.name(), problem));
    }
    if !invocation.args.is_empty() && !invocation.text("selector").is_empty() {
        let problem = "error: cannot specify both a node name and a --selector option";
        return Err(Failure::usage(&invocation.name(), problem));
    }
    DryRun::of(context, invocation)
}

/// Returns the nodes of the command line.
pub(super) async fn nodes(context: &Context, invocation: &Invocation, chunk_size: i64) -> Result<Vec<Info>, Failure> {
    let builder = Builder::new(context).namespace(&context.namespace()?).chunk_size(chunk_size).single_type();
    let builder = match invocation.text("selector") {
        "" => builder.names("nodes", &invocation.args),
        selector => builder.selector(selector).types_or_names(false, &["nodes".to_owned()]),
    };
    let mut found = builder.found().await?;
    if !found.failures.is_empty() {
        return Err(found.failures.swap_remove(0));
    }
    for info in &found.infos {
        let resource = &info.mapping.resource;
        if (resource.group.as_str(), resource.plural.as_str()) != ("", "nodes") {
            let got = format!("{}, Resource={}", gvr_prefix(info), resource.plural);
            return Err(Failure::new(format!("error: expected resource of type node, got {got:?}")));
        }
    }
    Ok(found.infos)
}

/// Returns the group and version of a type as Go formats them: `apps/v1`, `/v1`.
pub(super) fn gvr_prefix(info: &Info) -> String {
    let resource = &info.mapping.resource;
    format!("{}/{}", resource.group, resource.version)
}

/// Cordons or uncordons nodes. If one node cannot be changed, the others still are.
pub(super) async fn set(context: &Context, nodes: &[Info], desired: Cordon, dry_run: DryRun) -> Result<(), Failure> {
    let (verb, done, unschedulable) = match desired {
        Cordon::Cordoned => ("cordon", "cordoned", true),
        Cordon::Uncordoned => ("uncordon", "uncordoned", false),
    };
    for node in nodes {
        let current = node.object.at(&["spec", "unschedulable"]).and_then(Value::as_bool).unwrap_or_default();
        if current == unschedulable {
            print(context, node, &dry_run.message(&format!("already {done}")))?;
            continue;
        }
        if dry_run != DryRun::Client {
            let field = if unschedulable { Value::Bool(true) } else { Value::Null };
            let patch = Patch::Strategic(value!({"spec": {"unschedulable": field}}));
            let options = WriteOptions { dry_run: dry_run == DryRun::Server, ..WriteOptions::default() };
            if let Err(error) = context.client()?.patch(&node.target(), &patch, &options).await {
                let message = inner_message(&error.into());
                writeln!(context.err(), "error: unable to {verb} node {:?}: {message}", node.name)?;
                continue;
            }
        }
        print(context, node, &dry_run.message(done))?;
    }
    Ok(())
}

/// Prints the operation on an object: `node/a cordoned`.
pub(super) fn print(context: &Context, info: &Info, message: &str) -> Result<(), Failure> {
    writeln!(context.out(), "{} {message}", info.display())?;
    Ok(())
}
