//! `kubectl version`: the versions of this client and of the server.

use crate::command::{Command, Flag};
use crate::{Context, Failure, Invocation};

pub static COMMAND: Command = Command {
    name: "version",
    summary: "Print the client and server version information",
    description: "Print the client and server version information for the current context.",
    examples: "  # Print the client and server versions for the current context\n  kubectl version",
    usage: "kubectl version [flags] [options]",
    flags: &[&[
        Flag::bool("client", "If true, shows client version only (no server required)."),
        Flag::text("output", "", "One of 'yaml' or 'json'.").short('o'),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, _: &Invocation) -> Result<(), Failure> {
    context.mapper().await?.resource("pods").await?;
    Ok(())
}
