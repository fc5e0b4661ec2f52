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

pub static COMMAND: Command = Command {
    name: "rollout",
    group: Group::Deploy,
    summary: "Manage the rollout of a resource",
    description: "Manage the rollout of one or many resources.
        
 Valid resource types include:

  *  deployments
  *  daemonsets
  *  statefulsets",
    examples: "  # Rollback to the previous deployment
  kubectl rollout undo deployment/abc
  
  # Check the rollout status of a daemonset
  kubectl rollout status daemonset/foo
  
  # Restart a deployment
  kubectl rollout restart deployment/abc
  
  # Restart deployments with the 'app=nginx' label
  kubectl rollout restart deployment --selector=app=nginx",
    usage: "kubectl rollout SUBCOMMAND [options]",
    commands: &[&history::COMMAND, &change::PAUSE, &change::RESTART, &change::RESUME, &status::COMMAND, &undo::COMMAND],
    ..Command::EMPTY
};

/// The files with the objects of a command.
const FILENAME: Flag =
    flags::filename("Filename, directory, or URL to files identifying the resource to get from a server.");

/// Returns the objects of the command line as they are on the server.
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
