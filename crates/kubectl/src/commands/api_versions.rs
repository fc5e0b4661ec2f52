//! `kubectl api-versions`: the versions of all groups.

use std::io::Write;

use crate::command::Command;
use crate::{Context, Failure, Invocation};

pub(super) static COMMAND: Command = Command {
    name: "api-versions",
    summary: "List the versions of the server's API",
    description: "List the API versions that the server offers, as \"group/version\", or \"version\" for the core \
        group.",
    examples: "  # List all API versions
  kubectl api-versions

  # Which versions of the group apps are there?
  kubectl api-versions | grep ^apps/",
    usage: "kubectl api-versions [options]",
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if !invocation.args.is_empty() {
        let args = invocation.args.join(" ");
        return Err(Failure::usage(&invocation.name(), format_args!("unexpected arguments: [{args}]")));
    }
    let mapper = context.mapper().await?;
    mapper.refresh().await?;
    let mut versions: Vec<String> = Vec::new();
    for group in mapper.groups().await?.iter() {
        let prefix = if group.name.is_empty() { String::new() } else { format!("{}/", group.name) };
        versions.extend(group.versions.iter().map(|version| format!("{prefix}{version}")));
    }
    versions.sort();
    for version in versions {
        writeln!(context.out(), "{version}")?;
    }
    Ok(())
}
