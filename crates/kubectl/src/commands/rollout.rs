//! `kubectl rollout`: the rollouts of workloads.

mod change;
mod history;
mod revisions;
mod status;
mod undo;

use std::io::Write;

use crate::command::{Command, Flag, Group};
use crate::resources::{Builder, Found};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "rollout",
    group: Group::Deploy,
    summary: "Follow and control the rollouts of workloads",
    description: "Follow, restart, pause, or undo the rollouts of Deployments, DaemonSets, and StatefulSets.",
    examples: "  # Wait until the new version of web runs everywhere
  kubectl rollout status deployment/web

  # Return to the version before
  kubectl rollout undo deployment/web

  # Replace all pods of the DaemonSet log-agent
  kubectl rollout restart daemonset/log-agent

  # List the revisions of the StatefulSet db
  kubectl rollout history statefulset/db",
    usage: "kubectl rollout SUBCOMMAND [options]",
    commands: &[&history::COMMAND, &change::PAUSE, &change::RESTART, &change::RESUME, &status::COMMAND, &undo::COMMAND],
    ..Command::EMPTY
};

/// The files with the objects of a command.
const FILENAME: Flag = flags::filename("Files, directories, or URLs with the objects to look up on the server.");

/// Reads the objects of the command line from the server.
async fn find(context: &Context, invocation: &Invocation) -> Result<Found, Failure> {
    Builder::new(context)
        .namespace(&context.namespace()?)
        .filenames(invocation)
        .selector(invocation.text("selector"))
        .types_or_names(true, &invocation.args)
        .latest()
        .found()
        .await
}

/// Fails if the command line names no objects.
fn require_resource(invocation: &Invocation) -> Result<(), Failure> {
    if invocation.args.is_empty() && invocation.list("filename").is_empty() && invocation.text("kustomize").is_empty() {
        return Err(Failure::new("required resource not specified"));
    }
    Ok(())
}

fn report_nothing_found(context: &Context) -> Result<(), Failure> {
    let namespace = context.namespace()?.name;
    writeln!(context.err(), "No resources found in {namespace} namespace.")?;
    Ok(())
}
