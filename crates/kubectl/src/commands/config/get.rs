//! `kubectl config get-contexts`, `get-clusters`, `get-users` and `current-context`.

use std::io::Write;

use crate::command::{Command, Flag};
use crate::kubeconfig::{Files, Section};
use crate::print::tabwriter::TabWriter;
use crate::{Context, Failure, Invocation};

pub static CURRENT_CONTEXT: Command = Command {
    name: "current-context",
    summary: "Display the current-context",
    description: "Display the current-context.",
    examples: "  # Display the current-context
  kubectl config current-context",
    usage: "kubectl config current-context [flags] [options]",
    run: Some(|context, invocation| Box::pin(current_context(context, invocation))),
    ..Command::EMPTY
};
pub static GET_CLUSTERS: Command = Command {
    name: "get-clusters",
    summary: "Display clusters defined in the kubeconfig",
    description: "Display clusters defined in the kubeconfig.",
    examples: "  # List the clusters that kubectl knows about
  kubectl config get-clusters",
    usage: "kubectl config get-clusters [flags] [options]",
    run: Some(|context, invocation| Box::pin(clusters(context, invocation))),
    ..Command::EMPTY
};
pub static GET_CONTEXTS: Command = Command {
    name: "get-contexts",
    summary: "Describe one or many contexts",
    description: "Display one or many contexts from the kubeconfig file.",
    examples: "  # List all the contexts in your kubeconfig file
  kubectl config get-contexts

  # Describe one context in your kubeconfig file
  kubectl config get-contexts my-context",
    usage: "kubectl config get-contexts [(-o|--output=)name)] [options]",
    flags: &[&[
        Flag::bool(
            "no-headers",
            "When using the default or custom-column output format, don't print headers (default print headers).",
        ),
        Flag::text("output", "", "Output format. One of: (name).").short('o'),
    ]],
    run: Some(|context, invocation| Box::pin(contexts(context, invocation))),
    ..Command::EMPTY
};
pub static GET_USERS: Command = Command {
    name: "get-users",
    summary: "Display users defined in the kubeconfig",
    description: "Display users defined in the kubeconfig.",
    examples: "  # List the users that kubectl knows about
  kubectl config get-users",
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
