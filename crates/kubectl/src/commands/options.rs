//! `kubectl options`: the global flags.

use std::io::Write;

use crate::command::{Command, Group};
use crate::{Context, Failure, Invocation, help};

pub static COMMAND: Command = Command {
    name: "options",
    group: Group::Hidden,
    summary: "Print the list of flags inherited by all commands",
    description: "Print the list of flags inherited by all commands",
    examples: "  # Print flags inherited by all commands\n  kubectl options",
    usage: "kubectl options",
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, _: &Invocation) -> Result<(), Failure> {
    context.out().write_all(help::global_options().as_bytes())?;
    Ok(())
}
