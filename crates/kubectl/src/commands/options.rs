//! `kubectl options`: the global flags.

use std::io::Write;

use crate::command::{Command, Group};
use crate::{Context, Failure, Invocation, help};

pub(super) static COMMAND: Command = Command {
    name: "options",
    group: Group::Hidden,
    summary: "List the options of all commands",
    description: "List the options that every command accepts, with their defaults.",
    examples: "  # List the options
  kubectl options

  # Find those for TLS
  kubectl options | grep -A1 tls",
    usage: "kubectl options",
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, _: &Invocation) -> Result<(), Failure> {
    context.out().write_all(help::for_terminal(&help::global_options()).as_bytes())?;
    Ok(())
}
