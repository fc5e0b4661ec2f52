//! `kubectl config get-contexts`, `get-clusters`, `get-users` and `current-context`.

use std::io::Write;

use crate::command::{Command, Flag};
use crate::kubeconfig::{Files, Section};
use crate::print::tabwriter::TabWriter;
use crate::{Context, Failure, Invocation};

pub(super) static CURRENT_CONTEXT: Command = Command {
    name: "current-context",
    summary: "Print the name of the current context",
    description: "Print the name of the context that commands use by default. It is an error if none is set.",
    examples: "  # Which cluster does kubectl talk to?
  kubectl config current-context

  # The current context of a certain file
  kubectl config current-context --kubeconfig=team.conf",
    usage: "kubectl config current-context [flags] [options]",
    run: Some(|context, invocation| Box::pin(current_context(context, invocation))),
    ..Command::EMPTY
};
pub(super) static GET_CLUSTERS: Command = Command {
    name: "get-clusters",
    summary: "List the clusters of the kubeconfig",
    description: "List the names of all cluster entries of the kubeconfig.",
    examples: "  # List the names of all clusters
  kubectl config get-clusters

  # List the clusters of a certain file
  kubectl config get-clusters --kubeconfig=team.conf",
    usage: "kubectl config get-clusters [flags] [options]",
    run: Some(|context, invocation| Box::pin(clusters(context, invocation))),
    ..Command::EMPTY
};
pub(super) static GET_CONTEXTS: Command = Command {
    name: "get-contexts",
    summary: "List the contexts of the kubeconfig",
    description: "List contexts of the kubeconfig with their clusters, users, and namespaces. An asterisk marks the \
        current context.",
    examples: "  # List all contexts
  kubectl config get-contexts

  # Show the context staging only
  kubectl config get-contexts staging

  # List the names only, for a script
  kubectl config get-contexts -o name",
    usage: "kubectl config get-contexts [(-o|--output=)name)] [options]",
    flags: &[&[
        Flag::bool("no-headers", "Omit the line with the column names."),
        Flag::text("output", "", "Print in another format. One of: (name).").short('o'),
    ]],
    run: Some(|context, invocation| Box::pin(contexts(context, invocation))),
    ..Command::EMPTY
};
pub(super) static GET_USERS: Command = Command {
    name: "get-users",
    summary: "List the users of the kubeconfig",
    description: "List the names of all user entries of the kubeconfig.",
    examples: "  # List the names of all users
  kubectl config get-users

  # List the users of a certain file
  kubectl config get-users --kubeconfig=team.conf",
    usage: "kubectl config get-users [flags] [options]",
    run: Some(|context, invocation| Box::pin(users(context, invocation))),
    ..Command::EMPTY
};

async fn current_context(context: &Context, _: &Invocation) -> Result<(), Failure> {
    let config = Files::of(context).load()?;
    if config.current_context.is_empty() {
        return Err(Failure::new("current-context is not set"));
    }
    Ok(writeln!(context.out(), "{}", config.current_context)?)
}

async fn clusters(context: &Context, _: &Invocation) -> Result<(), Failure> {
    names(context, Section::Clusters)
}

async fn users(context: &Context, _: &Invocation) -> Result<(), Failure> {
    names(context, Section::Users)
}

fn names(context: &Context, section: Section) -> Result<(), Failure> {
    let config = Files::of(context).load()?;
    let mut out = context.out();
    writeln!(out, "NAME")?;
    for name in config.entries(section).keys() {
        writeln!(out, "{name}")?;
    }
    Ok(())
}

async fn contexts(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let output = invocation.text("output");
    if !matches!(output, "" | "name") {
        return Err(Failure::new(format!(
            "--output {output} is not available in kubectl config get-contexts; resetting to default output format"
        )));
    }
    let config = Files::of(context).load()?;
    let mut failures = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for name in &invocation.args {
        match config.contexts.contains_key(name) {
            true => names.push(name),
            false => failures.push(Failure::new(format!("context {name} not found"))),
        }
    }
    if invocation.args.is_empty() {
        names.extend(config.contexts.keys().map(String::as_str));
    }
    names.sort_unstable();
    let mut text = String::new();
    if output.is_empty() && !invocation.bool("no-headers") {
        text.push_str("CURRENT\tNAME\tCLUSTER\tAUTHINFO\tNAMESPACE\n");
    }
    for name in names {
        let entry = &config.contexts[name];
        let mark = if name == config.current_context { "*" } else { " " };
        let fields = ["cluster", "user", "namespace"].map(|key| entry.text(key));
        match output {
            "name" => text.push_str(&format!("{name}\n")),
            _ => text.push_str(&format!("{mark}\t{name}\t{}\n", fields.join("\t"))),
        }
    }
    context.out().write_all(TabWriter::for_tables().format(&text).as_bytes())?;
    Failure::all(failures)
}
