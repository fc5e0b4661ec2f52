//! `kubectl config delete-cluster`, `delete-context` and `delete-user`.

use std::io::Write;

use super::print_help;
use crate::command::Command;
use crate::kubeconfig::{Files, Section};
use crate::{Context, Failure, Invocation};

pub(super) static DELETE_CLUSTER: Command = Command {
    name: "delete-cluster",
    summary: "Remove a cluster from the kubeconfig",
    description: "Remove a cluster entry from the kubeconfig. Contexts that refer to it stay.",
    examples: "  # Forget the cluster staging
  kubectl config delete-cluster staging

  # Remove it from a certain file
  kubectl config delete-cluster staging --kubeconfig=team.conf",
    usage: "kubectl config delete-cluster NAME [options]",
    run: Some(|context, invocation| Box::pin(cluster(context, invocation))),
    ..Command::EMPTY
};
pub(super) static DELETE_CONTEXT: Command = Command {
    name: "delete-context",
    summary: "Remove a context from the kubeconfig",
    description: "Remove a context entry from the kubeconfig. The cluster and the user of the context stay.",
    examples: "  # Remove the context staging-admin
  kubectl config delete-context staging-admin

  # Remove it from a certain file
  kubectl config delete-context staging-admin --kubeconfig=team.conf",
    usage: "kubectl config delete-context NAME [options]",
    run: Some(|context, invocation| Box::pin(delete_context(context, invocation))),
    ..Command::EMPTY
};
pub(super) static DELETE_USER: Command = Command {
    name: "delete-user",
    summary: "Remove a user from the kubeconfig",
    description: "Remove a user entry with its credentials from the kubeconfig. Contexts that refer to it stay.",
    examples: "  # Remove the credentials of alice
  kubectl config delete-user alice

  # Remove them from a certain file
  kubectl config delete-user alice --kubeconfig=team.conf",
    usage: "kubectl config delete-user NAME [options]",
    run: Some(|context, invocation| Box::pin(user(context, invocation))),
    ..Command::EMPTY
};

async fn cluster(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    delete(context, invocation, Section::Clusters)
}

async fn delete_context(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    delete(context, invocation, Section::Contexts)
}

async fn user(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if invocation.args.len() != 1 {
        return Err(Failure::usage(&invocation.name(), "user to delete is required"));
    }
    delete(context, invocation, Section::Users)
}

fn delete(context: &Context, invocation: &Invocation, section: Section) -> Result<(), Failure> {
    let files = Files::of(context);
    let old = files.load()?;
    let [name] = invocation.args.as_slice() else { return print_help(context, invocation) };
    let (kind, file) = (section.key(), files.default_file().display());
    let mut new = old.clone();
    if new.entries_mut(section).remove(name).is_none() {
        return Err(Failure::new(format!("cannot delete {kind} {name}, not in {file}")));
    }
    if section == Section::Contexts && old.current_context == *name {
        let text =
            "warning: this removed your active context, use \"kubectl config use-context\" to select a different one";
        writeln!(context.err(), "{text}")?;
    }
    files.save(&old, &new, true)?;
    Ok(writeln!(context.out(), "deleted {kind} {name} from {file}")?)
}
